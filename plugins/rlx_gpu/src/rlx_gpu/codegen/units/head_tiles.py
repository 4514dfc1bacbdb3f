"""The attention problems that matrix units support, and their tiles of queries, keys and values in shared memory."""

from __future__ import annotations

from typing import Final

from rlx_core.codegen.attention_scores import KEY, QUERY, PlacedAttention
from rlx_core.ir.dtypes import f32
from rlx_core.system.records import frozen
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.units.matrix_units import MatrixUnit
from rlx_gpu.codegen.units.tiles import COPIED
from rlx_gpu.codegen.walks import Machine

SUBGROUPS: Final = 4
"""Subgroups of a group: all read one tile of keys in shared memory, and 128 threads may have the most registers each."""

KEYS: Final = 64
"""Maximum number of keys in a tile of the forward pass."""

FEWEST_KEYS: Final = 16
"""Keys of the smallest tile, which are the columns of one product of the largest unit."""

WIDEST: Final = 128
"""Features up to which a thread's queries and sums fit into its registers."""


def unit_for_attention(problem: PlacedAttention, language: GpuDialect, machine: Machine) -> MatrixUnit | None:
    """Return the unit for queries, keys and values, if the language and the machine have one and it supports their features."""
    return language.matrix_unit if unit_refusal(problem, language, machine) is None else None


def unit_refusal(problem: PlacedAttention, language: GpuDialect, machine: Machine) -> str | None:
    """Return why matrix units do not compute attention or its cotangents, as "needs …" would continue."""
    unit, scores = language.matrix_unit, problem.problem
    if unit is None or f32 not in language.exchanged_dtypes:
        return "a language with matrix units"
    if machine.subgroup != unit.threads or machine.group < SUBGROUPS * unit.threads:
        return f"groups of {SUBGROUPS} subgroups of {unit.threads} threads"
    operands = [problem.place(i).type.dtype for i in range(4 if problem.is_backward else 3)]
    if scores.stored not in unit.dtypes or problem.dtype is not f32 or any(d is not scores.stored for d in operands):
        return f"operands of one dtype among {' '.join(sorted(str(d) for d in unit.dtypes))}"
    if max(problem.features, problem.width) > WIDEST:
        return f"at most {WIDEST} features, not {max(problem.features, problem.width)}"
    if problem.sizes[QUERY] < unit.size:
        return f"at least {unit.size} queries, not {problem.sizes[QUERY]}"
    if not problem.is_backward and keys_at_once(problem, unit, machine) is not None:
        return None
    shared = _shared_nbytes(problem, unit, SUBGROUPS * unit.size if problem.is_backward else FEWEST_KEYS)
    return None if shared <= machine.shared_nbytes else f"{shared} bytes of shared memory, not {machine.shared_nbytes}"


def keys_at_once(problem: PlacedAttention, unit: MatrixUnit, machine: Machine) -> int | None:
    """Return the keys of a tile of the forward pass: the maximum that fits into shared memory; `None` if too few fit."""
    count = KEYS
    while count >= FEWEST_KEYS:
        if _shared_nbytes(problem, unit, count) <= machine.shared_nbytes:
            return count
        count //= 2
    return None


def _shared_nbytes(problem: PlacedAttention, unit: MatrixUnit, keys: int) -> int:
    """Return a group's shared memory: its own rows, overlapping later keys, values, and statistics of the tile's queries."""
    stored, rows = problem.problem.stored, SUBGROUPS * unit.size

    def elements(features: int, positions: int) -> int:
        return HeadTile("", 0, KEY, features, unit.size, positions, stored.itemsize).elements

    nbytes = (elements(problem.features, max(rows, keys)) + elements(problem.width, keys)) * stored.itemsize
    return nbytes + (3 * rows * f32.itemsize if problem.is_backward else 0)


@frozen
class HeadTile:
    """Positions of an operand in shared memory, a row each, of features up to a multiple of a unit's size.

    Attributes:
        axis: Axis of the scores along which positions are numbered.
        unit: Rows and columns of one matrix instruction.
        itemsize: Bytes of an element.
    """

    name: str
    number: int
    axis: int
    features: int
    unit: int
    positions: int
    itemsize: int

    @property
    def depth(self) -> int:
        return -(-self.features // self.unit) * self.unit

    @property
    def parts(self) -> int:
        """Units along the features."""
        return self.depth // self.unit

    @property
    def step(self) -> int:
        """Elements from a row to the next."""
        return self.depth + COPIED // self.itemsize

    @property
    def elements(self) -> int:
        return self.positions * self.step
