"""What an editor sees: pyright, strict, on programs with mistakes, on programs without, on those of the README and of a
package, and on the examples.

`make types` installs pyright as the wheel `basedpyright`, which brings the Node that it runs on, and then runs these tests.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
INSTALLED = ROOT / ".venv-types" / "bin" / "basedpyright"
PYRIGHT = str(INSTALLED) if INSTALLED.exists() else shutil.which("pyright")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PYRIGHT is None, reason="`make types` installs pyright"),
]

MARK = re.compile(r"# type: ignore\[|# pyright only")

# Programs of prose leave their own annotations out, so nothing is said about what they leave out.
UNTYPED_PROGRAMS = dict.fromkeys(
    [
        "reportMissingParameterType",
        "reportMissingTypeArgument",
        "reportMissingTypeStubs",
        "reportUnknownArgumentType",
        "reportUnknownLambdaType",
        "reportUnknownMemberType",
        "reportUnknownParameterType",
        "reportUnknownVariableType",
        "reportUnusedExpression",
    ],
    "none",
)


def problems(folder: Path) -> dict[str, dict[int, str]]:
    """By file, the lines with an error and what it is."""
    assert PYRIGHT is not None
    done = subprocess.run(
        [PYRIGHT, "--pythonpath", sys.executable, "--outputjson"], cwd=folder, capture_output=True, text=True
    )
    found: dict[str, dict[int, str]] = {}
    for each in json.loads(done.stdout)["generalDiagnostics"]:
        if each["severity"] == "error":
            lines = found.setdefault(Path(each["file"]).name, {})
            lines[each["range"]["start"]["line"] + 1] = each["message"]
    return found


@cache
def here() -> dict[str, dict[int, str]]:
    return problems(HERE)


def marked() -> set[int]:
    lines = (HERE / "mistakes.py").read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if MARK.search(line) and not line.startswith(("`", '"'))}


def test_every_mistake_is_found_and_nothing_else_is_called_one() -> None:
    assert len(marked()) >= 25
    assert here()["mistakes.py"].keys() == marked()


def test_programs_without_mistakes_are_accepted_as_strict() -> None:
    assert here().get("accepted.py", {}) == {}


def test_the_programs_of_the_pages_and_the_examples_are_accepted(tmp_path: Path) -> None:
    pages = [ROOT / "README.md", ROOT / "docs" / "how-to" / "publish-a-package.md"]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 6
    for block in blocks:
        named = re.match(r"# ([\w/]+\.py)\n", block)
        path = tmp_path / (named[1] if named else "readme.py")
        path.parent.mkdir(exist_ok=True)
        with path.open("a", encoding="utf-8") as file:  # blocks without a name continue one program
            file.write(block)
    for example in (ROOT / "examples").glob("*.py"):
        shutil.copy(example, tmp_path)
    settings = {"typeCheckingMode": "strict", "include": ["."], "extraPaths": [str(tmp_path)], **UNTYPED_PROGRAMS}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")

    assert problems(tmp_path) == {}
