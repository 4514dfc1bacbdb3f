"""The page on debugging says only commands that work: each is run with the configuration above it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from rlx_core.cli.commands import COMMANDS

pytestmark = pytest.mark.every_case

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "debug-a-compilation.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```(toml)?\n(.*?)```", re.DOTALL)


def scenes() -> list[tuple[str, str]]:
    """Each command that is executed, and the configuration that was last said before it."""
    found, config = [], ""
    for kind, text in BLOCK.findall(PAGE):
        if kind:
            config = text
        found += [
            (line.strip().removeprefix("$ rlx "), config)
            for line in text.splitlines()
            if line.strip().startswith("$ rlx ")
        ]
    return found


@pytest.mark.parametrize(("command", "config"), scenes(), ids=[command for command, _ in scenes()])
def test_a_command_of_the_page_works(acme, command, config) -> None:
    lines = [line.removeprefix("   ") for line in config.splitlines()]
    (acme.place / "rlx.toml").write_text("\n".join(['target = "toy"', *lines]))
    acme.install("kernels", KERNELS)
    ran = acme(*shlex.split(command))
    assert (ran.code, ran.err) == (0, "")


# Softmax has a kernel for f32 alone, as in the page's story.
KERNELS = """
    from rlx_core.ops.softmax import Softmax
    from rlx_core.pipeline.kernels import KernelTable

    table = KernelTable("toy", plugin="kernels")
    table.register(Softmax, dtypes="f32")(lambda op, x, *, out, workspace: None)

    @hookimpl
    def rlx_kernels():
        return [KernelSpec("toy", table)]
"""


def test_every_command_in_the_table_exists() -> None:
    asked = {words.split()[0] for words in re.findall(r"`rlx ([a-z][^`]*)`", PAGE)}
    assert asked <= {spec.name for spec in COMMANDS}


def test_the_page_has_commands_to_run() -> None:
    assert len(scenes()) >= 3
