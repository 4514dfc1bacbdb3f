"""Scalar semantics, said once for every target: what an op does to registers, in terms of an `Assembler`.

A target brings an assembler and a `ScalarTable`: the standard one, with entries of its own where its instructions are better.
"""

from rlx_core.codegen.scalars.assembler import Assembler
from rlx_core.codegen.scalars.table import DTYPES, Row, ScalarTable

__all__ = ["DTYPES", "Assembler", "Row", "ScalarTable"]
