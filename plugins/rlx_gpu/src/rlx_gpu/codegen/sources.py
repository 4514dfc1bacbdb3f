"""Functions of a program gathered into modules, in which equal ones are written once."""

from __future__ import annotations

from collections.abc import Iterable

from rlx_gpu.codegen.functions import Function
from rlx_gpu.codegen.languages import Language

__all__ = ["modules", "source_of"]


def source_of(functions: Iterable[Function], language: Language) -> str:
    """Return one module with these functions, the functions that they call, and the parts of the prelude that are used."""
    parts: dict[str, str] = {}
    entries: dict[str, str] = {}
    for function in functions:
        parts.update(function.parts)
        entries[function.launch.entry] = function.text
    return language.module([*parts.values(), *entries.values()])


def modules(functions: Iterable[Function], language: Language) -> dict[str, str]:
    """Entry → the source of the module that has it; where a language names memory outside of functions, one an entry."""
    unique = {f.launch.entry: f for f in functions}
    if language.one_entry:
        return {entry: source_of([f], language) for entry, f in unique.items()}
    text = source_of(unique.values(), language)
    return dict.fromkeys(unique, text)
