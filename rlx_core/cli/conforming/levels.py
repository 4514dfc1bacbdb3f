"""The levels of conformance: families of ops and laws that a target must pass without the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rlx_core.system.records import frozen

NO_LEVEL: Final = "none"
ELEMENTWISE: Final = ("arithmetic", "activation", "comparison", "piecewise", "selection", "trigonometry")
DENSE: Final = ("structural", "movement", "reduction", "linalg", "softmax", "normalization")
TRAINING: Final = ("indexing", "along axis", "loss", "normalization backward")


@frozen
class ConformanceLevel:
    """One level; a target conforms to it if it conforms to all levels before it as well.

    Attributes:
        families: Families in which every op must run without the host; `None` is every family.
        dtypes: Dtypes that the target must run, in addition to those that it claims.
        has_gradients: Whether the gradients of these ops must run without the host, too.
    """

    name: str
    families: tuple[str, ...] | None
    dtypes: frozenset[str]
    has_gradients: bool = False

    def covers(self, family: str) -> bool:
        """Return whether the level is about a family."""
        return self.families is None or family in self.families


LEVELS: Final[Sequence[ConformanceLevel]] = (
    ConformanceLevel("elementwise", ELEMENTWISE, frozenset({"f32", "bool"})),
    ConformanceLevel("dense", (*ELEMENTWISE, *DENSE), frozenset({"f32", "bool"})),
    ConformanceLevel(
        "training", (*ELEMENTWISE, *DENSE, *TRAINING), frozenset({"f32", "bool", "i32"}), has_gradients=True
    ),
    ConformanceLevel("full", None, frozenset({"f32", "bool", "i32"}), has_gradients=True),
)
