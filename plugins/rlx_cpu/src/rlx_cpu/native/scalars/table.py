"""The scalar code of this target: the standard one, functions in pieces where AVX-512 picks their coefficients, and random words
of whole registers."""

from __future__ import annotations

from typing import Final

from attrs import evolve

from rlx_core.codegen.scalars.standard import standard_table
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_cpu.native.scalars import philox
from rlx_cpu.native.scalars.piece_functions import FUNCTIONS

_STANDARD: Final = standard_table("native")

NATIVE: Final[ScalarTable] = evolve(
    _STANDARD, rows={**_STANDARD.rows, **philox.ROWS}, functions={**_STANDARD.functions, **FUNCTIONS}
)
