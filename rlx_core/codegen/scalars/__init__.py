"""Scalar semantics shared by all targets: the effect of an op on registers, in terms of an `Assembler`.

A target provides an assembler and a `ScalarTable`: the standard one, with replacements where its instructions are better.
"""

from rlx_core.codegen.scalars.assembler import Assembler
from rlx_core.codegen.scalars.table import DTYPES, Row, ScalarTable

__all__ = ["DTYPES", "Assembler", "Row", "ScalarTable"]
