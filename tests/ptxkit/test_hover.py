"""What editors show: each complete opcode of the stub has the sentence of the table, and the names of its operands."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ptxkit.dsl import stubs
from ptxkit.grammar import forms
from ptxkit.grammar.summaries import SUMMARIES, about, summary

pytestmark = [pytest.mark.pure, pytest.mark.timeout(100)]


@cache
def said() -> tuple[dict[str, dict[str, tuple[str, str]]], dict[str, tuple[str, str]]]:
    """Per class, and of the module: the class of each attribute, and the text behind it."""
    classes = {}
    module = ast.parse(stubs.PATH.read_text(encoding="utf-8"))
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            classes[node.name] = _attributes(node.body)
    return classes, _attributes(module.body)


def _attributes(body: list[ast.stmt]) -> dict[str, tuple[str, str]]:
    found = {}
    for item, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(item, ast.AnnAssign):
            text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            found[ast.unparse(item.target)] = ast.unparse(item.annotation).partition("[")[0], str(text)
    return found


def opcodes() -> Any:
    """(state, text) of every beginning of an opcode in the table, with what stands behind it in the stub."""
    classes, module = said()
    todo = [(state, *module[name]) for name, state in forms.names().items()]
    while todo:
        state, of, text = todo.pop()
        yield state, text
        todo += [(after, *classes[of][name]) for name, after in state.attributes().items()]


def test_every_opcode_has_its_sentence_and_names_its_operands() -> None:
    complete, begun = 0, {state.prefix for state in forms.names().values()}
    for state, text in opcodes():
        signatures = state.signatures()
        if signatures:
            complete += 1
            sentence = summary(state.prefix)
            assert sentence, f"`{state.prefix}` has no sentence in grammar/summaries.py"
            assert text.startswith(sentence), state.prefix
            names = {parameter.name for signature in signatures for parameter in signature.parameters}
            assert names <= set(re.findall(r"\w+", text.removeprefix(sentence))), state.prefix
        elif state.prefix in begun:
            assert text == about(state.prefix) != "", state.prefix
        else:
            assert text == "", state.prefix
    assert complete > 5000


def test_an_opcode_without_a_sentence_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(SUMMARIES, "ret")  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match=r"`ret\S*` has no sentence"):
        test_every_opcode_has_its_sentence_and_names_its_operands()


def test_sentences_are_plain_and_short() -> None:
    for key, text in SUMMARIES.items():
        assert text.isascii(), key
        assert not set(text) & set('"\\'), key
        assert text[0].isupper() or text[0].isdigit(), key
        assert text.endswith("."), key
        assert len(text) < 160, key


LINES = {"from ptxkit.ptx import add, fence, wgmma": ("wgmma", summary("wgmma")),
         "add.rn.f32": ("f32", "The sum of two values. Operands: [d,] a, b."),
         "add.cc.u32": ("u32", "The sum, with the carry out kept in the CC flag for the next `addc`. Operands: [d,] a, b."),
         "fence.mbarrier_init.release.cluster": ("cluster", summary("fence.mbarrier_init")),
         "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16": ("bf16", "a_desc, b_desc, scale_d, imm_scale_a=, imm_scale_b=")}


@pytest.mark.skipif(shutil.which("basedpyright-langserver", path=str(Path(sys.executable).parent)) is None, reason="no language server")
def test_an_editor_shows_it(tmp_path: Path) -> None:
    """A language server's answer to a hover over the last word of each line."""
    source = tmp_path / "hover.py"
    source.write_text("\n".join(LINES) + "\n")
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(Path(__file__).parents[2])]}))
    server = Server(tmp_path)
    try:
        server.open(source)
        for number, (line, (word, text)) in enumerate(LINES.items()):
            shown = server.ask("textDocument/hover", textDocument={"uri": source.as_uri()},
                               position={"line": number, "character": line.rindex(word) + 1})
            assert text in shown["contents"]["value"], line
    finally:
        server.process.kill()


class Server:
    """A language server over its standard input and output."""

    def __init__(self, root: Path) -> None:
        self.process = subprocess.Popen([Path(sys.executable).parent / "basedpyright-langserver", "--stdio"], cwd=root,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.count = 0
        hover = {"textDocument": {"hover": {"contentFormat": ["plaintext"]}}}
        self.ask("initialize", processId=os.getpid(), rootUri=root.as_uri(), capabilities=hover,
                 workspaceFolders=[{"uri": root.as_uri(), "name": "root"}])
        self.send(method="initialized", params={})

    def open(self, path: Path) -> None:
        self.send(method="textDocument/didOpen", params={"textDocument": {"uri": path.as_uri(), "languageId": "python", "version": 1,
                                                                          "text": path.read_text()}})

    def send(self, **message: Any) -> None:
        assert self.process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def ask(self, method: str, **params: Any) -> Any:
        self.count += 1
        self.send(id=self.count, method=method, params=params)
        while True:
            heard = self.hear()
            if "method" in heard and "id" in heard:                   # it asks for settings
                items = heard.get("params", {}).get("items", [])
                self.send(id=heard["id"], result=[{}] * len(items) if heard["method"] == "workspace/configuration" else None)
            elif heard.get("id") == self.count:
                return heard["result"]

    def hear(self) -> Any:
        assert self.process.stdout is not None
        length = 0
        while line := self.process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        assert length, "the language server has ended"
        return json.loads(self.process.stdout.read(length))
