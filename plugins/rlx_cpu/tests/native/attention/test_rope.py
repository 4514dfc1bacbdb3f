"""Rotary embedding: the bits of the decomposition, for every layout and style, and positions that the tables lack."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from exact import agrees, drawn
from harness import EVERY_WIDTH

import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core import nn
from rlx_core.errors import IndexRangeError
from rlx_core.ir.dtypes import dtype
from rlx_core.ops.rope import Rope, RopeBackward
from rlx_core.plugins import PluginHost
from rlx_core.testing.cases import OpProgram, programs
from rlx_cpu.native.attention.rope import emit_rope
from rlx_cpu.native.llvm.isa import Isa

HOST = PluginHost([rlx_cpu.plugin])
SAMPLES = [p for p in programs((Rope, RopeBackward)) if p.is_static]


@EVERY_WIDTH
@pytest.mark.parametrize("program", SAMPLES, ids=str)
def test_every_sample_is_turned_as_its_decomposition_says(program: OpProgram, isa: Isa) -> None:
    agrees(emit_rope, program.node.op, drawn(program), isa)


SHAPES = {"bsd": (2, 5, 3 * 70), "bshd": (2, 5, 3, 70), "bhsd": (2, 3, 5, 70)}


@pytest.mark.parametrize("name", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("style", ["half", "interleaved"])
@pytest.mark.parametrize("layout", SHAPES)
def test_heads_of_any_size_in_any_memory_order(layout: Any, style: Any, name: str) -> None:
    rng = np.random.default_rng(9)
    kind = dtype(name).numpy
    x = rng.standard_normal(SHAPES[layout]).astype(kind)
    angles = rng.uniform(-3, 3, (9, 35))
    cos, sin = np.cos(angles).astype(kind), np.sin(angles).astype(kind)
    positions = rng.integers(0, 9, (2, 5)).astype("i4")
    for op in (Rope(70, None, layout, style), RopeBackward(70, 34, layout, style)):
        agrees(emit_rope, op, [x, cos, sin])
        agrees(emit_rope, op, [np.asfortranarray(x), cos[:, ::-1], np.asfortranarray(sin), positions[:, ::-1]])


def test_a_position_outside_the_tables_names_itself() -> None:
    def turn(x: Any, cos: Any, sin: Any, positions: Any) -> Any:
        return nn.rope(x, cos, sin, positions, head_dim=4)

    turned = rlx.jit(turn, host=HOST, target="cpu")
    x, table = np.ones((1, 2, 8), "f4"), np.ones((3, 2), "f4")
    with pytest.raises(IndexRangeError, match="rope: index 3 is outside an axis of 3 elements"):
        turned(x, table, table, np.array([[0, 3]]))

    assert turned(x, table, table * 0, np.array([[0, 2]])).tolist() == x.tolist()
