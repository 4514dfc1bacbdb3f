"""What `rlx new` writes installs, passes its tests and the type checker, and is listed and found in order by `rlx`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = {"op": "kitop.shrink", "pass": "kitpass.guard-exp", "backend": "kitboard", "plugin": "kitall"}


class Author:
    """Somebody with this checkout's environment, who installs packages into a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.site = folder, folder / "site"
        sources = [str(self.site), str(ROOT), *(str(path) for path in ROOT.glob("plugins/*/src"))]
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("RLX_", "PYTEST"))}
        self.environment = {**kept, "PYTHONPATH": os.pathsep.join(sources), "RLX_CACHE_DIR": str(folder / "cache")}

    def run(self, *words: str, cwd: Path | None = None) -> str:
        """What `python -m` some words prints; it must succeed."""
        return self.python("-m", *words, cwd=cwd)

    def rlx(self, *words: str, cwd: Path | None = None) -> str:
        """What the command `rlx` prints."""
        return self.python("-c", "from rlx_core.cli.main import main; main()", *words, cwd=cwd)

    def python(self, *words: str, cwd: Path | None = None) -> str:
        command = [sys.executable, *words]
        done = subprocess.run(command, cwd=cwd or self.folder, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def install(self, project: Path) -> None:
        self.run("pip", "install", "--quiet", "--no-deps", "--target", str(self.site), str(project))


# One test for each kind: it installs a package, and its tests try the laws.
@pytest.mark.slow
@pytest.mark.parametrize("kind", NAMES)
def test_a_new_package_installs_and_passes_its_tests(tmp_path: Path, kind: str) -> None:
    author = Author(tmp_path)
    made = json.loads(author.rlx("new", kind, NAMES[kind], "--json"))
    project = tmp_path / made["distribution"]
    author.install(project)

    author.run("pytest", "-p", "no:cacheprovider", cwd=project)
    author.run("mypy", "--strict", "--no-warn-return-any", "--cache-dir", os.devnull, "src", "tests", cwd=project)
    rows = {row["name"]: row for row in json.loads(author.rlx("plugins", "--json"))["plugins"]}
    row = rows[NAMES[kind].partition(".")[0]]
    assert (row["state"], row["distribution"]) == ("active", made["distribution"])
    checked = json.loads(author.rlx("check", "--quick", "--json", cwd=project))
    assert checked["ok"], checked
