"""Transcendental functions on registers, as vector polynomials: in f32 and f64 where f32 has its own, through f64 where not.

Every function here is within 2 ulp (GELU: see `math.py`; the gamma family in f64: `wide_gamma.py`), right at infinities, NaN,
zeros and subnormals; tests measure each. Only angles that are huge go to the C library, a lane at a time. A function is
emitted once a module and width, privately.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx_core.ir.dtypes import DType, f32, f64
from rlx_core.ir.op import Op
from rlx_core.ops import activation, arithmetic, gamma, trigonometry
from rlx_cpu.native import ir
from rlx_cpu.native.build import DOUBLE, declare, per_lane, suffix, width
from rlx_cpu.native.idioms import gelu_slope

__all__ = ["OPS", "VECTOR", "call", "converting", "emitted", "library", "vector"]

Vector = Callable[..., ir.Value]

VECTOR: dict[tuple[type[Op], DType], Vector] = {}
"""Functions as vector code by op and dtype; `math.py` and the `wide` modules fill it."""


def vector(op: type[Op], dtype: DType = f32) -> Callable[[Vector], Vector]:
    """Register the decorated function as the code of `op` on registers of `dtype`."""

    def add(emit: Vector) -> Vector:
        VECTOR[op, dtype] = emit
        return emit

    return add


OPS: tuple[type[Op], ...] = (
    *(f.op for f in (activation.exp, activation.exp2, activation.expm1, activation.log, activation.log2)),
    *(f.op for f in (activation.log10, activation.log1p, activation.cbrt, activation.tanh)),
    *(f.op for f in (activation.erf, activation.erfc, activation.erfinv, gamma.lgamma, gamma.digamma)),
    *(f.op for f in (arithmetic.hypot, arithmetic.atan2, arithmetic.logaddexp)),
    *trigonometry.OPS,
)
"""The functions that there is code for; each has an f64 form at least."""

IDIOMS: tuple[type[Op], ...] = (activation.gelu.op, gelu_slope.op)
"""Composed functions with code of their own in f32, where `idioms.py` recognises their formula."""


def call(builder: ir.IRBuilder, op: type[Op], dtype: DType, args: tuple[ir.Value, ...]) -> ir.Value:
    """The function of `op` on registers of `dtype`."""
    form = dtype if (op, dtype) in VECTOR else f64
    return emitted(builder, op.name.rpartition(".")[2], VECTOR[op, form], dtype, form, args)


def emitted(
    builder: ir.IRBuilder, name: str, emit: Vector, dtype: DType, form: DType, args: tuple[ir.Value, ...]
) -> ir.Value:
    """A function on registers of `dtype`, by the code of its form in a dtype that is at least as wide."""
    if form is dtype:
        return builder.call(_private(builder.module, name, emit, form, args), args)
    assert dtype is f32, f"{name} has a form in f64"
    doubles = DOUBLE if width(args[0]) == 1 else ir.VectorType(DOUBLE, width(args[0]))
    wide = tuple(builder.fpext(a, doubles) for a in args)
    return builder.fptrunc(builder.call(_private(builder.module, name, emit, form, wide), wide), args[0].type)


def _private(module: ir.Module, name: str, emit: Vector, form: DType, args: tuple[ir.Value, ...]) -> ir.Function:
    """The module's own copy of a vector function for one width; inlined where it is short, which f64 forms are not."""
    type = args[0].type
    full = f"rlx.{name}.{suffix(type)}"
    found = module.globals.get(full)
    if found is not None:
        return found
    function = ir.Function(module, ir.FunctionType(type, [type] * len(args)), full)
    function.linkage = "internal"
    if form is f32:
        function.attributes.add("alwaysinline")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    builder.ret(emit(builder, *function.args))
    return function


def library(builder: ir.IRBuilder, name: str, args: tuple[ir.Value, ...]) -> ir.Value:
    """A call into the C library for each lane of doubles."""
    function = declare(builder.module, name, DOUBLE, [DOUBLE] * len(args))
    return per_lane(builder, DOUBLE, lambda *scalars: builder.call(function, scalars), *args)


def converting(builder: ir.IRBuilder, name: str, result: Any, x: ir.Value) -> ir.Value:
    """A conversion intrinsic, which is named after both types."""
    assert width(x) >= 1, "registers have lanes"
    function = declare(builder.module, f"{name}.{suffix(result)}.{suffix(x.type)}", result, [x.type])
    return builder.call(function, [x])
