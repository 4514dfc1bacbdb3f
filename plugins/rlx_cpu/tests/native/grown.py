"""Fused loops that nobody wrote: steps over operands of full, reduced and broadcast shapes, up to four of them results.

A seed is one kernel in every process. Sizes lie around those at which the printer changes its ways: vectors, strips of
vectors, blocks, chunks and tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from attrs import define, field, frozen

from rlx_core.ir.dtypes import DType, dtype
from rlx_core.ir.graph import Builder, Graph, Value, building
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.ops.activation import sqrt, tanh
from rlx_core.ops.arithmetic import abs, add, maximum, multiply, negative, subtract
from rlx_core.ops.fused_loop import FusedLoop
from rlx_core.ops.reduction import Max
from rlx_core.ops.samples import draw
from rlx_core.ops.structural import Sum, reshape, transpose
from rlx_core.passes.fuse.loops import group_of

__all__ = ["Grown", "grown"]

SHAPES = (
    *((1,), (5,), (67,), (4099,), (70001,)),
    *((3, 5), (17, 33), (64, 1), (1, 70), (40, 40), (130, 67), (300, 129), (3, 40001), (40001, 3), (20, 4100)),
    *((2, 7, 33), (3, 1, 65), (4, 16, 17), (9, 5, 300)),
)
KINDS = ("f32",) * 5 + ("f64", "f16", "bf16", "i32", "i64", "u8")
MOST_RESULTS = 4


@frozen(eq=False)
class Grown:
    """One fused loop and what it is run on."""

    op: Op
    operands: tuple[np.ndarray, ...]

    @property
    def name(self) -> str:
        shapes = " ".join(f"{dtype(x.dtype).name}{list(x.shape)}" for x in self.operands)
        return f"{self.op} on {shapes}"


def grown(seed: int) -> Grown:
    """The loop of a seed."""
    rng = np.random.default_rng([1, seed])
    shape = SHAPES[int(rng.integers(len(SHAPES)))]
    axes = tuple(a for a in range(len(shape)) if rng.random() < 0.5)
    growth = Growth(rng, dtype(str(rng.choice(KINDS))), shape, axes, Builder(f"seed{seed}"))
    return growth.finished()


@define(eq=False)
class Growth:
    """A loop being grown.

    Attributes:
        axes: What is reduced; nothing is where there are none.
        known: Values by form: `full`, `kept` (reduced axes of size 1), `flat` (without them), `line` (of size 1 elsewhere),
            `one` (a scalar), `turned` (axes in the other order).
    """

    rng: np.random.Generator
    kind: DType
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    builder: Builder
    known: dict[str, list[Value]] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        for form, most in (("full", 3), ("kept", 2), ("flat", 2), ("line", 1), ("one", 1), ("turned", 1)):
            least = int(form == "full")
            count = int(self.rng.integers(least, most, endpoint=True))
            is_there = bool(self.axes) or form not in ("kept", "flat")
            self.known[form] = [self._operand(form) for _ in range(count * is_there)]

    def _operand(self, form: str) -> Value:
        number = sum(map(len, self.known.values())) + len(self.builder.nodes)
        return self.builder.input(f"x{number}", TensorType(self.kind, self.dims(form)))

    def dims(self, form: str) -> tuple[int, ...]:
        """The dims of a form."""
        sizes = list(enumerate(self.shape))
        return {
            "full": self.shape,
            "kept": tuple(1 if a in self.axes else n for a, n in sizes),
            "flat": tuple(n for a, n in sizes if a not in self.axes),
            "line": tuple(n if a in self.axes else 1 for a, n in sizes),
            "one": (),
            "turned": self.shape[::-1],
        }[form]

    def finished(self) -> Grown:
        """Some steps, and some of their values as results."""
        made: list[Value] = []
        with building(self.builder):
            for _ in range(int(self.rng.integers(2, 10))):
                form, value = self._step()
                self.known[form].append(value)
                made.append(value)
        count = int(self.rng.integers(1, min(MOST_RESULTS, len(made)), endpoint=True))
        graph = self.builder.finish([made[i] for i in self.rng.permutation(len(made))[:count]])
        return looped(graph, self.rng)

    def _step(self) -> tuple[str, Value]:
        reducing: list[Callable[[], tuple[str, Value]]] = [self._reduced, self._reduced, self._small, self._turned]
        moves = [self._full, self._full, self._full, *(reducing if self.axes else ())]
        return moves[int(self.rng.integers(len(moves)))]()

    def _pick(self, *forms: str) -> tuple[str, Value] | None:
        """A value of one of these forms; what was made last is likelier, so that steps build on one another."""
        among = [(form, v) for form in forms for v in self.known[form]]
        if among and self.rng.random() < 0.3:
            return max(among, key=lambda found: found[1].node.index)
        return among[int(self.rng.integers(len(among)))] if among else None

    def _full(self) -> tuple[str, Value]:
        """An element-wise step on two operands of the same or of broadcast dims, or on a transposed one."""
        _, x = self._some("full")
        form, y = self._some("full", "kept", "line", "one", "turned")
        return "full", self._combined(x, transpose(y, range(len(self.shape))[::-1]) if form == "turned" else y)

    def _reduced(self) -> tuple[str, Value]:
        """A step that reduces; what is kept of the axes is left out as often as not."""
        _, x = self._some("full")
        keep = bool(self.rng.random() < 0.5)
        op = (Sum if self.rng.random() < 0.6 else Max)(self.axes, keep_dim=keep)
        return "kept" if keep else "flat", op(x)

    def _small(self) -> tuple[str, Value]:
        """A step on what was reduced."""
        found = self._pick("kept", "flat")
        if found is None:
            return self._reduced()
        form, x = found
        return form, self._combined(x, self._some(form)[1])

    def _turned(self) -> tuple[str, Value]:
        """One reduced form as the other."""
        found = self._pick("kept", "flat")
        if found is None:
            return self._reduced()
        other = "flat" if found[0] == "kept" else "kept"
        return other, self._changed(reshape(found[1], self.dims(other)))

    def _some(self, *forms: str) -> tuple[str, Value]:
        found = self._pick(*forms)
        assert found is not None, "there is a value of this form"
        return found

    def _combined(self, x: Value, y: Value) -> Value:
        way: Any = (add, subtract, maximum, multiply)[int(self.rng.integers(4))]
        return self._changed(way(x, y))

    def _changed(self, x: Value) -> Value:
        ways: list[Any] = [negative, abs] + [tanh, lambda v: sqrt(abs(v))] * self.kind.is_float
        return ways[int(self.rng.integers(len(ways)))](x) if self.rng.random() < 0.4 else x


def looped(graph: Graph, rng: np.random.Generator) -> Grown:
    """All steps of a graph as one fused loop."""
    group = group_of(graph, [n for n in graph.nodes if not n.is_leaf])
    assert isinstance(group.make, FusedLoop), "several nodes become a fused loop"
    return Grown(group.make, tuple(draw(rng, v.type, -2.0, 2.0) for v in group.inputs))
