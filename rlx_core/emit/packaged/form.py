"""A device's program as data: everything that running it takes but its modules and its weights, which are blobs of the file.

What launches are given is said by *places*: 0 is the arena of a run, 1 its workspace, then come buffers that never change, the
inputs, and the buffers that are made for results. A form is held against itself and the blobs before anything is made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from attrs import asdict, frozen

from rlx_core.codegen.places import Fault
from rlx_core.emit.packaged.reading import every, known_type, line_of, number
from rlx_core.errors import Fact, FormatError, RlxError
from rlx_core.ir.forms import Json, items, need
from rlx_core.ir.provenance import Source
from rlx_core.ir.types import TensorType

__all__ = ["ARENA", "FIRST_BUFFER", "WORKSPACE", "PackedCall", "PackedFault", "PackedOutput", "PackedProgram"]

ARENA: Final = 0
WORKSPACE: Final = 1
FIRST_BUFFER: Final = 2

_MOST_THREADS: Final = 1 << 31


@frozen
class PackedCall:
    """A launch.

    Attributes:
        function: Its name in a module.
        groups, group_size: How many threads run it.
        arguments: The place and the byte of each.
        faults: How many of the program's faults, those after the faults of the calls before, it can report.
        dynamic_nbytes: Memory that the threads of a group share besides what the function declares.
    """

    function: str
    groups: int
    group_size: int
    arguments: tuple[tuple[int, int], ...]
    faults: int
    dynamic_nbytes: int = 0


@frozen
class PackedFault:
    """What to say of an index that a launch reports: the message, and the node with the user's line."""

    message: str
    label: str
    line: tuple[str, int] | None

    def __call__(self, index: int | None, place: int) -> RlxError:
        where = Fact("node", self.label, None if self.line is None else Source(*self.line))
        return Fault(self.message)(index, place).with_fact(where)


@frozen
class PackedOutput:
    """Where a result lies, densely."""

    type: TensorType
    place: int
    offset: int


@frozen(eq=False)
class PackedProgram:
    """A program.

    Attributes:
        arena, workspace: Bytes.
        buffers: The blob of each buffer that never changes.
        made: Bytes of the buffers that are made for results.
    """

    arena: int
    workspace: int
    buffers: tuple[int, ...]
    inputs: tuple[TensorType, ...]
    made: tuple[int, ...]
    outputs: tuple[PackedOutput, ...]
    calls: tuple[PackedCall, ...]
    faults: tuple[PackedFault, ...]

    @property
    def first_input(self) -> int:
        return FIRST_BUFFER + len(self.buffers)

    @property
    def used(self) -> frozenset[int]:
        """The places that launches and results are in."""
        given = {place for call in self.calls for place, _ in call.arguments}
        return frozenset(given | {output.place for output in self.outputs if output.type.size})

    def sizes(self, nbytes_of: Callable[[int], int]) -> list[int]:
        """The bytes of every place, given those of a blob."""
        inputs = [type.static_nbytes for type in self.inputs]
        return [self.arena, self.workspace, *map(nbytes_of, self.buffers), *inputs, *self.made]

    def to_json(self) -> Json:
        """The program as `from_json` reads it."""
        form = asdict(
            self,
            filter=lambda attribute, _: attribute.name != "inputs",
            value_serializer=lambda _, __, value: repr(value) if isinstance(value, TensorType) else value,
        )
        return {**form, "inputs": [repr(type) for type in self.inputs]}

    @classmethod
    def from_json(cls, form: Json, nbytes_of: Callable[[int], int], functions: Mapping[str, object]) -> PackedProgram:
        """The program that was written.

        Args:
            nbytes_of: Bytes of a blob; raises FormatError if there is none of that number.
            functions: What the modules have.

        Raises:
            FormatError: It is none, or speaks of places, bytes or functions that are not there.
        """
        row = need(form, dict, "a program")
        found = cls(
            arena=number(row.get("arena"), "the arena"),
            workspace=number(row.get("workspace"), "the workspace"),
            buffers=every(row.get("buffers"), lambda each: number(each, "a blob")),
            inputs=every(row.get("inputs"), known_type),
            made=every(row.get("made"), lambda each: number(each, "a buffer")),
            outputs=every(row.get("outputs"), _output),
            calls=every(row.get("calls"), _call),
            faults=every(row.get("faults"), _fault),
        )
        _expect_sound(found, found.sizes(nbytes_of), functions)
        return found


# ------------------------------------------------------------------------------------------- reading


def _output(form: Json) -> PackedOutput:
    row = need(form, dict, "an output")
    return PackedOutput(
        known_type(row.get("type")), number(row.get("place"), "a place"), number(row.get("offset"), "a byte")
    )


def _argument(form: Json) -> tuple[int, int]:
    place, offset = (number(n, "an argument") for n in items(form, 2, "an argument"))
    return place, offset


def _call(form: Json) -> PackedCall:
    row = need(form, dict, "a call")
    return PackedCall(
        function=need(row.get("function"), str, "a function"),
        groups=number(row.get("groups"), "groups", low=1, high=_MOST_THREADS),
        group_size=number(row.get("group_size"), "threads", low=1, high=_MOST_THREADS),
        arguments=every(row.get("arguments"), _argument),
        faults=number(row.get("faults"), "faults"),
        dynamic_nbytes=number(row.get("dynamic_nbytes", 0), "bytes of a group"),
    )


def _fault(form: Json) -> PackedFault:
    row = need(form, dict, "a fault")
    return PackedFault(
        need(row.get("message"), str, "a message"), need(row.get("label"), str, "a label"), line_of(row.get("line"))
    )


def _expect_sound(found: PackedProgram, sizes: Sequence[int], functions: Mapping[str, object]) -> None:
    """Every place, byte, fault and function that a program speaks of is there."""
    for call in found.calls:
        if call.function not in functions:
            raise FormatError(f"package: no module has a function {call.function!r}")
        for place, offset in call.arguments:
            if place >= len(sizes) or offset >= sizes[place]:
                raise FormatError(f"package: byte {offset} of place {place} is not there")
    if sum(call.faults for call in found.calls) != len(found.faults):
        raise FormatError(f"package: its calls report other than {len(found.faults)} faults")
    for output in found.outputs:
        end = output.offset + output.type.static_nbytes
        if output.type.size and (output.place >= len(sizes) or end > sizes[output.place]):
            raise FormatError(f"package: {output.type} does not lie within place {output.place}")
