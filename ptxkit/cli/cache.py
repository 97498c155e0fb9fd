"""The command `ptxkit cache`: where cubins are kept, how many, and how to be rid of them."""

from __future__ import annotations

import argparse

from ..runtime.cache import cache
from . import output


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's options."""
    parser.add_argument("--clear", action="store_true", help="remove every entry")


def run(options: argparse.Namespace) -> int:
    """Shows the cache, after it was cleared if that is asked for."""
    store = cache()
    removed = store.clear() if store is not None and options.clear else None
    entries, size = (0, 0) if store is None else store.size()
    if options.json:
        output.show_json({"place": None if store is None else str(store.directory), "used": store is not None and store.usable(),
                          "entries": entries, "bytes": size, "limit": None if store is None else store.limit, "removed": removed})
        return 0
    if store is None:
        print("off: set PTXKIT_CACHE_DIR to keep cubins")
        return 0
    store.usable()  # which says why it is not
    rows = [("place", str(store.directory)), ("entries", f"{entries:,}"), ("bytes", f"{size:,}"), ("limit", f"{store.limit:,} bytes")]
    output.table(("", ""), rows + ([] if removed is None else [("removed", f"{removed:,}")]))
    return 0
