"""An execution plan as a part of a package: the buffers that never change are blobs of the file, which a program reads as its
parameters.

All references of a form to buffers and bytes are checked before a program is built, so that a form of another version, or one
written by hand, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from attrs import field

from rlx_core.errors import FormatError
from rlx_core.ir.dtypes import u8
from rlx_core.ir.forms import Json, items, need
from rlx_core.ir.strides import extent
from rlx_core.ir.types import TensorType
from rlx_core.pipeline.packages import Keep
from rlx_core.run.packaged.reading import every, known_type, number
from rlx_core.run.plan import ARENA, BufferId, ExecutionPlan, Location, PlanLeaf, PlannedOutput
from rlx_core.system.records import define, frozen

PLAN_VERSION: Final = 2
"""Changed whenever programs of earlier packages cannot be read; version 1 had no number."""

_KINDS = ("arena", "param", "input", "result")


@define(eq=False)
class PlanWriter:
    """Writes a plan whose parameters are bound.

    Attributes:
        plan: The plan.
        params: The bound arrays on the host, by number.
        keep: Stores the bytes of an array as a blob.
    """

    plan: ExecutionPlan
    params: Sequence[np.ndarray]
    keep: Keep
    _blobs: list[int] = field(factory=list)
    _numbers: dict[BufferId, BufferId] = field(factory=dict)

    def buffer(self, buffer: BufferId) -> BufferId:
        """A buffer as forms name it; the contents of one that never changes are stored."""
        if buffer.kind not in ("constant", "param"):
            return buffer
        if buffer not in self._numbers:
            arrays = self.plan.constants if buffer.kind == "constant" else self.params
            self._numbers[buffer] = self.blob(arrays[buffer.number])
        return self._numbers[buffer]

    def blob(self, array: np.ndarray) -> BufferId:
        """The buffer of an array that never changes; equal ones are one."""
        blob = self.keep(array)
        if blob not in self._blobs:
            self._blobs.append(blob)
        return BufferId("param", self._blobs.index(blob))

    def to_json(self) -> dict[str, object]:
        """The plan, once every buffer that code refers to was named."""
        plan = self.plan
        outputs = [
            {
                "name": each.name,
                "type": repr(each.type),
                "is_copied": each.kind == "copy",
                "location": None if each.location is None else self._location(each.location),
            }
            for each in plan.outputs
        ]
        return {
            "name": plan.name,
            "arena": plan.arena_nbytes,
            "alignment": plan.alignment,
            "inputs": [{"name": leaf.name, "type": repr(leaf.type)} for leaf in plan.inputs],
            "results": [repr(type) for type in plan.results],
            "outputs": outputs,
            "blobs": self._blobs,
        }

    def _location(self, location: Location) -> list[object]:
        return [*self.buffer(location.buffer), location.offset, list(location.strides)]


@frozen(eq=False)
class PackedPlan:
    """A plan that was read.

    Attributes:
        plan: Its parameters are the blobs.
        blobs: Their numbers in the file.
        nbytes: The bytes of each buffer.
    """

    plan: ExecutionPlan
    blobs: tuple[int, ...]
    nbytes: Mapping[BufferId, int]

    @classmethod
    def from_json(cls, form: Json, target: str, nbytes_of: Callable[[int], int]) -> PackedPlan:
        """The plan that `PlanWriter` wrote.

        Args:
            nbytes_of: The bytes of a blob; raises FormatError for an unknown number.

        Raises:
            FormatError: The form is not a plan, or refers to bytes that are not there.
        """
        row = need(form, dict, "a plan")
        blobs = every(row.get("blobs"), lambda each: number(each, "a blob"))
        inputs, results = every(row.get("inputs"), _leaf), every(row.get("results"), known_type)
        arena = number(row.get("arena"), "the arena")
        nbytes = {ARENA: arena}
        nbytes |= {BufferId("param", i): nbytes_of(blob) for i, blob in enumerate(blobs)}
        nbytes |= {BufferId("input", i): leaf.type.static_nbytes for i, leaf in enumerate(inputs)}
        nbytes |= {BufferId("result", i): type.static_nbytes for i, type in enumerate(results)}
        plan = ExecutionPlan(
            name=need(row.get("name"), str, "a name"),
            target=target,
            alignment=number(row.get("alignment"), "the alignment", low=1, high=1 << 16),
            arena_nbytes=arena,
            inputs=inputs,
            params=tuple(PlanLeaf(f"blob {blob}", TensorType(u8, (nbytes_of(blob),))) for blob in blobs),
            constants=(),
            results=results,
            outputs=every(row.get("outputs"), _output),
        )
        for output in plan.outputs:
            _expect_within(output, nbytes)
        return cls(plan, blobs, nbytes)

    @property
    def types(self) -> tuple[tuple[TensorType, ...], tuple[TensorType, ...]]:
        """The types of the inputs and of the outputs."""
        return tuple(leaf.type for leaf in self.plan.inputs), tuple(each.type for each in self.plan.outputs)

    def expect_types(self, number: int, inputs: tuple[TensorType, ...], outputs: tuple[TensorType, ...]) -> None:
        """Require the types that the package's manifest states.

        Raises:
            FormatError: The program has other types.
        """
        if self.types != (inputs, outputs):
            raise FormatError(
                f"package: program {number} is from {self.types[0]} to {self.types[1]}, and called from {inputs} to {outputs}"
            )


def reason_against_version(form: Mapping[str, Json]) -> str | None:
    """Why the programs of a package's code cannot be read, as the end of a sentence about it; `None` if they can."""
    version = form.get("plans", 1)
    return (
        None
        if version == PLAN_VERSION
        else f"has programs of version {version}, and this rlx reads version {PLAN_VERSION}"
    )


