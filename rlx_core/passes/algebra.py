"""Algebraic simplification that is exact: every rule keeps every bit, for every dtype that it takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import DType, bool_, f16, f32, i8, i32
from rlx_core.ir.graph import Value
from rlx_core.ir.types import normalize_axis
from rlx_core.ops.arithmetic import maximum, minimum, pow
from rlx_core.ops.conversion import Cast, cast, conjugate
from rlx_core.ops.creation import zeros_like
from rlx_core.ops.kinds import Elementwise
from rlx_core.ops.movement import Concat, Narrow
from rlx_core.ops.selection import Where
from rlx_core.ops.structural import Expand, Reshape, Transpose, expand, reshape, transpose
from rlx_core.passes.engine.patterns import scalar_of, some
from rlx_core.passes.engine.predicates import is_integer, is_not_complex
from rlx_core.passes.engine.rules import Match, RewriteRule, rewrite, ruleset
from rlx_core.passes.joined_slices import whole_of_slices


@ruleset("algebra")
def algebra(x: Any, a: Any, b: Any, p: Any, q: Any, s: Any, t: Any, axis: Any, n: Any) -> Iterator[RewriteRule]:
    """Identities that hold for every value, NaN, infinities and signed zeros included."""
    yield rewrite("neg-neg", -(-x)).to(x)
    yield rewrite("conj-conj", conjugate(conjugate(x))).to(x)
    # A complex product with 1 is not the identity: (inf + 0i)·(1 + 0i) has a NaN part.
    yield rewrite("mul-one", x * 1).to(x).when(is_not_complex)
    yield rewrite("div-one", x / 1).to(x).when(is_not_complex)
    yield rewrite("sub-zero", x - 0).to(x)
    yield rewrite("pow-one", pow(x, 1)).to(x).when(is_not_complex)
    yield rewrite("max-same", maximum(x, x)).to(x)
    yield rewrite("min-same", minimum(x, x)).to(x)
    yield rewrite("int-add-zero", x + 0).to(x).when(is_integer)
    yield rewrite("int-mul-zero", x * 0).to(zeros_of).when(is_integer)
    yield rewrite("int-sub-same", x - x).to(zeros_of).when(is_integer)

    same = rewrite("cast-same", some(Cast, to=a)(x)).to(lambda x, a: x if x.dtype is a else None)
    yield same.sampled(x="f32[3]", a=f32)
    merged = rewrite("cast-cast", some(Cast, to=b)(some(Cast, to=a)(x))).to(merge_casts).sharing()
    yield merged.sampled(x="i8[9]", a=f32, b=f16).sampled(x="f16[16]", a=f32, b=i8).sampled(x="u8[5]", a=i32, b=i8)

    identity = rewrite("transpose-identity", some(Transpose, perm=p)(x)).to(drop_transpose)
    yield identity.sampled(x="f32[2, 3]", p=(0, -1))
    transposes = rewrite("transpose-transpose", some(Transpose, perm=q)(some(Transpose, perm=p)(x))).to(merge_perms)
    yield (
        transposes.sharing()
        .sampled(x="f32[2, 3, 4]", p=(2, 0, 1), q=(-1, 1, 0))
        .sampled(x="f32[2, 3]", p=(1, 0), q=(1, 0))
    )
    unshaped = rewrite("reshape-identity", some(Reshape, new_shape=s)(x)).to(unchanged)
    yield unshaped.sampled(x="f32[2, 3]", s=(2, -1))
    reshaped = rewrite("reshape-reshape", some(Reshape, new_shape=t)(some(Reshape, new_shape=s)(x))).to(reshape_once)
    yield reshaped.sharing().sampled(x="f32[2, 3]", s=(6,), t=(3, -1))
    unexpanded = rewrite("expand-identity", some(Expand, target=s)(x)).to(unchanged)
    yield unexpanded.sampled(x="f32[2, 3]", s=(-1, 3))
    expanded = rewrite("expand-expand", some(Expand, target=t)(some(Expand, target=s)(x))).to(expand_once)
    yield expanded.sharing().sampled(x="f32[3]", s=(2, 3), t=(4, 2, 3)).sampled(x="f32[1, 3]", s=(1, 3), t=(2, -1))
    no_change = rewrite("narrow-identity", some(Narrow, axis=axis, start=0, length=n, step=1)(x)).to(unchanged)
    yield no_change.sampled(x="f32[4]", axis=0, n=4)
    sliced = rewrite("narrow-narrow", Narrow).to(merge_narrows)
    yield sliced.sampled(x="f32[12]", make=lambda x: Narrow(0, 1, 2, 2)(Narrow(-1, 1, 5, 2)(x)))
    part = rewrite("narrow-of-concat", Narrow).to(narrow_of_concat)
    yield part.sampled(x="f32[3]", a="f32[4]", make=lambda x, a: Narrow(0, 4, 2)(Concat(0)(x, a)))
    alone = rewrite("concat-of-one", Concat).to(lambda match: match.operands[0] if len(match.operands) == 1 else None)
    yield alone.sampled(x="f32[3]", make=lambda x: Concat(0)(x))
    joined = rewrite("concat-of-slices", Concat).to(whole_of_slices)
    yield joined.sampled(x="f32[6]", make=lambda x: Concat(0)(Narrow(0, 1, 2)(x), Narrow(-1, 3, 3)(x))).sampled(
        x="f32[2, 16]", a="f32[2, 1]", make=lambda x, a: Concat(1)(*(a - -Narrow(1, i, 8)(x) for i in (0, 8)))
    )

    yield rewrite("where-same", Where()(x, a, a)).to(broadcast_a).sampled(x="bool[2, 1]", a="f32[3]")
    chosen = rewrite("where-constant", Where()(x, a, b)).to(chosen_branch)
    yield chosen.sampled(a="f32[3]", b="f32[2, 1]", make=lambda a, b: Where()(np.True_, a, b))

    around = rewrite("transposes-around", Transpose).to(transpose_around_elementwise)
    yield around.sampled(x="f32[2, 3]", make=lambda x: transpose(-transpose(x, (1, 0)), (1, 0)))


def unchanged(x: Value, match: Match) -> Value | None:
    """A movement whose result has its operand's type is the identity (a transposition is decided by its axes instead)."""
    return x if x.type == match.root.types[0] else None


