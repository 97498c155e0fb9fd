"""Labels: the targets of branches."""

from __future__ import annotations

from .ambient import current


class Label:
    """A branch target. `bra(label)` may come before or after `label.place()`."""

    def __init__(self, hint: str = "L", name: str = "") -> None:
        self.name = current().given_label(name) if name else current().new_label(hint)

    def place(self) -> None:
        """Put the label here. Addresses computed before it are not reused after it, since control may come from anywhere."""
        builder = current()
        builder.forget()
        builder.said.add(self.name)
        builder.place(self.name)
