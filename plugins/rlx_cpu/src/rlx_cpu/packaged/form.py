"""A native program in a package: its plan, its steps, and the table's words with the buffer to whose address each is set.

All references of a form are checked before it is used: words, buffers, bytes and functions. The accesses of the code through
these addresses are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from rlx_core.codegen.places import Fault
from rlx_core.errors import FormatError
from rlx_core.ir.forms import PLAIN_FORMS, Json, items, need, optional
from rlx_core.run.packaged.plan_form import PackedPlan, PlanWriter, buffer_from, expect_inside
from rlx_core.run.packaged.reading import every, node_form, node_from, number
from rlx_core.run.plan import BufferId
from rlx_core.system.records import evolve, frozen
from rlx_cpu.native.contract import Emitted
from rlx_cpu.native.runtime.code import ProgramCode
from rlx_cpu.native.runtime.compiled import CompiledSteps, NativeStep, RunSettings
from rlx_cpu.native.runtime.native_steps import Arguments

_MAX_PARTS: Final = 64
_MAX_WORDS: Final = 1 << 24


@frozen(eq=False)
class PackedProgram:
    """A program that was read.

    Attributes:
        words: The number of words of the table.
        steps: Its steps, by number; they have no code yet.
        microseconds: Estimated time of each on one thread.
        arguments: For each buffer, the words that are addresses in it.
    """

    plan: PackedPlan
    words: int
    steps: Mapping[int, NativeStep]
    microseconds: Mapping[int, float]
    arguments: Arguments

    @classmethod
    def from_json(cls, form: Json, nbytes_of: Callable[[int], int], functions: Mapping[str, int]) -> PackedProgram:
        """Return the program that `program_form` wrote.

        Args:
            nbytes_of: Returns the bytes of a blob; raises FormatError if no blob has that number.
            functions: The functions of the code.

        Raises:
            FormatError: The form is not a program, or refers to words, buffers, bytes or functions that do not exist.
        """
        row = need(form, dict, "a program")
        plan = PackedPlan.from_json(row.get("plan"), "cpu", nbytes_of)
        words = number(row.get("words"), "the table", high=_MAX_WORDS)
        rows = every(row.get("steps"), lambda each: need(each, dict, "a step"))
        steps = {i: _step(each, words) for i, each in enumerate(rows)}
        for each in steps.values():
            missing = [
                name for name in (each.emitted.function, each.emitted.prologue) if name and name not in functions
            ]
            if missing:
                raise FormatError(f"package: its code has no function {missing[0]!r}")
        arguments = dict(every(row.get("arguments"), lambda each: _arguments(each, words, plan)))
        return cls(plan, words, steps, {i: _time(each.get("us")) for i, each in enumerate(rows)}, arguments)

    def takes_longer(self, steps: Sequence[int], microseconds: float) -> bool:
        """Return whether steps take one thread longer than that."""
        return sum(self.microseconds[number] for number in steps) > microseconds

    def compiled(self, code: ProgramCode | None, settings: RunSettings) -> CompiledSteps:
        """The steps with their code."""
        return CompiledSteps((), {i: evolve(each, code=code) for i, each in self.steps.items()}, self.words, settings)


def program_form(
    plan: PlanWriter,
    compiled: CompiledSteps,
    arguments: Arguments,
    packed: Sequence[tuple[int, np.ndarray]],
    microseconds: Mapping[int, float],
) -> Json:
    """A program as `PackedProgram.from_json` reads it.

    Args:
        packed: Words that hold the addresses of packed operands, with those.
    """
    words: dict[BufferId, list[tuple[int, int]]] = {}
    for buffer, pairs in arguments.items():
        words.setdefault(plan.buffer(buffer), []).extend(pairs)
    for word, operand in packed:
        words.setdefault(plan.blob(operand), []).append((word, 0))
    rows = [[buffer.kind, buffer.number, pairs] for buffer, pairs in words.items()]
    steps = [_step_form(each, microseconds[number]) for number, each in compiled.steps.items()]
    return {"words": compiled.table_words, "steps": steps, "arguments": rows, "plan": plan.to_json()}


def _step_form(each: NativeStep, microseconds: float) -> Json:
    emitted = each.emitted
    return {
        "function": emitted.function,
        "prologue": emitted.prologue,
        "first": each.first,
        "parts": emitted.parts,
        "is_threaded": emitted.uses_threads,
        "shares": emitted.shares,
        "polls": emitted.polls,
        "us": microseconds,
        "workspace": each.workspace,
        "stride": emitted.workspace_stride,
        "shared": emitted.shared_stride,
        "status": each.status,
        "fault": PLAIN_FORMS.write(emitted.fault, Fault | None),
        **node_form(each.where),
    }


def _step(row: dict[str, Any], words: int) -> NativeStep:
    def word(name: str) -> int | None:
        return None if row.get(name) is None else number(row[name], "a word", high=words)

    emitted = Emitted(
        function=need(row.get("function"), str, "a function"),
        prologue=optional(row.get("prologue"), str, "a prologue"),
        parts=number(row.get("parts"), "parts", high=_MAX_PARTS + 1),
        uses_threads=need(row.get("is_threaded"), bool, "whether threads share a step"),
        shares=need(row.get("shares"), bool, "whether threads share steps inside"),
        polls=need(row.get("polls"), bool, "whether it lets signals be handled"),
        workspace=number(row.get("stride"), "scratch memory"),
        shared_workspace=number(row.get("shared"), "scratch memory"),
        fault=PLAIN_FORMS.read(row.get("fault"), Fault | None, "a fault"),
    )
    return NativeStep(
        step=None,
        emitted=emitted,
        code=None,
        first=number(row.get("first"), "a word", high=words + 1),
        workspace=word("workspace"),
        packs=(),
        status=word("status"),
        node=node_from(row),
    )


def _time(form: Json) -> float:
    return float(form if isinstance(form, int) and not isinstance(form, bool) else need(form, float, "a time"))


def _arguments(form: Json, words: int, plan: PackedPlan) -> tuple[BufferId, Sequence[tuple[int, int]]]:
    kind, place, pairs = items(form, 3, "addresses")
    buffer = buffer_from(kind, place)
    arguments = every(pairs, _address)
    for word, offset in arguments:
        if word >= words:
            raise FormatError(f"package: word {word} of a table of {words}")
        expect_inside(buffer, offset, plan.nbytes, may_end=True)
    return buffer, arguments


def _address(form: Json) -> tuple[int, int]:
    word, offset = (number(n, "an address") for n in items(form, 2, "an address"))
    return word, offset