def reshape_once(x: Value, match: Match) -> Value:
    return reshape(x, match.root.types[0].shape)


def expand_once(x: Value, match: Match) -> Value:
    return expand(x, match.root.types[0].shape)


def broadcast_a(a: Value, match: Match) -> Value:
    return broadcast(a, match)


def zeros_of(match: Match) -> Value:
    first = match.operands[0]
    assert first is not None, "arithmetic has its operands"
    return broadcast(zeros_like(first), match)


def broadcast(x: Value, match: Match) -> Value:
    """`x` in the shape of the value that it replaces."""
    shape = match.root.types[0].shape
    return x if x.shape == shape else expand(x, shape)


# --------------------------------------------------------------------------------------------- casts


def holds_all_values(wide: DType, narrow: DType) -> bool:
    """Return whether every value of `narrow` is a value of `wide`, so that casting there and back loses nothing."""
    if wide is narrow or narrow is bool_:
        return True
    if narrow.is_complex:
        return wide.is_complex and wide.itemsize >= narrow.itemsize
    if narrow.is_integer:
        if wide.is_integer:
            bits = 8 * wide.itemsize - (wide.kind == "int")
            return 8 * narrow.itemsize - (narrow.kind == "int") <= bits and not (
                narrow.kind == "int" and wide.kind == "uint"
            )
        return wide.is_differentiable and 8 * narrow.itemsize - (narrow.kind == "int") <= mantissa(wide)
    parts = wide.component
    if not parts.is_float:
        return False
    return mantissa(parts) >= mantissa(narrow) and exponent(parts) >= exponent(narrow)


