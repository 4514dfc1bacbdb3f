"""Axes counted from the end: `axis=-1` has to mean the last one, or be refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from attrs import evolve

from rlx_core.ops.samples import Sample
from rlx_core.testing.cases import OpProgram

NAMES: Final = re.compile(r"(.*_)?(axis|axes|dim|dims)")


def has_axis(program: OpProgram) -> bool:
    """Return whether an attribute names axes, all counted from the start."""
    return program.is_static and bool(axes_of(program.sample.attributes))


def axes_of(attributes: Mapping[str, Any]) -> dict[str, int | tuple[int, ...]]:
    """Return the attributes whose names refer to axes and that contain some, counted from the start."""
    return {name: value for name, value in attributes.items() if NAMES.fullmatch(name) and counts_from_start(value)}


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
        other = with_attributes(program, {**program.sample.attributes, **counted})
        if all(in_range(value, rank) for value in counted.values()) and not other.is_refused:
            yield other


def counted_from_end(value: int | tuple[int, ...], rank: int) -> int | tuple[int, ...]:
    return tuple(axis - rank for axis in value) if isinstance(value, tuple) else value - rank


def in_range(value: int | tuple[int, ...], rank: int) -> bool:
    return all(-rank <= axis < 0 for axis in (value if isinstance(value, tuple) else (value,)))


def with_attributes(program: OpProgram, attributes: Mapping[str, Any]) -> OpProgram:
    old = program.sample
    sample = Sample(
        *old.types, low=old.low, high=old.high, ranges=old.ranges, make=old.make, is_smooth=old.is_smooth, **attributes
    )
    return evolve(program, case=evolve(program.case, sample=sample))
