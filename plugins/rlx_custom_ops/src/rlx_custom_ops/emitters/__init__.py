"""Factors and systems of small matrices as machine code, so that loops which compute them are native."""

from rlx_custom_ops.emitters.cholesky import cholesky_factor
from rlx_custom_ops.emitters.lu import determinant, factors
from rlx_custom_ops.emitters.qr import reflections
from rlx_custom_ops.emitters.small import MAX_SIDES, MAX_SMALL
from rlx_custom_ops.emitters.solve import system
from rlx_custom_ops.emitters.triangular import substitution

__all__ = [
    "MAX_SIDES",
    "MAX_SMALL",
    "cholesky_factor",
    "determinant",
    "factors",
    "reflections",
    "substitution",
    "system",
]
