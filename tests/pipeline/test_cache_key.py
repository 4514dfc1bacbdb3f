"""The name of a program in caches: whatever may change the result changes it, and nothing that was edited is found again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.pipeline.compile import prepare_job, set_up

pytest.importorskip("rlx_cpu", reason="it compiles for the CPU: rlx-cpu is not installed")


def program(x: Any) -> Any:
    return rlx.exp(x) + 1.0


def key(function: Any = program, type: str = "f32[4]", donations: Any = None, names: Any = None, **config: Any) -> str:
    """The name of a program, compiled as a configuration says."""
    plugins, configuration = set_up(config, None)
    graph = rlx.trace(function, rlx.spec(type))
    return prepare_job(graph, plugins, configuration, "cpu", donations or {}, names).key


def test_every_part_of_the_key_alone_makes_another_key() -> None:
    variants = {
        "as it is": key(),
        "another program": key(lambda x: rlx.exp(x) + 2.0),
        "another type": key(type="f64[4]"),
        "another pipeline": key(use="none"),
        "another policy": key(fusion={"enabled": False}),
        "another plan of memory": key(memory={"alignment": 256}),
        "an option of the target": key(options={"cpu.threads": 1}),
        "a donation": key(donations={"x": 0}),
        "names of outputs": key(names=["y"]),
    }

    assert len(set(variants.values())) == len(variants)


def test_a_key_depends_on_nothing_that_changes_no_program() -> None:
    same = [key(), key(printing={"verbose": True}), key(cache={"disk": False}), key(memory={}, fusion={})]

    assert len(set(same)) == 1


OPS = """
from rlx_core.ops import Op, define_op, op_function

@define_op(domain="acme")
class Grow(Op):
    def decompose(self, x):
        return x * {factor}

grow = op_function(Grow)
"""

RUN = """
import numpy as np, rlx_core as rlx
from acme_ops import grow

run = rlx.jit(lambda x: grow(x) + 1.0, target="cpu")
print(*run(np.float32([1, 2])).tolist(), run.report.cache)
"""


def run(folder: Path) -> str:
    """What another process computes, and where its program came from."""
    environment = {"PYTHONPATH": ":".join([str(folder), *sys.path]), "RLX_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-B", "-c", RUN], capture_output=True, text=True, check=True, env=environment, cwd=folder
    )
    return done.stdout.strip()


def write(folder: Path, where: str, factor: float) -> None:
    file = folder / where
    file.parent.mkdir(exist_ok=True)
    file.write_text(OPS.format(factor=factor))


@pytest.mark.medium
def test_an_edited_op_of_a_package_is_compiled_anew(tmp_path: Path) -> None:
    write(tmp_path, "acme_ops/__init__.py", 2.0)
    assert run(tmp_path) == "3.0 5.0 compiled"
    assert run(tmp_path) == "3.0 5.0 disk"

    write(tmp_path, "acme_ops/__init__.py", 10.0)
    assert run(tmp_path) == "11.0 21.0 compiled"


@pytest.mark.medium
def test_programs_with_an_op_of_a_lone_file_are_not_kept(tmp_path: Path) -> None:
    for factor, printed in ((2.0, "3.0 5.0 compiled"), (3.0, "4.0 7.0 compiled")):
        write(tmp_path, "acme_ops.py", factor)
        assert run(tmp_path) == printed


def test_an_op_that_is_defined_again_means_what_it_says_now() -> None:
    """As in a notebook, whose cells are run twice."""
    found = []
    for factor in (2.0, 3.0):
        cell: dict[str, object] = {"__name__": "__main__"}
        exec(OPS.format(factor=factor), cell)
        found.append(rlx.jit(cell["grow"], target="cpu")(np.float32([1, 2])).tolist())  # type: ignore[arg-type]

    assert found == [[2, 4], [3, 6]]
