"""Every case, by name, in the order of the table."""

from __future__ import annotations

from benchmarks.case import Case
from benchmarks.cases import compiling, elementwise, gemm, memory, minilm, training

__all__ = ["CASES", "chosen"]

CASES: tuple[Case, ...] = (
    *minilm.CASES,
    *training.CASES,
    *elementwise.CASES,
    *memory.CASES,
    *gemm.CASES,
    *compiling.CASES,
)


def chosen(words: list[str]) -> list[Case]:
    """The cases whose name is, or begins with, one of `words`; the default ones if there are none."""
    if not words:
        return [c for c in CASES if c not in gemm.FURTHER | memory.FURTHER]
    return [c for c in CASES if any(c.name == w or c.name.startswith(f"{w}-") for w in words)]
