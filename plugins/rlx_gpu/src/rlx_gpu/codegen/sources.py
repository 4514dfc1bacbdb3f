"""Functions of a program gathered into a module, in which equal ones are written once."""

from __future__ import annotations

from collections.abc import Iterable

from rlx_core.emit.emitters import Function
from rlx_gpu.codegen.languages import GpuDialect


def source_of(functions: Iterable[Function], language: GpuDialect) -> str:
    """Return one module with these functions, the functions that they call, and the parts of the prelude that are used."""
    parts: dict[str, str] = {}
    entries: dict[str, str] = {}
    for function in functions:
        parts.update(function.parts)
        entries[function.name] = function.text
    return language.module([*parts.values(), *entries.values()])
