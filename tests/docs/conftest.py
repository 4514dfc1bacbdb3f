"""Pages that run: their Python blocks are executed in order, and what they print is what the page shows.

A `python` or `toml` block whose first line is a comment with a path is a file; any other `python` block is executed, and the
`text` block after it is what it prints. `pytest tests/docs --update` writes what is printed into the page, for a person to
read the difference.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w./-]+\.(?:py|toml))\n")


class Page:
    """A page, with what its blocks printed when they were run."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.text = path.read_text(encoding="utf-8")
        self.folder = folder
        self.shown: list[str] = []
        self.printed: list[str] = []
        self.updated = self.text
        self._run()

    def _run(self) -> None:
        fences = list(FENCE.finditer(self.text))
        # A page runs as `__main__` does: what it defines knows where it was defined.
        self.names: dict[str, Any] = {"__name__": f"page_{self.path.stem.replace('-', '_')}"}
        pieces: list[str] = []
        end = 0
        for fence, after in zip(fences, [*fences[1:], None], strict=True):
            language, body = fence.groups()
            if language not in ("python", "toml"):
                continue
            if named := FILE.match(body):
                self._write(named[1], body)
                continue
            if language == "toml":
                continue
            printed = self._execute(body, self.names, line=self.text.count("\n", 0, fence.start(2)))
            output = after if after is not None and after[1] == "text" else None
            if output is None:
                assert not printed, f"{self.path.name}: a block prints what the page does not show:\n{body}\n{printed}"
                continue
            self.shown.append(output[2])
            self.printed.append(printed)
            pieces += [self.text[end : output.start(2)], printed]
            end = output.end(2)
        self.updated = "".join([*pieces, self.text[end:]])

    def _write(self, name: str, body: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body, encoding="utf-8")

    def _execute(self, body: str, names: dict[str, Any], line: int) -> str:
        out = io.StringIO()
        with redirect_stdout(out):
            # Line numbers are the page's own, so that an error in a block is found.
            exec(compile("\n" * line + body, str(self.path), "exec"), names)
        return "".join(f"{each.rstrip()}\n" for each in out.getvalue().rstrip("\n").splitlines())


@pytest.fixture
def run_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> Iterator[Callable[[str], Page]]:
    """Run a page of `docs/` in an empty folder; what it prints must be what it shows, or becomes so with `--update`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    before = set(sys.modules)

    def run(name: str) -> Page:
        page = Page(DOCS / name, tmp_path)
        if pytestconfig.getoption("--update"):
            page.path.write_text(page.updated, encoding="utf-8")
            return page
        assert page.shown, f"{name} shows nothing of what it prints"
        for shown, printed in zip(page.shown, page.printed, strict=True):
            assert printed == shown
        return page

    yield run
    for module in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[module], "__file__", "")):
            del sys.modules[module]
