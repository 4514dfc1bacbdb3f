"""Phases: what may start early, and what comes after the heavy work."""

from __future__ import annotations

from typing import ClassVar

from rlx_core.ir.graph import Builder
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import TensorType, spec
from rlx_core.ops.arithmetic import add, negative
from rlx_core.pipeline.planning.phases import phases


@define_op(domain="test")
class Heavy(Op):
    """An op of the family that products belong to."""

    category: ClassVar = "compute"

    def infer(self, x: TensorType) -> TensorType:
        return x


@define_op(domain="test")
class Draw(Op):
    """A sampler."""

    category: ClassVar = "movement"
    is_sampler: ClassVar = True

    def infer(self, x: TensorType) -> TensorType:
        return x


def listed(make) -> list[str]:
    builder = Builder()
    make(builder.input("x", spec("f32[4]")))
    return list(phases(builder.nodes).values())


def test_leaves_are_the_prologue_and_what_follows_the_last_computation_the_epilogue():
    assert listed(lambda x: negative(Heavy()(negative(x)))) == [
        "prologue",
        "steady-state",
        "steady-state",
        "epilogue",
    ]


def test_a_sampler_is_epilogue_wherever_it_stands():
    assert listed(lambda x: Heavy()(Draw()(x))) == ["prologue", "epilogue", "steady-state"]


def test_what_follows_the_last_sampler_is_epilogue():
    assert listed(lambda x: negative(Draw()(negative(x)))) == ["prologue", "steady-state", "epilogue", "epilogue"]


def test_a_program_without_heavy_work_is_steady():
    assert listed(lambda x: add(x, x)) == ["prologue", "steady-state"]
