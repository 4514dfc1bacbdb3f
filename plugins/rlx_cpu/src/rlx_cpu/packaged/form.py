"""A native program as data: everything that running it takes but its code and its weights, which are blobs of the file.

Addresses that steps read are said by *places*: 0 is the arena of a run, those after it are the program's buffers, which never
change. Whatever a form says is held against itself and the blobs before anything is made of it: a file that was made by another
rlx, or by hand, is refused. What the code then does with it is the code's matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from attrs import asdict

from rlx_core.codegen.places import Fault
from rlx_core.emit.packaged.reading import every, known_type, line_of, number
from rlx_core.errors import FormatError
from rlx_core.ir.forms import Json, items, need, optional
from rlx_core.ir.strides import extent
from rlx_core.ir.types import TensorType
from rlx_core.system.records import frozen

__all__ = ["ARENA", "Brought", "Output", "PackedProgram", "PackedStep", "Source", "Word", "program_from"]

ARENA: Final = 0
"""The place of what a run computes on the way."""

_MOST_PARTS: Final = 64

Word = tuple[int, int]
"""A word of the table, and bytes to add to the address that it holds."""

Source = Literal["place", "input", "made"]
"""What an output is in: a place, an argument, or an array that is made for each run."""


@frozen
class Brought:
    """An array of each run, an argument or one that is made for it: its type, and the words that hold its address."""

    type: TensorType
    words: tuple[Word, ...]


@frozen
class Output:
    """How an output reaches the caller: as (a view of) an array that was made, or as a copy out of `source`."""

    type: TensorType
    is_copied: bool
    source: Source
    number: int
    offset: int
    strides: tuple[int, ...]


@frozen
class PackedStep:
    """One step.

    Attributes:
        function, prologue: Their names in the code.
        first: The word of its first buffer.
        parts, is_threaded: As `runtime.calls.Call` has them.
        shares: Whether the one thread that runs it shares steps inside with those that wait.
        us: Microseconds that it takes one thread, roughly.
        workspace: The word of its scratch memory, of which each thread has `stride` bytes after `shared`, both rounded up.
        polls: Whether it lets signals be handled, and may be left.
        status: The word of its status words, and what to say of the number in them.
        label, line: Which node it is, and the user's file and line.
    """

    function: str
    prologue: str | None
    first: int
    parts: int
    is_threaded: bool
    shares: bool
    polls: bool
    us: float
    workspace: int | None
    stride: int
    shared: int
    status: int | None
    fault: Fault | None
    label: str
    line: tuple[str, int] | None


@frozen(eq=False)
class PackedProgram:
    """A program.

    Attributes:
        arena: Bytes of a run's arena, which begins at a multiple of `alignment`.
        words: Of the table of addresses.
        buffers: Blob of each place from 1 on.
        fixed: Word, place, bytes from its start.
        made: The arrays that are handed over.
        reason_without_entry: Why plain calls go the checked way, or `None`.
    """

    arena: int
    alignment: int
    words: int
    buffers: tuple[int, ...]
    fixed: tuple[tuple[int, int, int], ...]
    inputs: tuple[Brought, ...]
    made: tuple[Brought, ...]
    outputs: tuple[Output, ...]
    steps: tuple[PackedStep, ...]
    reason_without_entry: str | None

    def to_json(self) -> Json:
        """The program as `program_from` reads it."""
        return asdict(
            self, value_serializer=lambda _, __, value: repr(value) if isinstance(value, TensorType) else value
        )


def program_from(form: Json, nbytes_of: Callable[[int], int], functions: Mapping[str, int]) -> PackedProgram:
    """The program that was written.

    Args:
        nbytes_of: Bytes of a blob; raises FormatError if there is none of that number.
        functions: What the code has.

    Raises:
        FormatError: It is none, or speaks of words, places, bytes or functions that are not there.
    """
    form = need(form, dict, "a program")
    buffers = every(form.get("buffers"), lambda each: number(each, "a blob"))
    found = PackedProgram(
        arena=number(form.get("arena"), "the arena"),
        alignment=number(form.get("alignment"), "the alignment", low=1, high=1 << 16),
        words=number(form.get("words"), "the table", high=1 << 24),
        buffers=buffers,
        fixed=every(form.get("fixed"), _three),
        inputs=every(form.get("inputs"), lambda each: _brought(each, "an input")),
        made=every(form.get("made"), lambda each: _brought(each, "a result")),
        outputs=every(form.get("outputs"), _output),
        steps=every(form.get("steps"), _step),
        reason_without_entry=optional(form.get("reason_without_entry"), str, "a reason"),
    )
    _expect_sound(found, [found.arena, *map(nbytes_of, buffers)], functions)
    return found


# ------------------------------------------------------------------------------------------- reading


def _three(form: Json) -> tuple[int, int, int]:
    word, place, offset = (number(n, "an address") for n in items(form, 3, "an address"))
    return word, place, offset


def _two(form: Json) -> Word:
    word, offset = (number(n, "an address") for n in items(form, 2, "an address"))
    return word, offset


def _brought(form: Json, what: str) -> Brought:
    row = need(form, dict, what)
    return Brought(known_type(row.get("type")), every(row.get("words"), _two))


def _output(form: Json) -> Output:
    row = need(form, dict, "an output")
    source = row.get("source")
    if source not in ("place", "input", "made"):
        raise FormatError(f"package: an output is in {source!r}")
    return Output(
        known_type(row.get("type")),
        need(row.get("is_copied"), bool, "whether an output is copied"),
        source,
        number(row.get("number"), "a place"),
        number(row.get("offset"), "an offset"),
        tuple(need(n, int, "a stride") for n in need(row.get("strides"), list, "strides")),
    )


def _step(form: Json) -> PackedStep:
    row = need(form, dict, "a step")

    def word(name: str) -> int | None:
        return None if row.get(name) is None else number(row[name], "a word")

    us = row.get("us")
    return PackedStep(
        function=need(row.get("function"), str, "a function"),
        prologue=optional(row.get("prologue"), str, "a prologue"),
        first=number(row.get("first"), "a word"),
        parts=number(row.get("parts"), "parts", high=_MOST_PARTS + 1),
        is_threaded=need(row.get("is_threaded"), bool, "whether threads share a step"),
        shares=need(row.get("shares"), bool, "whether threads share steps inside"),
        polls=need(row.get("polls"), bool, "whether it lets signals be handled"),
        us=float(us if isinstance(us, int) else need(us, float, "a time")),
        workspace=word("workspace"),
        stride=number(row.get("stride"), "scratch memory"),
        shared=number(row.get("shared"), "scratch memory"),
        status=word("status"),
        fault=None if row.get("fault") is None else Fault.from_json(row["fault"]),
        label=need(row.get("label"), str, "a label"),
        line=line_of(row.get("line")),
    )


def _expect_sound(found: PackedProgram, places: Sequence[int], functions: Mapping[str, int]) -> None:
    """Every word, place, byte and function that a program speaks of is there."""
    words: list[int] = [word for word, _, _ in found.fixed]
    words += [word for each in (*found.inputs, *found.made) for word, _ in each.words]
    for step in found.steps:
        words += [step.first, *(w for w in (step.workspace, step.status) if w is not None)]
        missing = [name for name in (step.function, step.prologue) if name is not None and name not in functions]
        if missing:
            raise FormatError(f"package: its code has no function {missing[0]!r}")
    if words and max(words) >= found.words:
        raise FormatError(f"package: word {max(words)} of a table of {found.words}")
    for _, place, offset in found.fixed:
        if place >= len(places) or offset > places[place]:
            raise FormatError(f"package: byte {offset} of place {place} is not there")
    for each in (*found.inputs, *found.made):
        if any(offset > each.type.static_nbytes for _, offset in each.words):
            raise FormatError(f"package: an address lies outside of a {each.type}")
    sizes: Mapping[str, Sequence[int]] = {
        "place": places,
        "input": [each.type.static_nbytes for each in found.inputs],
        "made": [each.type.static_nbytes for each in found.made],
    }
    for output in found.outputs:
        _expect_within(output, sizes[output.source])


def _expect_within(output: Output, sizes: Sequence[int]) -> None:
    if output.number >= len(sizes) or len(output.strides) != output.type.rank:
        raise FormatError(f"package: an output lies in {output.source} {output.number}, of {len(sizes)}")
    low, high = extent(output.type, output.strides)
    if output.offset + low < 0 or output.offset + high > sizes[output.number]:
        raise FormatError(f"package: {output.type} does not lie within {output.source} {output.number}")
