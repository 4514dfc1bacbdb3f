"""Which attention matrix units compute, and its tiles of queries, keys and values in shared memory."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from rlx_core.codegen.attention_scores import KEY, QUERY, PlacedAttention
from rlx_core.codegen.gpu.languages import Language
from rlx_core.codegen.gpu.units.matrix_units import MatrixUnit
from rlx_core.codegen.gpu.units.tiles import WORDS
from rlx_core.codegen.gpu.walks import Machine
from rlx_core.ir.dtypes import f32

__all__ = ["KEYS", "SUBGROUPS", "HeadTile", "unit_for_attention"]

SUBGROUPS: Final = 4

KEYS: Final = 64
"""Of a tile; queries are as many, a unit's rows for each subgroup."""

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
    tiles = [HeadTile("", 0, KEY, features, unit.size) for features in (problem.features, problem.width)]
    shared = sum(tile.elements for tile in tiles) * own.stored.itemsize
    fits = max(problem.features, problem.width) <= WIDEST and shared <= machine.shared_nbytes
    return unit if fits and problem.sizes[QUERY] >= unit.size else None


@frozen
class HeadTile:
    """Positions of an operand in shared memory, a row each, of features up to a multiple of a unit's size.

    Attributes:
        axis: Of the scores, along which positions lie.
    """

    name: str
    number: int
    axis: int
    features: int
    unit: int

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
        return self.depth + WORDS

    @property
    def elements(self) -> int:
        return KEYS * self.step
