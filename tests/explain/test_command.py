"""The command `ptxkit explain`."""

from __future__ import annotations

import json

import pytest

from ptxkit.cli.main import main

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(("arguments", "says"), [
    (["wgmma.mma_async..."], "a_desc"), (["tid"], "%tid.x"), ([], "wgmma"), (["--descriptor", "0x4000004000010040"], "128 bytes"),
    (["--descriptor", "4611686293305360448"], "0x4000004000010040"), (["--swizzle", "128B", "--rows", "8"], "7.7"),
    (["--tensormap", "type=bf16", "dims=4096,4096", "box=64,128", "swizzle=128"], "16,384 bytes")])
def test_as_text_and_as_json(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *arguments]) == 0
    written = capsys.readouterr()
    assert says in written.out
    assert written.err == ""
    assert main(["explain", *arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("arguments", "status"), [
    (["nothing.at.all"], 1), (["--descriptor", "sixteen"], 1), (["--descriptor", str(1 << 65)], 1), (["--swizzle", "12B"], 1),
    (["--tensormap", "00"], 1), (["--tensormap", "type=bf16"], 1),
    (["--tensormap", "type=bf16", "dims=4096,4096", "box=128,128", "swizzle=128"], 1), (["add", "--swizzle", "128B"], 2)])
def test_one_clear_error(arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *arguments]) == status
    written = capsys.readouterr()
    assert "Traceback" not in written.err
    assert written.err.count("\n") == (1 if not written.out else 0)
