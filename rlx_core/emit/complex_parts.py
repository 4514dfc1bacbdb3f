"""Legalisation of complex arithmetic to real numbers, for targets without complex arithmetic: a table that their plugins offer.

Complex values are stored as they are everywhere, and read as pairs (`ViewAsReal`), at no cost. Each rule takes the parts of
its operands and returns a complex value made from the parts of its result. The next rule reads these parts
directly, so between two rules nothing is stored as complex. The formulas are in `rlx_core.codegen.complex_parts`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve

from rlx_core.codegen.complex_functions import FORMULAS
from rlx_core.codegen.complex_parts import EACH_PART, MEASURES, Parts, converted, of_parts
from rlx_core.ir.graph import Constant, Value, ambient_builder
from rlx_core.ir.op import Op
from rlx_core.ops import conversion
from rlx_core.ops.complex import MakeComplex, make_complex
from rlx_core.ops.linalg import MatMul
from rlx_core.ops.movement import Concat, concat, narrow
from rlx_core.ops.pairs.pairs import ViewAsComplex, view_as_complex, view_as_real
from rlx_core.ops.scatter import Scatter
from rlx_core.ops.structural import expand, reshape
from rlx_core.pipeline.dispatch import LegalizationTable


def parts(z: Value) -> Parts:
    """Return the parts of a complex value: the operands of the op that created it from parts, or slices of its memory."""
    op, operands = z.node.op, z.node.operands
    if isinstance(op, Constant):
        # Values: functions of arrays alone would be computed here and now, and be no nodes.
        array, builder = op.value.array, ambient_builder()
        assert builder is not None, "rules are applied inside a graph"
        return builder.constant(array.real.copy()), builder.constant(array.imag.copy())
    if isinstance(op, MakeComplex):
        return _spread(operands[0], z), _spread(operands[1], z)
    sides = _sides(operands[0]) if isinstance(op, ViewAsComplex) else []
    if sides:
        re, im = sides
        return reshape(re, z.shape), reshape(im, z.shape)
    pairs = view_as_real(z)
    re, im = (reshape(narrow(pairs, axis=z.ndim, start=k, length=1), z.shape) for k in (0, 1))
    return re, im


def _sides(pairs: Value | None) -> list[Value]:
    """Return the two concatenated parts, each with an axis of 1 for the side; empty if it was not built that way."""
    if pairs is None or not isinstance(pairs.node.op, Concat) or pairs.node.op.axis % pairs.ndim != pairs.ndim - 1:
        return []
    sides = list(pairs.node.present())
    return sides if [v.shape[-1] for v in sides] == [1, 1] else []


def _spread(part: Any, z: Value) -> Any:
    return part if part.shape == z.shape else expand(part, z.shape)


complex_parts = LegalizationTable("complex-parts")


def _takes_complex(operands: tuple[Value | None, ...]) -> bool:
    return any(v is not None and v.dtype.is_complex for v in operands)


def _formula(rule: Callable[..., Parts]) -> Callable[..., Any]:
    return lambda op, *x: make_complex(*rule(*map(parts, x))) if _takes_complex(x) else None


def _measure(rule: Callable[..., Any]) -> Callable[..., Any]:
    return lambda op, *x: rule(*map(parts, x)) if _takes_complex(x) else None


def _each_part(op: Op, *x: Value | None) -> Any:
    """The op of each part by itself, which a scatter that multiplies does not allow."""
    if not _takes_complex(x) or (isinstance(op, Scatter) and op.mode == "mul"):
        return None
    components = [parts(v) if v is not None and v.dtype.is_complex else (v, v) for v in x]
    return make_complex(*(part(*(v[k] for v in components)) for k, part in enumerate(of_parts(op))))


for _function, _rule in FORMULAS.items():
    complex_parts.register(_function.op)(_formula(_rule))
for _function, _rule in MEASURES.items():
    complex_parts.register(_function.op)(_measure(_rule))
for _op in EACH_PART:
    complex_parts.register(_op)(_each_part)


@complex_parts.register(MakeComplex)
def _made(op: Op, re: Value, im: Value) -> Any:
    """The parts side by side, read as complex."""
    shape = op.infer(re.type, im.type).shape  # type: ignore[misc]
    sides = (v if v.shape == shape else expand(v, shape) for v in (re, im))
    return view_as_complex(concat([reshape(v, (*shape, 1)) for v in sides], axis=len(shape)))


@complex_parts.register(conversion.Cast)
def _cast(op: conversion.Cast, x: Value) -> Any:
    if not (x.dtype.is_complex or op.to.is_complex):
        return None
    result = converted(op, parts(x) if x.dtype.is_complex else x)
    return make_complex(*result) if op.to.is_complex else result


@complex_parts.register(MatMul)
def _matmul(op: MatMul, a: Value, b: Value) -> Any:
    """Four products of parts."""
    if not a.dtype.is_complex:
        return None
    component_op = op if op.acc_dtype is None else evolve(op, acc_dtype=op.acc_dtype.component)
    (a_re, a_im), (b_re, b_im) = parts(a), parts(b)
    return make_complex(
        component_op(a_re, b_re) - component_op(a_im, b_im), component_op(a_re, b_im) + component_op(a_im, b_re)
    )
