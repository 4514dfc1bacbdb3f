"""What an author did not think of: the samples of an op with other dtypes, sizes, ranks and broadcasting.

Nobody declares which of these an op takes. Its own `infer` (and `prepare`) decides: what it accepts has to obey the laws, and
what it does not accept it has to refuse with one of `rlx_core.errors`. So an op says what it takes in the place where its
users are told, and the laws read it there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

from attrs import evolve

from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import DType, bf16, bool_, c64, c128, f16, f32, f64, i32, i64, u8
from rlx_core.ir.types import TensorType
from rlx_core.ops.samples import Case, Sample
from rlx_core.testing.cases import OpProgram, Variation, cases_of, evolve_types

__all__ = ["accepted", "bases", "variants"]

Types = tuple[TensorType | None, ...]

MOST_OPERANDS: Final = 4
"""How many operands are broadcast one by one: a whole transformer layer is an op of fourteen, each of them a second of laws."""


@cache
def variants(program: OpProgram) -> tuple[OpProgram, ...]:
    """The variants of one sample, refused ones among them, each called by what is varied."""
    own = {signature(c.sample.types) for c in cases_of([program.op])}
    found: dict[str, OpProgram] = {}
    for variation, name, types in varied_types(program.sample):
        key = signature(types)
        if key not in own and key not in found:
            sample = evolve_types(program.sample, types)
            found[key] = OpProgram(Case(program.op, sample), program.rule, variation, f"({name})")
    return tuple(found.values())


@cache
def accepted(program: OpProgram) -> tuple[OpProgram, ...]:
    """The variants that the op takes: those that the laws are about."""
    return tuple(v for v in variants(program) if v.failure is None)


def bases(programs: Sequence[OpProgram]) -> list[OpProgram]:
    """The samples that are varied: of each op the first with the same attributes set and the same operands given."""
    found: dict[object, OpProgram] = {}
    for program in programs:
        sample = program.sample
        key = (program.op, program.rule, *sample.attributes, *(t is None for t in sample.types), sample.make is None)
        if program.is_static:
            found.setdefault(key, program)
    return list(found.values())


def signature(types: Sequence[TensorType | None]) -> str:
    return ", ".join(map(str, types))


def varied_types(sample: Sample) -> Iterator[tuple[Variation, str, Types]]:
    """Every variation of the operand types: its kind, what is varied, and the types."""
    for dtype in (f16, bf16, f32, f64, c64, c128):
        yield "dtype", str(dtype), with_dtype(sample.types, dtype)
    if sample.make is None:  # what is made has the dims that its maker gave it, and may hold a NaN
        for dtype in (i32, i64, u8, bool_):
            yield "dtype", str(dtype), with_dtype(sample.types, dtype)
        yield from varied_dims(sample.types)


def with_dtype(types: Types, dtype: DType) -> Types:
    """The operands of the kind that the sample is about, floats before integers, in another dtype."""
    present = [t for t in types if t is not None]
    floats = [t for t in present if t.dtype.is_differentiable]
    integers = [t for t in present if t.dtype.is_integer]
    chosen = floats or integers or present
    # Integer operands beside floats are indices or counts, which do not follow the floats.
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
