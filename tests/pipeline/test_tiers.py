"""Which steps run on the best tier, and why the others do not, in the words of the rows that refused them."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

from rlx_core.ir.graph import Builder, building
from rlx_core.ir.lir import Lir
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp, log, tanh
from rlx_core.pipeline.backend import Target
from rlx_core.pipeline.config.records import DispatchConfig
from rlx_core.pipeline.dispatch import supports
from rlx_core.pipeline.kernels import Condition, Kernel, KernelTable
from rlx_core.pipeline.planning.planner import make_lir
from rlx_core.pipeline.tiers import tiers_of


def run(op, x, *, out, workspace) -> None:
    """Nothing is run here."""


EIGHT = Condition("eight elements", lambda node: node.type.size == 8, lambda node: f"8 elements, not {node.type.size}")


@pytest.fixture
def target() -> Target:
    """Fast kernels for exp and log of eight f32, slow ones for everything."""
    table = KernelTable("toy")
    f32 = frozenset({spec("f32[]").dtype})
    table.merge(
        Kernel(f"fast_{f.op.name}", f.op, run, dtypes=f32, when=(EIGHT,), tier="fast", priority=1) for f in (exp, log)
    )
    table.merge(Kernel(f"slow_{f.op.name}", f.op, run) for f in (exp, log, tanh))
    return Target("toy", table, tiers=("fast", "slow"))


def plan(target: Target, *types: str) -> Lir:
    builder = Builder("main")
    with building(builder):
        inputs = [builder.input(f"x{i}", spec(t)) for i, t in enumerate(types)]
        results = [f(x) for x in inputs for f in (exp, log, tanh)]
    return make_lir(builder.finish(results), target)


def test_every_step_is_counted_and_every_lower_one_has_its_reason(target) -> None:
    found = tiers_of(plan(target, "f32[8]", "f32[9]", "f64[8]"), target)

    assert found is not None
    assert found.counts == {"fast": 2, "slow": 7}
    assert found.summary == "2 of 9 steps fast, 7 slow"
    assert list(found.lines()) == [
        "3 tanh: no fast kernel for it",
        "1 exp: fast_rlx.exp needs 8 elements, not 9",
        "1 log: fast_rlx.log needs 8 elements, not 9",
        "1 exp: fast_rlx.exp takes f32, not f64",
        "1 log: fast_rlx.log takes f32, not f64",
    ]
    assert sorted(n for f in found.to_json()["fallbacks"] for n in f["steps"]) == [2, 3, 4, 5, 6, 7, 8]


def test_a_tier_between_is_counted_and_is_no_fallback(target) -> None:
    target = evolve(target, tiers=("fast", "library", "slow"))
    target.kernels.merge([Kernel("library_tanh", tanh.op, run, priority=1, tier="library")])
    found = tiers_of(plan(target, "f32[8]", "f32[9]"), target)

    assert found is not None
    assert found.summary == "2 of 6 steps fast, 2 library, 2 slow"
    assert {f.op for f in found.fallbacks} == {"rlx.exp", "rlx.log"}


def test_a_row_of_a_tier_that_the_target_has_not_is_of_the_last(target) -> None:
    target = evolve(target, tiers=("slow",))
    found = tiers_of(plan(target, "f32[8]"), target)

    assert found is not None
    assert found.counts == {"slow": 3}
    assert found.fallbacks == ()


def test_a_slow_kernel_that_comes_first_is_the_reason(target) -> None:
    target.kernels.merge([Kernel("mine", exp.op, run, priority=2)])
    found = tiers_of(plan(target, "f32[8]"), target)
    assert found is not None
    assert "1 exp: mine comes before the fast kernels" in found.lines()


@define_op(domain="test")
class Chained(Op):
    """exp(f(x)), with a meaning of its own that a slow row may run."""

    inner: str = "log"

    def infer(self, x):
        return x

    def reference(self, x):
        return np.exp(getattr(np, self.inner)(x))

    def decompose(self, x):
        return exp({"log": log, "tanh": tanh}[self.inner](x))


@define_op(domain="test")
class Outer(Op):
    """A call of `Chained`, so that it takes two rounds."""

    def infer(self, x):
        return x

    def decompose(self, x):
        return Chained()(x)


@pytest.mark.parametrize(
    ("op", "type", "priority", "means"),
    [
        (Chained(), "f32[8]", -1, "common-ir"),
        (Outer(), "f32[8]", -1, "common-ir"),
        (Chained("tanh"), "f32[8]", -1, "native"),  # tanh is slow: two slow steps would replace one
        (Chained(), "f32[9]", -1, "native"),  # so are exp and log of nine
        (Chained(), "f32[8]", 0, "native"),  # somebody registered a kernel for it and meant it
    ],
)
def test_a_kernel_that_stands_back_gives_way_to_a_decomposition_that_is_fast_throughout(
    target, op, type, priority, means
) -> None:
    target.kernels.merge([Kernel("meaning", Op, run, priority=-2), Kernel("own", Chained, run, priority=priority)])
    answer = supports(target, op, [spec(type)])

    assert answer.means == means
    if means == "common-ir":
        assert answer.reason.startswith("all of its decomposition has fast kernels, ")
        assert answer.reason.endswith(" is slow")


@pytest.mark.parametrize(
    ("tiers", "policy"), [((), "prefer-native"), (("slow",), "prefer-native"), (("fast", "slow"), "force-native")]
)
def test_without_a_better_tier_or_when_kernels_are_forced_the_kernel_stays(target, tiers, policy) -> None:
    target.kernels.merge([Kernel("own", Chained, run, priority=-1)])
    answer = supports(evolve(target, tiers=tiers), Chained(), [spec("f32[8]")], DispatchConfig(policy=policy))

    assert (answer.means, answer.kernel) == ("native", "own")


def test_a_target_with_one_tier_says_why_there_is_no_better_one(target) -> None:
    slow = KernelTable("toy")
    slow.merge(row for row in target.kernels if row.tier is None)
    alone = evolve(target, kernels=slow, tiers=("slow",), properties={"why": "no llvm"})
    found = tiers_of(plan(alone, "f32[8]"), alone)
    assert found is not None
    assert found.summary == "3 of 3 steps slow (no llvm)"
    assert not found.fallbacks


def test_a_target_without_tiers_has_nothing_to_tell(target) -> None:
    assert tiers_of(plan(target, "f32[8]"), evolve(target, tiers=())) is None
