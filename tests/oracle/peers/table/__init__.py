"""The table: a module for each subject, and the subjects in the order of the page."""

from __future__ import annotations

from ..rows import Family
from . import (
    activations,
    collectives,
    control_flow,
    convolutions,
    elements,
    fourier,
    indexing,
    linear_algebra,
    losses,
    normalisation,
    optimisers,
    pooling,
    recurrent,
    reductions,
)

SUBJECTS = (
    activations,
    elements,
    reductions,
    indexing,
    linear_algebra,
    normalisation,
    losses,
    convolutions,
    pooling,
    recurrent,
    control_flow,
    collectives,
    fourier,
    optimisers,
)
FAMILIES: tuple[Family, ...] = tuple(subject.FAMILY for subject in SUBJECTS)
