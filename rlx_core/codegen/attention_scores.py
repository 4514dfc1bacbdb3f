"""Attention scores from products of queries and keys, in the loop language, and the layouts of all operands of attention.

This is the only definition: scale, cap, bias, then hidden keys are -inf. Every target prints it as it prints an epilogue,
together with the derivative of the cap.
"""

from __future__ import annotations

from functools import cached_property
from math import inf

import numpy as np
from attrs import astuple, field

from rlx_core.codegen.attention import AttentionProblem, HeadStrides, ScoresStrides
from rlx_core.codegen.loops import Apply, Bound, Buffer, Const, Index, Kernel, Load, Scalar
from rlx_core.codegen.places import Layout, Place
from rlx_core.ir.dtypes import DType, bool_, f32, i64
from rlx_core.ir.immediate import evaluate
from rlx_core.ir.op import Op
from rlx_core.ops.activation import tanh
from rlx_core.ops.arithmetic import add, divide, multiply, subtract
from rlx_core.ops.attention import AttentionBackward
from rlx_core.ops.attention_scores import AttentionOp, EmptyRow
from rlx_core.ops.comparison import greater_equal, less, less_equal
from rlx_core.ops.conversion import Cast
from rlx_core.ops.selection import Where
from rlx_core.system.records import define, frozen

BATCH, HEAD, QUERY, KEY = range(4)
"""The axes of scores."""


@frozen
class ScoreTransform:
    """The transformation of a product of a query and a key to a score.

    Attributes:
        kernel: Over batch entries, heads, queries and keys; it stores nothing.
        element: The value that is the product; a `Const` stands in its place.
        score: The value that is the score; -inf where the key is hidden.
        slope: The value that is ∂(capped score)/∂(scaled product), or `None` without a cap.
    """

    kernel: Kernel
    element: int
    score: int
    slope: int | None