def buffer_from(kind: Json, place: Json) -> BufferId:
    """A buffer that a form names.

    Raises:
        FormatError: It is not a buffer.
    """
    if kind not in _KINDS:
        raise FormatError(f"package: a buffer is of the kind {kind!r}")
    return BufferId(kind, number(place, "a buffer"))


def expect_inside(buffer: BufferId, offset: int, nbytes: Mapping[BufferId, int], *, may_end: bool) -> None:
    """Require that a byte is inside a buffer; with `may_end` it may be the one behind the last.

    Raises:
        FormatError: There is no such buffer, or it is smaller.
    """
    if buffer not in nbytes or offset > nbytes[buffer] - (0 if may_end else 1):
        raise FormatError(f"package: byte {offset} of {buffer.kind} {buffer.number} is not there")


def _leaf(form: Json) -> PlanLeaf:
    row = need(form, dict, "an input")
    return PlanLeaf(need(row.get("name"), str, "a name"), known_type(row.get("type")))


def _output(form: Json) -> PlannedOutput:
    row = need(form, dict, "an output")
    type, location = known_type(row.get("type")), None
    if row.get("location") is not None:
        kind, place, offset, strides = items(row["location"], 4, "a location")
        steps = tuple(need(n, int, "a stride") for n in need(strides, list, "strides"))
        location = Location(buffer_from(kind, place), number(offset, "an offset"), steps)
    is_copied = need(row.get("is_copied"), bool, "whether an output is copied")
    return PlannedOutput(need(row.get("name"), str, "a name"), type, "copy" if is_copied else "own", location)


def _expect_within(output: PlannedOutput, nbytes: Mapping[BufferId, int]) -> None:
    location, type = output.location, output.type
    if location is None:
        if type.size:
            raise FormatError(f"package: {type} lies nowhere")
        return
    if len(location.strides) != type.rank or (output.kind == "own" and location.buffer.kind != "result"):
        raise FormatError(f"package: {type} cannot lie in {location.buffer.kind} {location.buffer.number}")
    low, high = extent(type, location.strides)
    if location.buffer not in nbytes or location.offset + low < 0 or location.offset + high > nbytes[location.buffer]:
        raise FormatError(f"package: {type} does not lie within {location.buffer.kind} {location.buffer.number}")
