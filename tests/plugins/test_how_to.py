"""The page about writing a plugin is true: its files are installed and its last program is run."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from rlx_core.plugins import State

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-plugin.md"


def test_the_plugin_of_the_page_works_as_the_page_says(site):
    blocks = re.findall(r"```(python|toml)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    files = {block.splitlines()[0].removeprefix("# "): block for _, block in blocks if block.startswith("# ")}
    project = tomllib.loads(files["pyproject.toml"])["project"]
    points = project["entry-points"]
    site.install(
        *points["rlx.plugins"],
        distribution=project["name"],
        version=project["version"],
        requires=tuple(project["dependencies"]),
        when=tuple(points["rlx.when"]),
        module=points["rlx.plugins"]["acme"],
    )
    for name in ("acme_plugin.py", "acme_ops.py"):
        (site.path / name).write_text(files[name])

    (program,) = [block for language, block in blocks if language == "python" and not block.startswith("# ")]

    exec(compile(program, str(PAGE), "exec"), {})


def test_every_state_is_on_the_page():
    rows = re.findall(r"^\| (\w+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert rows == ["state", *State]
