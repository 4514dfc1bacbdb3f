"""Listings of device code: the source of each function that a step calls, and its launch sizes."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_core.emit.code import reason_on_host
from rlx_core.emit.emitters import Emitted, Language
from rlx_core.emit.steps import emissions
from rlx_core.ir.lir import Lir
from rlx_core.pipeline.backend import Listing
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.run.listing import shared_listings
from rlx_core.run.parts import is_empty


def listings(lir: Lir, kernels: KernelTable, language: Language, steps: Sequence[int]) -> list[Listing]:
    """Return the code of some steps; steps that share a function share a listing."""
    emission = emissions(lir, kernels)

    def reason_without(number: int) -> str | None:
        emitted, step = emission.steps.get(number), lir.steps[number]
        if emitted is None:
            return "has no elements to compute" if is_empty(step) else reason_on_host(step)
        if emitted.is_library:
            return f"calls the device's library: {', then '.join(call.function for call in emitted.calls)}"
        return None

    def code_of(number: int) -> tuple[str, str]:
        return source_of(emission.steps[number], language), launched(emission.steps[number])

    return shared_listings(steps, reason_without, lambda number: id(emission.steps[number]), code_of)


def source_of(emitted: Emitted, language: Language) -> str:
    """The functions of a step: in one module, or in one each where the language has it so."""
    if not language.has_one_entry:
        return language.module(emitted.functions)
    return "\n\n".join(language.module((function,)) for function in emitted.functions)


def launched(emitted: Emitted) -> str:
    """Return the launch sizes of each function, `4 groups of 256`, and its other arguments."""
    return ", then ".join(
        f"{call.groups} groups of {call.group_size}"
        + (f" with {call.dynamic_nbytes} bytes to share" if call.dynamic_nbytes else "")
        for call in emitted.calls
    )
