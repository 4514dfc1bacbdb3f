"""Variants of the samples of an op: other dtypes, sizes, ranks and broadcasting, to cover cases that its author did not.

The types that an op takes are not declared. Its own `infer` (and `prepare`) decides: accepted types have to obey the laws, and
others have to be refused with one of `rlx_core.errors`. So an op has one place that determines its types, which informs
users, and the laws read it there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from attrs import evolve

from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import DType, bf16, bool_, c64, c128, f16, f32, f64, i32, i64, u8
from rlx_core.ir.types import TensorType
from rlx_core.ops.samples import Case, Sample
from rlx_core.testing.cases import OpProgram, Variation, cases_of

Types = tuple[TensorType | None, ...]

MOST_OPERANDS: Final = 4
"""Maximum number of operands that are broadcast one by one: a whole transformer layer has fourteen, each a second of laws."""


@cache
def variants(program: OpProgram) -> tuple[OpProgram, ...]:
    """Return the variants of one sample, refused ones among them, each named by its variation."""
    existing = {signature(c.sample.types) for c in cases_of([program.op])}
    result: dict[str, OpProgram] = {}
    for variation, name, types in varied_types(program.sample):
        key = signature(types)
        if key not in existing and key not in result:
            sample = program.sample.with_types(types)
            result[key] = OpProgram(Case(program.op, sample), program.rule, variation, f"({name})")
    return tuple(result.values())


@cache
def accepted(program: OpProgram) -> tuple[OpProgram, ...]:
    """Return the variants that the op takes, to which the laws apply."""
    return tuple(v for v in variants(program) if v.failure is None)


def bases(programs: Sequence[OpProgram]) -> list[OpProgram]:
    """The samples that are varied: of each op the first with the same attributes set and the same operands given."""
    result: dict[object, OpProgram] = {}
    for program in programs:
        sample = program.sample
        key = (program.op, program.rule, *sample.attributes, *(t is None for t in sample.types), sample.make is None)
        if program.is_static:
            result.setdefault(key, program)
    return list(result.values())


def signature(types: Sequence[TensorType | None]) -> str:
    return ", ".join(map(str, types))


def varied_types(sample: Sample) -> Iterator[tuple[Variation, str, Types]]:
    """Yield every variation of the operand types: its kind, its description, and the types."""
    for dtype in (f16, bf16, f32, f64, c64, c128):
        yield "dtype", str(dtype), with_dtype(sample.types, dtype)
    if sample.make is None:  # `make` determines the dims of its arrays, and may return a NaN
        for dtype in (i32, i64, u8, bool_):
            yield "dtype", str(dtype), with_dtype(sample.types, dtype)
        yield from varied_dims(sample.types)


def with_dtype(types: Types, dtype: DType) -> Types:
    """The operands of the kind that the sample is about, floats before integers, in another dtype."""
    present = [t for t in types if t is not None]
    floats = [t for t in present if t.dtype.is_differentiable]
    integers = [t for t in present if t.dtype.is_integer]
    chosen = floats or integers or present
    # Integer operands next to floats are indices or counts, which do not follow the floats.
    return tuple(None if t is None else t.with_dtype(dtype) if t in chosen else t for t in types)


def varied_dims(types: Types) -> Iterator[tuple[Variation, str, Types]]:
    present = [t for t in types if t is not None]
    sizes = list(dict.fromkeys(d for t in present for d in t.shape if d not in (0, 1)))
    for size in sizes:  # equal sizes are taken for one dim, wherever they occur
        yield "size", f"{size} → 0", replaced(types, size, 0)
        yield "size", f"{size} → 1", replaced(types, size, 1)
    if not any(t.rank for t in present):
        return
    yield "rank", "rank + 1", tuple(None if t is None else t.with_shape((2, *t.shape)) for t in types)
    yield "rank", "rank - 1", tuple(None if t is None else t.with_shape(t.shape[1:]) for t in types)
    if len(present) < 2:
        return
    for i, type in enumerate(types[:MOST_OPERANDS]):
        if type is not None and type.rank:
            for name, shape in (
                ("of size 1", (1, *type.shape[1:])),
                ("of fewer axes", type.shape[1:]),
                ("of more axes", (2, *type.shape)),
            ):
                yield "broadcasting", f"operand {i} {name}", (*types[:i], evolve(type, shape=shape), *types[i + 1 :])


def replaced(types: Types, old: Dim, new: Dim) -> Types:
    return tuple(None if t is None else t.with_shape(new if d == old else d for d in t.shape) for t in types)


# ------------------------------------------------------------------------------- axes counted from the end

AXIS_NAMES: Final = re.compile(r"(.*_)?(axis|axes|dim|dims)")


def has_axis(program: OpProgram) -> bool:
    """Return whether an attribute names axes, all counted from the start."""
    return program.is_static and bool(axes_of(program.sample.attributes))


def axes_of(attributes: Mapping[str, Any]) -> dict[str, int | tuple[int, ...]]:
    """Return the attributes whose names refer to axes and that contain some, counted from the start."""
    return {
        name: value for name, value in attributes.items() if AXIS_NAMES.fullmatch(name) and counts_from_start(value)
    }


def counts_from_start(value: object) -> bool:
    each = value if isinstance(value, tuple) and value else (value,)
    return all(type(axis) is int and axis >= 0 for axis in each)


def with_negative_axes(program: OpProgram) -> Iterator[OpProgram]:
    """The same call with its axes counted from the end, once for each rank that they may be counted in, if it is accepted.

    Which value an axis belongs to is the op's affair: an operand, or the result. One of the ranks has to be right.
    """
    values = (*program.node.present(), *program.graph.outputs)
    axes = axes_of(program.sample.attributes)
    for rank in sorted({v.ndim for v in values}):
        counted = {name: counted_from_end(value, rank) for name, value in axes.items()}
        other = evolve(program, case=evolve(program.case, sample=program.sample.with_attributes(**counted)))
        if all(in_range(value, rank) for value in counted.values()) and not other.is_refused:
            yield other


def counted_from_end(value: int | tuple[int, ...], rank: int) -> int | tuple[int, ...]:
    return tuple(axis - rank for axis in value) if isinstance(value, tuple) else value - rank


def in_range(value: int | tuple[int, ...], rank: int) -> bool:
    return all(-rank <= axis < 0 for axis in (value if isinstance(value, tuple) else (value,)))
