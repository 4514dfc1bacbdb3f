"""Factors and systems of small matrices as machine code, so that loops which compute them are native."""

from rlx_custom_ops.emitters.factors import cholesky_factor, determinant, factors, reflections
from rlx_custom_ops.emitters.small import MAX_SIDES, MAX_SMALL
from rlx_custom_ops.emitters.systems import substitution, system

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
