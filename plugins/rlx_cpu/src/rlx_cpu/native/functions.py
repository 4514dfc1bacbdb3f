"""Transcendental functions on registers: vector polynomials for f32, the C library a lane at a time for the rest.

Every f32 function here is within 2 ulp, right at infinities, NaN, zeros and subnormals; a test measures each against float64.
f64 goes through the C library, within 1 ulp, at the price of a call a lane. A function is emitted once a module and width,
privately, and inlined where it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from rlx_core.ir.dtypes import DType, f32
from rlx_core.ir.op import Op
from rlx_core.ops import activation, arithmetic, trigonometry
from rlx_cpu.native.build import DOUBLE, FLOAT, declare, per_lane, suffix, width
from rlx_cpu.native.library import addresses

__all__ = ["OPS", "call", "converting"]

_LIBRARY: dict[type[Op], str] = {
    activation.exp.op: "exp",
    activation.exp2.op: "exp2",
    activation.expm1.op: "expm1",
    activation.log.op: "log",
    activation.log2.op: "log2",
    activation.log10.op: "log10",
    activation.log1p.op: "log1p",
    activation.cbrt.op: "cbrt",
    activation.tanh.op: "tanh",
    activation.erf.op: "erf",
    activation.erfc.op: "erfc",
    arithmetic.hypot.op: "hypot",
    arithmetic.atan2.op: "atan2",
    **{op: op.name.removeprefix("rlx.") for op in trigonometry.OPS},
}
"""Names in the C library, for doubles."""


Vector = Callable[[ir.IRBuilder, ir.Value], ir.Value]

VECTOR: dict[type[Op], Vector] = {}
"""f32 functions of one variable as vector code; `math.py` fills it."""


def vector(op: type[Op]) -> Callable[[Vector], Vector]:
    """Register the decorated function as the f32 code of `op`."""

    def add(emit: Vector) -> Vector:
        VECTOR[op] = emit
        return emit

    return add


OPS: tuple[type[Op], ...] = tuple(op for op, name in _LIBRARY.items() if name in addresses())
"""The functions that there is code for: those that this platform's C library has (of f64, all go through it)."""


def call(builder: ir.IRBuilder, op: type[Op], dtype: DType, args: tuple[ir.Value, ...]) -> ir.Value:
    """The function of `op` on registers of `dtype`."""
    if dtype is f32 and op in VECTOR:
        return builder.call(_private(builder.module, op, args[0].type), args)
    return _library(builder, _LIBRARY[op], args)


def _private(module: ir.Module, op: type[Op], type: Any) -> ir.Function:
    """The module's own copy of a vector function for one width."""
    name = f"rlx.{op.name.rpartition('.')[2]}.{suffix(type)}"
    found = module.globals.get(name)
    if found is not None:
        return found
    function = ir.Function(module, ir.FunctionType(type, [type]), name)
    function.linkage = "internal"
    function.attributes.add("alwaysinline")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    builder.ret(VECTOR[op](builder, function.args[0]))
    return function


def _library(builder: ir.IRBuilder, name: str, args: tuple[ir.Value, ...]) -> ir.Value:
    """A call into the C library for each lane; floats are computed as doubles and rounded once."""
    function = declare(builder.module, name, DOUBLE, [DOUBLE] * len(args))
    is_narrow = suffix(args[0].type).endswith("f32")

    def one(*scalars: ir.Value) -> ir.Value:
        wide = [builder.fpext(s, DOUBLE) for s in scalars] if is_narrow else scalars
        result = builder.call(function, wide)
        return builder.fptrunc(result, FLOAT) if is_narrow else result

    return per_lane(builder, FLOAT if is_narrow else DOUBLE, one, *args)


def converting(builder: ir.IRBuilder, name: str, result: Any, x: ir.Value) -> ir.Value:
    """A conversion intrinsic, which is named after both types."""
    assert width(x) >= 1, "registers have lanes"
    function = declare(builder.module, f"{name}.{suffix(result)}.{suffix(x.type)}", result, [x.type])
    return builder.call(function, [x])