def mantissa(d: DType) -> int:
    """Significant bits, the hidden one included."""
    return {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}[d.component.name]


def exponent(d: DType) -> int:
    return {"f16": 5, "bf16": 8, "f32": 8, "f64": 11}[d.name]


def merge_casts(x: Value, a: DType, b: DType) -> Value | None:
    """One cast for two, where the middle holds all values and the way out is the same.

    u8 → f32 → i8 saturates where u8 → i8 wraps; so an integer that leaves through a float must fit where it goes.
    """
    if not holds_all_values(a, x.dtype):
        return None
    leaves_through_float = x.dtype.is_integer and not a.is_integer and b.is_integer
    if leaves_through_float and not holds_all_values(b, x.dtype):
        return None
    return x if x.dtype is b else cast(x, to=b)


# ------------------------------------------------------------------------------------------ movement


def axes_of(perm: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(normalize_axis(p, len(perm)) for p in perm)


def drop_transpose(x: Value, p: tuple[int, ...]) -> Value | None:
    return x if axes_of(p) == tuple(range(x.ndim)) else None


def merge_perms(x: Value, p: tuple[int, ...], q: tuple[int, ...]) -> Value:
    inner, outer = axes_of(p), axes_of(q)
    both = tuple(inner[i] for i in outer)
    return x if both == tuple(range(x.ndim)) else transpose(x, both)


def merge_narrows(match: Match) -> Value | None:
    """A slice of a slice along the same axis is one slice."""
    outer, value = match.root.op, match.root.operands[0]
    assert isinstance(outer, Narrow)
    assert value is not None
    inner = value.node.op
    if not isinstance(inner, Narrow) or normalize_axis(inner.axis, value.ndim) != normalize_axis(
        outer.axis, value.ndim
    ):
        return None
    source = value.node.operands[0]
    assert source is not None
    start = inner.start + outer.start * inner.step
    return Narrow(inner.axis, start, outer.length, inner.step * outer.step)(match.new(source))


def narrow_of_concat(match: Match) -> Value | None:
    """A slice that lies inside one part of a concatenation is a slice of that part."""
    outer, value = match.root.op, match.root.operands[0]
    assert isinstance(outer, Narrow)
    assert value is not None
    joined = value.node.op
    if not isinstance(joined, Concat) or outer.step != 1 or not isinstance(outer.start, int):
        return None
    axis = normalize_axis(outer.axis, value.ndim)
    if normalize_axis(joined.axis, value.ndim) != axis or not isinstance(outer.length, int):
        return None
    begin = 0
    for part in value.node.present():
        size: Dim = part.shape[axis]
        if not isinstance(size, int):
            return None
        if begin <= outer.start and outer.start + outer.length <= begin + size and outer.length > 0:
            inside = match.new(part)
            is_whole = outer.length == size
            return inside if is_whole else Narrow(axis, outer.start - begin, outer.length)(inside)
        begin += size
    return None


def transpose_around_elementwise(match: Match) -> Value | None:
    """transpose(f(transpose(x))) is f(x) where the permutations cancel and f works element by element."""
    outer, middle = match.root.op, match.root.operands[0]
    assert isinstance(outer, Transpose)
    assert middle is not None
    if not isinstance(middle.node.op, Elementwise | Cast) or len(middle.node.operands) != 1:
        return None
    if len(match.graph.uses[middle]) > 1 or middle in match.graph.output_set:
        return None
    first = middle.node.operands[0]
    if first is None or not isinstance(first.node.op, Transpose) or first.node.operands[0] is None:
        return None
    inner = axes_of(first.node.op.perm)
    if tuple(inner[i] for i in axes_of(outer.perm)) != tuple(range(len(inner))):
        return None
    return middle.node.op(match.new(first.node.operands[0]))


def chosen_branch(x: Value, a: Value, b: Value, match: Match) -> Value | None:
    """A condition that is the same constant everywhere chooses one branch."""
    condition = scalar_of(match["x"])
    if condition is None:
        return None
    return broadcast(a if bool(condition) else b, match)
