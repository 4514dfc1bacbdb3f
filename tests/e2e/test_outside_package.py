"""A package written outside the repository from one page alone installs with pip and works: op, kernel, pass, backend.

The files are the code blocks of `docs/how-to/publish-a-package.md`, so that the page states only what works.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "publish-a-package.md").read_text(encoding="utf-8")
BLOCKS = [block for _, block in re.findall(r"```(python|toml)\n(.*?)```", PAGE, re.DOTALL)]
FILES = {block.splitlines()[0].removeprefix("# "): block for block in BLOCKS if block.startswith("# ")}

WORKSPACE = [f"{ROOT}[testing]", str(ROOT / "plugins" / "rlx_cpu")]


class Place:
    """A project's folder, and an environment of its own with everything installed."""

    def __init__(self, folder: Path) -> None:
        self.project, self.bin = folder / "project", folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        # Nothing of the surrounding environment may lend a hand.
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("RLX_", "PYTHON", "COV"))}
        self.environment["RLX_CACHE_DIR"] = str(folder / "cache")
        for name, text in FILES.items():
            path = self.project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        self.run(sys.executable, "-m", "venv", str(folder / "venv"))
        # One resolution for all of them, with the builds isolated as anyone's are.
        self.run(self.bin / "python", "-m", "pip", "install", "--quiet", *WORKSPACE, str(self.project))

    def run(self, *command: str | Path) -> str:
        """What a command prints, in the project's folder; it must succeed."""
        words = [str(word) for word in command]
        done = subprocess.run(words, cwd=self.project, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def rlx(self, *words: str) -> dict[str, object]:
        """What the command `rlx` answers as JSON."""
        found: dict[str, object] = json.loads(self.run(self.bin / "rlx", *words, "--json"))
        return found


def test_the_page_has_every_file_of_a_package() -> None:
    modules = {f"acme_rlx/{name}.py" for name in ("ops", "kernels", "passes", "backend", "plugin")}
    assert set(FILES) == modules | {"pyproject.toml", "rlx.toml", "try_acme.py"}


# One test for the whole journey: an environment takes ten to thirty seconds to install, and test processes do not share one.
@pytest.mark.slow
def test_a_package_written_from_the_page_installs_and_works(tmp_path: Path) -> None:
    place = Place(tmp_path)
    python = place.bin / "python"

    said = place.run(python, "try_acme.py")
    ops_left = re.findall(r"= (\w+\.\w+)\(", said)
    assert said.startswith("4.5\n")
    assert re.search(r"1 × acme\.shrink +shrink_on_cpu \(acme\)", said), said
    assert ops_left.count("acme.shrink") == 1, said  # written twice; the pass dropped the one that does nothing
    assert "[-3.  1.  1.  3.]" in said  # 2x beyond ±0.5 less twice the limit, and 1 within
    assert re.search(r"^4\.5 Counter\(\{.*'acme\.shrink': 1", said, re.MULTILINE), said

    plugins = {row["name"]: row for row in place.rlx("plugins")["plugins"]}  # type: ignore[attr-defined]
    assert plugins["acme"]["state"] == "active"
    assert plugins["acme"]["distribution"] == "acme-rlx"
    owner = place.rlx("why", "op", "acme.shrink")["owner"]
    assert (owner["distribution"], owner["version"]) == ("acme-rlx", "1.0")  # type: ignore[index]
    planned = [line["name"] for line in place.rlx("plan")["passes"]]  # type: ignore[attr-defined]
    assert planned.index("acme.drop-shrinks") < planned.index("rlx.legalize")

    laws = place.run(
        python, "-m", "pytest", "-p", "no:cacheprovider", "--pyargs", "rlx_core.testing", "--rlx-plugin=acme_rlx.plugin"
    )
    assert re.search(r"[1-9]\d* passed", laws), laws

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    twenty_lines = next(
        b for b in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "def predict(params, x)" in b
    )
    (place.project / "twenty_lines.py").write_text(twenty_lines, encoding="utf-8")
    shown = place.run(python, "twenty_lines.py")
    assert "(5, 10)" in shown
    assert "graph predict" in shown
