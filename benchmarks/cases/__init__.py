"""Every case, by name, in the order of the table."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.case import Case
from benchmarks.cases import (
    compiling,
    decoding,
    elementwise,
    gemm,
    gguf,
    imported,
    memory,
    minilm,
    narrow,
    numbers,
    recurrent,
    sizes,
    training,
    vision,
)
from rlx_core.errors import Fact, UnknownNameError, nearest

__all__ = ["CASES", "GROUPS", "chosen"]

CASES: tuple[Case, ...] = (
    *minilm.CASES,
    *training.CASES,
    *recurrent.CASES,
    *decoding.CASES,
    *vision.CASES,
    *imported.CASES,
    *elementwise.CASES,
    *numbers.CASES,
    *memory.CASES,
    *gemm.CASES,
    *narrow.CASES,
    *gguf.CASES,
    *compiling.CASES,
    *sizes.CASES,
)


GROUPS = (
    *("minilm", "gpt-train", "mlp-train", "lstm", "lstm-train", "scan", "decode", "resnet18", "mobilenet", "cnn-train"),
    *("imported", "call", "chain", "math", "random", "fft", "adamw", "memory", "gemm", "narrow", "compile", "sizes"),
    *("decode-gguf", "prefill-gguf"),
)
"""What names of cases are or begin with."""
SEPARATE = ("decode-gguf",)
"""Groups that are no part of the one whose name theirs begins with."""


def chosen(words: Sequence[str]) -> list[Case]:
    """The cases whose name is, or begins with, one of `words`; the default ones without words.

    Raises:
        UnknownNameError: A word is the beginning of no name.
    """
    if not words:
        return [
            c
            for c in CASES
            if c not in {*gemm.FURTHER, *memory.FURTHER, *numbers.FURTHER, *narrow.CASES, *gguf.CASES, *imported.CASES}
        ]
    for word in words:
        if not any(is_meant(c, word) for c in CASES):
            raise UnknownNameError(
                f"bench: no case is called {word!r}",
                Fact("cases", ", ".join(GROUPS)),
                hint=nearest(word, [*GROUPS, *(c.name for c in CASES)]),
            )
    return [c for c in CASES if any(is_meant(c, w) for w in words)]


def is_meant(case: Case, word: str) -> bool:
    """Whether a case has this name, or one that begins with it."""
    if any(case.name.startswith(group) and not word.startswith(group) for group in SEPARATE):
        return False
    return case.name == word or case.name.startswith(f"{word}-")
