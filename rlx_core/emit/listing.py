"""Device code for people: the source of each function that a step calls, and how it is launched."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_core.emit.emitters import Emitted, Language
from rlx_core.emit.steps import emissions, is_empty
from rlx_core.ir.lir import Lir
from rlx_core.pipeline.select.backend import Listing
from rlx_core.pipeline.select.kernels import KernelTable

__all__ = ["listings"]


def listings(lir: Lir, kernels: KernelTable, language: Language, steps: Sequence[int]) -> list[Listing]:
    """The code of some steps; those that are one function share a listing."""
    made = emissions(lir, kernels)
    shared: dict[int, list[int]] = {}
    found: list[Listing] = []
    for number in steps:
        if number in made.steps and made.steps[number].is_library:
            called = ", then ".join(call.function for call in made.steps[number].calls)
            found.append(Listing((number,), "", f"calls the device's library: {called}"))
        elif number in made.steps:
            shared.setdefault(id(made.steps[number]), []).append(number)
        else:
            step = lir.steps[number]
            why = "the host drives its graphs" if step.nested else "runs on the host"
            why = "has no elements to compute" if is_empty(step) else why
            found.append(Listing((number,), "", why))
    for numbers in shared.values():
        emitted = made.steps[numbers[0]]
        found.append(Listing(tuple(numbers), source_of(emitted, language), launched(emitted)))
    return found


def source_of(emitted: Emitted, language: Language) -> str:
    """The functions of a step: in one module, or in one each where the language has it so."""
    if not language.has_one_entry:
        return language.module(emitted.functions)
    return "\n\n".join(language.module((function,)) for function in emitted.functions)


def launched(emitted: Emitted) -> str:
    """How many threads run each function: `4 groups of 256`, and what they are given besides."""
    return ", then ".join(
        f"{call.groups} groups of {call.group_size}"
        + (f" with {call.dynamic_nbytes} bytes to share" if call.dynamic_nbytes else "")
        for call in emitted.calls
    )
