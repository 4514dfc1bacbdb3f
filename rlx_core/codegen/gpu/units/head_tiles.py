"""Which attention matrix units compute, and its tiles of queries, keys and values in shared memory."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from rlx_core.codegen.attention_scores import KEY, QUERY, PlacedAttention
from rlx_core.codegen.gpu.languages import Language
from rlx_core.codegen.gpu.units.matrix_units import MatrixUnit
from rlx_core.codegen.gpu.units.tiles import COPIED
from rlx_core.codegen.gpu.walks import Machine
from rlx_core.ir.dtypes import f32

__all__ = ["KEYS", "SUBGROUPS", "HeadTile", "head_tiles", "unit_for_attention"]

SUBGROUPS: Final = 4

KEYS: Final = 64
"""Of a tile, at most."""

FEWEST_KEYS: Final = 16

WIDEST: Final = 128
"""Features up to which a thread's queries and sums fit into its registers."""


def unit_for_attention(problem: PlacedAttention, language: Language, machine: Machine) -> MatrixUnit | None:
    """What multiplies queries, keys and values, if the language and the machine have such a thing and their features suit it."""
    unit, own = language.matrix_unit, problem.problem
    if unit is None or machine.subgroup != unit.threads or machine.group < SUBGROUPS * unit.threads:
        return None
    if own.stored not in unit.dtypes or problem.dtype is not f32 or f32 not in language.exchanged_dtypes:
        return None
    if any(problem.place(i).type.dtype is not own.stored for i in (0, 1, 2)):
        return None
    if max(problem.features, problem.width) > WIDEST or problem.sizes[QUERY] < unit.size:
        return None
    return unit if head_tiles(problem, unit, machine) is not None else None


def head_tiles(
    problem: PlacedAttention, unit: MatrixUnit, machine: Machine
) -> tuple[HeadTile, HeadTile, HeadTile] | None:
    """Tiles of queries, keys and values, as many keys as there is room for; none if there is none for a few.

    A group has a unit's rows of queries for each subgroup. They lie where keys will, before any are there.
    """
    itemsize = problem.problem.stored.itemsize

    def tile(name: str, number: int, axis: int, features: int, positions: int) -> HeadTile:
        return HeadTile(name, number, axis, features, unit.size, positions, itemsize)

    queries = tile("keys_tile", 0, QUERY, problem.features, SUBGROUPS * unit.size)
    count = KEYS
    while count >= FEWEST_KEYS:
        keys, values = (
            tile("keys_tile", 1, KEY, problem.features, count),
            tile("values_tile", 2, KEY, problem.width, count),
        )
        if (max(queries.elements, keys.elements) + values.elements) * itemsize <= machine.shared_nbytes:
            return queries, keys, values
        count //= 2
    return None


@frozen
class HeadTile:
    """Positions of an operand in shared memory, a row each, of features up to a multiple of a unit's size.

    Attributes:
        axis: Of the scores, along which positions lie.
        unit: Rows and columns of what is multiplied at once.
        itemsize: Bytes of an element.
    """

    name: str
    number: int
    axis: int
    features: int
    unit: int
    positions: int = KEYS
    itemsize: int = 2

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
