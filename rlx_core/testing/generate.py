"""Random program generation: typed graphs grown from the ops' own samples, the same for a seed in every process.

A graph grows by *moves*: an op on the operand types of one of its samples, with other sizes and dtypes where its type rule
takes them, a chain of views, or a small program in loops, differentiated or batched. Operands are existing values of the graph,
adapted to the right shape, dtype and range, or new leaves. Every move is first tried outside of the graph, in float64: one whose
result is not finite, badly conditioned, or a choice that rounding could change (a comparison of near equals, say) is dropped.
So every output has a true value to be compared with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from attrs import field

from rlx_core.errors import RlxError
from rlx_core.ir.dtypes import dtype, f32, f64
from rlx_core.ir.graph import Builder, Graph, Value, as_results, building
from rlx_core.ir.interpret import interpret
from rlx_core.ir.mesh import OverNamedAxes
from rlx_core.ir.op import Op, operand_names
from rlx_core.ir.types import TensorType
from rlx_core.ops import standard_ops
from rlx_core.ops.samples import Sample
from rlx_core.system.records import define, frozen
from rlx_core.testing.adapt import led_to, viewed
from rlx_core.testing.nesting import Move, nested
from rlx_core.testing.parts import placed, wrapped
from rlx_core.testing.yardstick import Noise, precision

VERSION = 3
"""Version of the generator: increased when a seed would give another graph."""

SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 33, 64, 65)
"""Sizes that replace a dim of a sample: zero, one, and odd and even sizes around those of vectors."""

NESTED = 0.08
"""The share of ops that are nested in a loop or a conditional."""

PARTS = 0.12
"""The share of moves that insert a small program, in loops, differentiated or batched."""

MOST_ELEMENTS = 3000
LARGEST = 1e3  # values beyond this overflow f16 a product later
ILL_CONDITIONED = 2.0**-9  # an error of this share of the largest element is no evidence against a kernel
FLIP_MARGIN = 32  # times the expected error, within which no choice may turn


@frozen(eq=False)
class Generated:
    """A program with the arrays that it is run on.

    Attributes:
        graph: The program.
        fed: An array for every input and param, by name.
        donations: Donated input or param → the output that is its next value, if one is.
        seed: The seed of its generation; -1 for one that was read or reduced.
    """

    graph: Graph
    fed: Mapping[str, np.ndarray]
    donations: Mapping[str, int | None] = field(factory=dict)
    seed: int = -1

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        return {name: self.fed[name] for name in self.graph.input_types}

    @property
    def params(self) -> dict[str, np.ndarray]:
        return {name: self.fed[name] for name in self.graph.param_types}

    @property
    def steps(self) -> int:
        """Nodes that compute something."""
        return sum(not node.is_leaf for node in self.graph.nodes)


@frozen(eq=False)
class Known:
    """A value of the graph, its value in float64, and the expected error of a run."""

    value: Value
    array: np.ndarray
    error: float


@frozen(eq=False)
class GeneratedLeaf:
    """An operand that has to be made: an input, a param or a constant."""

    kind: str
    type: TensorType
    array: np.ndarray


def generate(seed: int, *, max_steps: int = 40) -> Generated:
    """The program of a seed, with 1 to `max_steps` nodes that compute something, and a few more around operands."""
    growth = Growth(np.random.default_rng([VERSION, seed]), Builder(f"seed{seed}"))
    # Half of the programs are small, so that many of them can be looked at; every size up to the most occurs.
    step_count = int(1 + (max_steps - 1) * growth.rng.random() ** 4)
    tries = 0
    while not growth.known or (growth.steps < step_count and tries < 12 * step_count):
        growth.grow()
        tries += 1
    return growth.finished(seed)


@cache
def pool() -> tuple[tuple[type[Op], tuple[Sample, ...]], ...]:
    """Return every op that has static samples and no randomness, with the samples; ops that give views twice."""
    result = []
    for op in standard_ops():
        samples = tuple(
            s
            for s in (op.samples() if op.samples is not None else ())
            if isinstance(s, Sample) and all(t is None or t.is_static for t in s.types)
        )
        # Collectives need the name of a mapped axis, which no generated program has.
        if samples and not op.is_sampler and not issubclass(op, OverNamedAxes):
            result += [(op, samples)] * (2 if op.view is not None else 1)
    return tuple(result)


@cache
def large() -> tuple[tuple[type[Op], tuple[Sample, ...]], ...]:
    """Return the ops of families with dedicated kernels, with their samples; parts often use these."""
    families = (
        "convolution",
        "pooling",
        "fourier",
        "random",
        "reduction",
        "products",
        "softmax",
        "scatter",
        "cumulative",
    )
    return tuple((op, samples) for op, samples in pool() if any(word in op.__module__ for word in families))


@define(eq=False)
class Growth:
    """A graph being grown."""

    rng: np.random.Generator
    builder: Builder
    is_part: bool = False
    known: list[Known] = field(factory=list)
    fed: dict[str, np.ndarray] = field(factory=dict)

    @property
    def steps(self) -> int:
        return sum(not node.is_leaf for node in self.builder.nodes)

    def grow(self) -> None:
        """Try one move."""
        if self.known and self.rng.random() < 0.2:
            source = self._pick(self.known)
            self._attempt(viewed(self.rng, source.value.type), [source])
            return
        if not self.is_part and self.rng.random() < PARTS:
            self._grow_part()
            return
        op, samples = self._pick(large() if self.is_part and self.rng.random() < 0.5 else pool())
        real = [s for s in samples if any(t is not None and t.dtype in (f32, f64) for t in s.types)]
        sample = self._varied(op, self._pick(real if real and self.rng.random() < 0.6 else samples))
        drawn = sample.arrays(op) if sample.make is not None else sample.drawn(op, self.rng)
        names = operand_names(op, len(sample.types))
        operands: list[Known | GeneratedLeaf] = []
        ways: list[Callable[[Value], Value] | None] = []
        for name, type, array in zip(names, sample.types, drawn, strict=True):
            if type is None:
                ways.append(None)
                continue
            reused = None
            if sample.make is None and self.known and self.rng.random() < 0.85:
                reused = self._reusable(type, sample.ranges.get(name, (sample.low, sample.high)))
            assert array is not None, "an operand that is there has an array"
            operands.append(reused[0] if reused else self._leaf(type, array))
            ways.append(reused[1] if reused else (lambda value: value))

        def move(values: Sequence[Value]) -> Any:
            remaining = iter(values)
            return op(**sample.attributes)(*(None if way is None else way(next(remaining)) for way in ways))

        self._attempt(nested(self.rng, move) if operands and self.rng.random() < NESTED else move, operands)

    def _grow_part(self) -> None:
        """Try a small program of new leaves, some of which become existing values."""
        inner = Growth(self.rng, Builder("part"), is_part=True)
        for _ in range(int(self.rng.integers(1, 6))):
            inner.grow()
        used = {v for node in inner.builder.nodes for v in node.present()}
        outputs = [k.value for k in inner.known if not k.value.node.is_leaf and k.value not in used]
        if not outputs or not inner.fed:
            return
        try:
            part = wrapped(self.rng, inner.builder.finish(outputs), inner.fed)
        except RlxError:
            return  # it cannot be differentiated, say
        operands: list[Known | GeneratedLeaf] = []
        ways: list[Callable[[Value], Value]] = []
        for name, type in part.graph.input_types.items():
            array = part.fed[name]
            limits = (float(array.min()), float(array.max())) if array.size and type.dtype.is_real else (-1.0, 1.0)
            reused = self._reusable(type, limits) if self.known and self.rng.random() < 0.3 else None
            operands.append(reused[0] if reused else self._leaf(type, array))
            ways.append(reused[1] if reused else (lambda value: value))

        def move(graph: Graph) -> Move:
            return lambda values: placed(graph)([way(value) for way, value in zip(ways, values, strict=True)])

        self._attempt(move(part.graph), operands, judged=move(part.flat))

    def finished(self, seed: int) -> Generated:
        """Return the graph: its outputs are all unused values, and some of the used ones too."""
        used = {v for node in self.builder.nodes for v in node.present()}
        results = [k.value for k in self.known if not k.value.node.is_leaf]
        outputs = [v for v in results if v not in used or self.rng.random() < 0.15][:12]
        if self.rng.random() < 0.1:
            outputs.append(self._pick(self.known).value)  # an input, or an output twice
        self.rng.shuffle(outputs)
        graph = self.builder.finish(outputs or [self.known[-1].value])
        return Generated(graph, self.fed, self._donations(graph), seed)

    # ------------------------------------------------------------------------------------- details

    def _pick(self, among: Sequence[Any]) -> Any:
        return among[int(self.rng.integers(len(among)))]

    def _varied(self, op: type[Op], sample: Sample) -> Sample:
        """The sample with other sizes and another float where the op's type rule accepts them, else as it is."""
        if sample.make is not None or self.rng.random() < 0.25:
            return sample
        dims = sorted({int(d) for t in sample.types if t is not None for d in t.shape})
        renamed = {d: int(self._pick(SIZES)) if self.rng.random() < 0.6 else d for d in dims}
        floats = sorted({t.dtype.name for t in sample.types if t is not None and t.dtype.is_float})
        kind = dtype(self._pick(("f32",) * 6 + ("f64", "f16", "bf16"))) if len(floats) == 1 else None
        model = self._model(sample) if self.rng.random() < 0.8 else None
        if model is not None:
            like, operand = model
            renamed |= dict(zip(map(int, operand.shape), map(int, like.shape), strict=True))
            kind = like.dtype if like.dtype.is_float and len(floats) == 1 else None

        def changed(type: TensorType | None) -> TensorType | None:
            if type is None:
                return None
            shape = tuple(renamed[int(d)] for d in type.shape)
            return TensorType(kind if kind is not None and type.dtype.is_float else type.dtype, shape)

        varied = sample.with_types([changed(t) for t in sample.types])
        return varied if is_accepted(op, varied) else sample

    def _model(self, sample: Sample) -> tuple[TensorType, TensorType] | None:
        """Return the type of an existing value, and an operand of the sample that could have it with other sizes."""
        value = self._recent().value if self.known else None
        fitting = [
            t
            for t in sample.types
            if t is not None
            and value is not None
            and t.rank == value.type.rank
            and (t.dtype is value.dtype or (t.dtype.is_float and value.dtype.is_float))
        ]
        return (value.type, self._pick(fitting)) if value is not None and fitting else None

    def _recent(self) -> Known:
        """A value of the graph; later ones are likelier, so that graphs grow deep as well as broad."""
        recent: Known = self.known[int(len(self.known) * math.sqrt(self.rng.random()))]
        return recent

    def _leaf(self, type: TensorType, array: np.ndarray) -> GeneratedLeaf:
        return GeneratedLeaf(self._pick(("input",) * 5 + ("param", "constant")), type, array)

    def _reusable(self, type: TensorType, limits: tuple[float, float]) -> tuple[Known, Callable[[Value], Value]] | None:
        """A value of the graph and how it becomes an operand of this type and range."""
        same = [k for k in self.known if k.value.type == type]
        for _ in range(6):
            source = self._pick(same) if same and self.rng.random() < 0.8 else self._recent()
            way = led_to(self.rng, source.value.type, source.array, type, limits)
            if way is not None:
                return source, way
        return None

    def _attempt(self, move: Move, operands: Sequence[Known | GeneratedLeaf], judged: Move | None = None) -> None:
        """Make the move if its result, or the result of an equal move `judged`, can be judged."""
        trial = Builder("trial")
        try:
            with building(trial):
                values = [
                    trial.constant(o.array)
                    if isinstance(o, GeneratedLeaf) and o.kind == "constant"
                    else trial.input(f"x{i}", o.type if isinstance(o, GeneratedLeaf) else o.value.type)
                    for i, o in enumerate(operands)
                ]
                graph = trial.finish(as_results((judged or move)(values)))
            judgement = self._judged(graph, {f"x{i}": o for i, o in enumerate(operands)})
        except (RlxError, FloatingPointError):
            return  # an index that varied sizes put outside, say
        if judgement is None:
            return
        with building(self.builder):
            results = as_results(move([self._placed(o) for o in operands]))
        for value, (array, error) in zip(results, judgement, strict=True):
            if value.node.owner is self.builder:
                self.known.append(Known(value, array, error))

    def _judged(
        self, graph: Graph, operands: Mapping[str, Known | GeneratedLeaf]
    ) -> list[tuple[np.ndarray, float]] | None:
        """Each result in float64 with the error to be expected; `None` if one of them cannot be judged."""
        types = [t for n in graph.nodes for t in n.types]
        if any(not t.is_static or math.prod(t.static_shape) > MOST_ELEMENTS for t in types):
            return None
        fed = {name: operands[name].array for name in graph.input_types}
        errors = {n: o.error if isinstance(o, Known) else 0.0 for n, o in operands.items() if n in fed}
        exact = interpret(graph, fed, mode="wide")
        if any(turned(a, b) for a, b in zip(interpret(graph, fed, mode="wide", rounded=kept), exact, strict=True)):
            return None  # values that differ in float64 are equal where they are kept, so a choice among them turns
        floats = {t.dtype for t in types if t.dtype.is_differentiable}
        moves_only = len(floats) == 1 and all(n.op.category == "movement" or n.is_leaf for n in graph.nodes)
        spread = [0.0] * len(exact)
        is_chain = sum(not n.is_leaf for n in graph.nodes) > 1
        noise = Noise(self.rng, FLIP_MARGIN) if is_chain and not moves_only else None
        for _ in range(2 if any(errors.values()) or noise else 0):
            moved = {
                n: a + errors[n] * FLIP_MARGIN * self.rng.choice([-1.0, 1.0], a.shape) if errors[n] else a
                for n, a in fed.items()
            }
            for i, (a, b) in enumerate(zip(interpret(graph, moved, mode="wide", rounded=noise), exact, strict=True)):
                if turned(a, b):
                    return None
                if a.dtype.kind in "biu":
                    continue
                if not np.isfinite(a).all():
                    return None
                if a.size:
                    spread[i] = max(spread[i], float(np.abs(a - b).max()) / FLIP_MARGIN)
        result: list[tuple[np.ndarray, float]] = []
        for value, array, moved_by in zip(graph.outputs, exact, spread, strict=True):
            kind = value.dtype
            if not kind.is_differentiable:
                if array.size and kind.is_integer and np.abs(array.astype(np.float64)).max() > 2**31:
                    return None
                result.append((array, 0.0))
                continue
            size = float(np.abs(array).max()) if array.size else 0.0
            if not np.isfinite(array).all() or size > LARGEST:
                return None
            narrowest = max(map(precision, floats))
            error = moved_by + (0.0 if moves_only else 4 * narrowest * size)
            if error > size * max(ILL_CONDITIONED, 32 * narrowest):
                return None
            result.append((array, error))
        return result

    def _placed(self, operand: Known | GeneratedLeaf) -> Value:
        if isinstance(operand, Known):
            return operand.value
        if operand.kind == "constant":
            value = self.builder.constant(operand.array)
        else:
            name = f"{operand.kind[0]}{len(self.fed)}"
            add = self.builder.param if operand.kind == "param" and not self.is_part else self.builder.input
            value = add(name, operand.type)
            self.fed[name] = operand.array
        self.known.append(Known(value, operand.array, 0.0))
        return value

    def _donations(self, graph: Graph) -> dict[str, int | None]:
        """Choose inputs and params to donate, most with an output of their type as their next value."""
        donations: dict[str, int | None] = {}
        taken: set[int] = set()
        for name, type in (*graph.input_types.items(), *graph.param_types.items()):
            if self.rng.random() < 0.2:
                fitting = [i for i, v in enumerate(graph.outputs) if v.type == type and i not in taken]
                donations[name] = fitting[0] if fitting else None
                taken.update(fitting[:1])
        return donations


def kept(value: Value, array: np.ndarray) -> np.ndarray:
    """Return the array rounded to the dtype of a value."""
    with np.errstate(over="ignore"):  # infinities are seen where the result is judged
        return array.astype(value.dtype.numpy).astype(array.dtype) if value.dtype.is_differentiable else array


def turned(actual: np.ndarray, exact: np.ndarray) -> bool:
    """Return whether a choice (of an index, say) came out otherwise."""
    return exact.dtype.kind in "biu" and not np.array_equal(actual, exact)


def is_accepted(op: type[Op], sample: Sample) -> bool:
    """Return whether the op's type rule takes a sample's types."""
    builder = Builder("types")
    try:
        with building(builder):
            op(**sample.attributes)(
                *(None if t is None else builder.input(f"x{i}", t) for i, t in enumerate(sample.types))
            )
    except RlxError:
        return False
    return True
