"""The reducer, on a bug that was planted: a plugin's kernel for one op gives a wrong result for rows of a certain length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rlx_cpu", reason="it compiles for the CPU: rlx-cpu is not installed")

import rlx_cpu.plugin
from rlx_core.contributions import KernelSpec
from rlx_core.hooks import hookimpl
from rlx_core.ir.graph import Builder, building
from rlx_core.ir.types import spec
from rlx_core.ops.activation import tanh
from rlx_core.ops.arithmetic import add, multiply
from rlx_core.ops.movement import Flip
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.plugins import PluginHost
from rlx_core.testing.fuzz import FuzzSetup, complaint, reduced
from rlx_core.testing.generate import Generated
from rlx_core.testing.kept import read_case, write_case

planted = KernelTable("cpu", plugin="acme")


@planted.register(Flip, priority=50)
def flip_but_not_quite(op: Any, x: np.ndarray, *, out: np.ndarray, workspace: Any) -> None:
    """Right but for the last element of axes longer than two."""
    out[...] = np.flip(x, op.axes)
    if max(x.shape, default=0) > 2:
        out.flat[-1] += 1


class Acme:
    @hookimpl
    def rlx_kernels(self) -> list[KernelSpec]:
        return [KernelSpec("cpu", planted)]


FUZZ_SETUPS = (FuzzSetup("with acme", {"use": "none"}),)


def program() -> Generated:
    """Some twenty nodes, one of which meets the planted kernel."""
    rng = np.random.default_rng(0)
    builder = Builder("planted")
    with building(builder):
        x, y = (builder.input(n, spec("f32[5, 8]")) for n in "xy")
        w = builder.param("w", spec("f32[5, 8]"))
        h = tanh(add(multiply(x, w), y))
        for _ in range(4):
            h = add(tanh(h), multiply(h, 0.5))
        turned = Flip(axes=(1,))(h)
        after = add(multiply(turned, y), h)
        graph = builder.finish([add(after, 1.0), multiply(h, x), tanh(y)])
    return Generated(graph, {n: rng.uniform(-1, 1, (5, 8)).astype("f4") for n in "xyw"}, {"x": 1})


@pytest.mark.medium
def test_a_planted_bug_is_reduced_to_its_one_node_and_kept(tmp_path: Path) -> None:
    host = PluginHost([rlx_cpu.plugin, Acme()])
    failing = program()
    assert complaint(failing, FUZZ_SETUPS, host=host) is not None
    assert complaint(failing, FUZZ_SETUPS, host=PluginHost([rlx_cpu.plugin])) is None

    smallest, why = reduced(failing, FUZZ_SETUPS, host=host)

    assert [n.op.name for n in smallest.graph.nodes if not n.is_leaf] == ["rlx.flip"]
    assert len(smallest.graph.outputs) == 1
    assert sum(int(t.size) for t in smallest.graph.input_types.values()) <= 5
    assert "output 0" in why
    kept = read_case(write_case(tmp_path, "planted", smallest, why))
    assert kept.graph == smallest.graph
    assert complaint(kept, FUZZ_SETUPS, host=host) == why