@frozen
class PlacedAttention:
    """One `Attention` or `AttentionBackward` and where its buffers lie: its operands, absent ones counted, and its results."""

    problem: AttentionProblem
    layout: Layout

    @classmethod
    def of(cls, op: AttentionOp, layout: Layout) -> PlacedAttention:
        return cls(AttentionProblem.of(op, layout), layout)

    @property
    def op(self) -> AttentionOp:
        return self.problem.op

    @property
    def is_backward(self) -> bool:
        return isinstance(self.op, AttentionBackward)

    @property
    def mask(self) -> int:
        """The number of the operand that is the mask, which may be absent; the bias follows it."""
        return self.op.mask_operand

    @property
    def has_mask(self) -> bool:
        return self._has(self.mask)

    @property
    def has_bias(self) -> bool:
        return self._has(self.mask + 1)

    @property
    def lengths(self) -> int | None:
        """The number of the operand that has the numbers of valid keys, or `None` without one."""
        number = self.mask + 2
        return number if self._has(number) else None

    @property
    def dtype(self) -> DType:
        """Dtype of scores and sums."""
        return self.problem.dtype

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Batch entries, query heads, queries and keys: the axes of scores."""
        p = self.problem
        return p.batch, p.heads, p.queries, p.keys

    @property
    def features(self) -> int:
        """Features of queries and keys."""
        return self.problem.features

    @property
    def width(self) -> int:
        """Features of values and of the result."""
        return self.problem.width

    @property
    def kv_heads(self) -> int:
        return self.problem.kv_heads

    @property
    def sharing(self) -> int:
        """Query heads to a head of keys and values."""
        return self.problem.heads // self.problem.kv_heads

    @property
    def offset(self) -> int | None:
        """With it, query i sees no key after i + offset; `None` also with lengths, which are read at run time."""
        _, _, queries, keys = self.sizes
        return keys - queries if self.is_positional and self.lengths is None else None

    @property
    def is_positional(self) -> bool:
        """Whether a query sees no key after its own position."""
        return self.op.mask_kind in ("causal", "sliding_window")

    @property
    def may_hide(self) -> bool:
        """Whether a query can be left without a visible key."""
        return self.is_positional or self.lengths is not None or self.has_mask or self.has_bias

    @property
    def empty_row(self) -> EmptyRow:
        """The result for a query that sees no key. If no key can be hidden, a softmax of scores that are all -inf is NaN."""
        if not self.sizes[KEY]:
            return "zero"
        return self.op.empty_row if self.may_hide else "nan"

    def place(self, number: int) -> Place:
        """An operand or result that there is."""
        placed = (*self.layout.operands, *self.layout.results)[number]
        assert placed is not None, f"buffer {number} of {self.op.name} is there"
        return placed

    def _has(self, number: int) -> bool:
        operands = self.layout.operands
        return number < len(operands) and operands[number] is not None

    def head_strides(self, number: int) -> HeadStrides:
        """Return the strides of an operand or result that has heads."""
        of_keys = (1, 2, len(self.layout.operands) + 1, len(self.layout.operands) + 2)
        heads = self.op.kv_heads if number in of_keys else self.op.num_heads
        return HeadStrides.of(self.place(number), self.op.layout, heads)

    def __str__(self) -> str:
        additions = ["mask"] * self.has_mask + ["bias"] * self.has_bias + ["lengths"] * (self.lengths is not None)
        return f"{self.problem} with {' and '.join(additions)}" if additions else str(self.problem)

    def run(self, *operands: np.ndarray | None) -> tuple[np.ndarray, ...]:
        """The results by NumPy, in f64."""
        wide = [x.astype(np.float64) if x is not None and x.dtype.kind not in "bi" else x for x in operands]
        results = evaluate(self.op, wide)
        places = self.layout.results
        return tuple(np.asarray(y).astype(p.type.dtype.numpy) for y, p in zip(results, places, strict=True))

    @cached_property
    def buffers(self) -> tuple[Buffer, ...]:
        """Return operands, then results; a kernel that stores a result marks it as written."""
        operands = [
            Buffer(f"x{i}", p.type.dtype, alignment=p.alignment) if p else Buffer(f"x{i}", f32)
            for i, p in enumerate(self.layout.operands)
        ]
        results = [Buffer(f"y{i}", p.type.dtype, alignment=p.alignment) for i, p in enumerate(self.layout.results)]
        return (*operands, *results)

    @cached_property
    def scores(self) -> ScoreTransform:
        """The transformation of products to scores."""
        return _Builder(self).scores()


def length_stride(place: Place) -> int:
    """Return the stride of lengths along the batch in bytes; 0 for a single length."""
    return place.strides[0] if place.strides and place.type.shape[0] != 1 else 0


@define(eq=False)
class _Builder:
    """The values of a score, one after the other."""

    problem: PlacedAttention
    values: list[Scalar] = field(factory=list)

    @property
    def dtype(self) -> DType:
        return self.problem.dtype

    def add(self, value: Scalar) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def number(self, number: float, dtype: DType | None = None) -> int:
        return self.add(Const(dtype or self.dtype, number))

    def apply(self, op: Op, *args: int, dtype: DType | None = None) -> int:
        return self.add(Apply(dtype or self.dtype, op, args))

    def loaded(self, number: int, *, is_mask: bool) -> int:
        place = self.problem.place(number)
        dtype = place.type.dtype
        strides = astuple(ScoresStrides.of(place, is_mask=is_mask), recurse=False)
        value = self.add(Load(number, dtype, strides))
        if dtype is bool_ or not dtype.is_narrow:
            return value
        return self.apply(Cast(dtype.accumulator), value, dtype=dtype.accumulator)

    def scores(self) -> ScoreTransform:
        p, op = self.problem, self.problem.op
        element = self.number(0.0)
        z = self.apply(multiply.op(), element, self.number(op.scale))
        slope = None
        if op.attn_logit_softcap is not None:
            cap = self.number(op.attn_logit_softcap)
            capped = self.apply(tanh.op(), self.apply(divide.op(), z, cap))
            z = self.apply(multiply.op(), capped, cap)
            slope = self.apply(subtract.op(), self.number(1.0), self.apply(multiply.op(), capped, capped))
        if p.has_bias:
            z = self.apply(add.op(), z, self.loaded(p.mask + 1, is_mask=False))
        for visible in self._visible():
            z = self.apply(Where(), visible, z, self.number(-inf))
        kernel = Kernel("scores", p.sizes, 4, p.buffers, tuple(self.values), ())
        return ScoreTransform(kernel, element, z, slope)

    def valid_keys(self, number: int) -> int:
        """The lengths, an operand, clamped to 0..keys."""
        loaded = self.add(Load(number, i64, (length_stride(self.problem.place(number)), 0, 0, 0)))
        return self.add(Bound(i64, loaded, self.problem.sizes[KEY] + 1, is_checked=False))

    def _visible(self) -> list[int]:
        """Conditions on a key, all of which must hold."""
        p, conditions = self.problem, []
        valid = None if p.lengths is None else self.valid_keys(p.lengths)
        if valid is not None and not p.is_positional:
            conditions.append(self.apply(less.op(), self.add(Index(i64, KEY)), valid, dtype=bool_))
        if p.is_positional:
            if valid is None:
                last = self.add(Index(i64, QUERY, offset=p.sizes[KEY] - p.sizes[QUERY]))
            else:
                last = self.apply(add.op(), self.add(Index(i64, QUERY, offset=-p.sizes[QUERY])), valid, dtype=i64)
            conditions.append(self.apply(less_equal.op(), self.add(Index(i64, KEY)), last, dtype=bool_))
            if p.op.window is not None:
                reach = self.add(Index(i64, KEY, offset=p.op.window))
                conditions.append(self.apply(greater_equal.op(), reach, last, dtype=bool_))
        if p.has_mask:
            mask = self.loaded(p.mask, is_mask=True)
            dtype = self.values[mask].dtype
            if dtype is not bool_:
                mask = self.apply(greater_equal.op(), mask, self.number(0.5, dtype), dtype=bool_)
            conditions.append(mask)
        return conditions
