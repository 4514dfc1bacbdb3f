"""A device's program in a package: its plan, its launches, and the faults that they report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from rlx_core.codegen.places import Fault
from rlx_core.emit.code import PlannedCall
from rlx_core.emit.emitters import Call
from rlx_core.errors import Fact, FormatError, RlxError
from rlx_core.ir.forms import Json, items, need
from rlx_core.ir.lir import Step
from rlx_core.run.packaged.plan_form import PackedPlan, PlanWriter, buffer_from, expect_inside
from rlx_core.run.packaged.reading import every, node_form, node_from, number
from rlx_core.run.plan import Location
from rlx_core.system.records import frozen

_MAX_THREADS: Final = 1 << 31
_MAX_NBYTES: Final = 1 << 31


@frozen
class ModuleText:
    """A module of a package: its functions, and the blobs of its source and of a driver's binary."""

    functions: tuple[str, ...]
    source: int
    binary: int | None


@frozen
class PackedFault:
    """The error for an index that a launch reports: the message, and the node with the user's line."""

    message: str
    node: Fact

    def __call__(self, index: int | None, place: int) -> RlxError:
        return Fault(self.message)(index, place).with_fact(self.node)


@frozen(eq=False)
class PackedLaunches:
    """A program that was read: its plan, and its launches in order."""

    plan: PackedPlan
    workspace_nbytes: int
    calls: tuple[PlannedCall, ...]

    @classmethod
    def from_json(
        cls, form: Json, target: str, nbytes_of: Callable[[int], int], functions: Mapping[str, object]
    ) -> PackedLaunches:
        """Return the program of a form.

        Args:
            nbytes_of: Returns the bytes of a blob; raises FormatError if no blob has that number.
            functions: The functions of the modules.

        Raises:
            FormatError: The form is not a program, or refers to buffers, bytes or functions that are not there.
        """
        row = need(form, dict, "a program")
        plan = PackedPlan.from_json(row.get("plan"), target, nbytes_of)
        workspace = number(row.get("workspace"), "the workspace")
        rows = every(row.get("calls"), lambda each: need(each, dict, "a call"))
        calls = tuple(_call(i, each, plan, workspace) for i, each in enumerate(rows))
        for each in calls:
            if each.call.function not in functions:
                raise FormatError(f"package: no module has a function {each.call.function!r}")
        return cls(plan, workspace, calls)


def launches_form(plan: PlanWriter, calls: list[PlannedCall], workspace: int, steps: tuple[Step, ...]) -> Json:
    """A program as `PackedLaunches.from_json` reads it."""
    rows = [
        {
            "function": each.call.function,
            "groups": each.call.groups,
            "group_size": each.call.group_size,
            "arguments": [
                [*plan.buffer(a.buffer), a.offset] if isinstance(a, Location) else ["workspace", 0, a]
                for a in each.arguments
            ],
            "faults": [_fault_form(fault.message, steps[each.step]) for fault in each.call.faults],
            "dynamic_nbytes": each.call.dynamic_nbytes,
        }
        for each in calls
    ]
    return {"calls": rows, "workspace": workspace, "plan": plan.to_json()}


def _fault_form(message: str, step: Step) -> Json:
    return {"message": message, **node_form(Fact("node", step.node.label, step.node.origin.source))}


def _call(step: int, row: dict[str, Any], plan: PackedPlan, workspace: int) -> PlannedCall:
    call = Call(
        function=need(row.get("function"), str, "a function"),
        groups=number(row.get("groups"), "groups", low=1, high=_MAX_THREADS),
        group_size=number(row.get("group_size"), "threads", low=1, high=_MAX_THREADS),
        buffers=(),
        dynamic_nbytes=number(row.get("dynamic_nbytes", 0), "bytes of a group", high=_MAX_NBYTES),
    )
    arguments = every(row.get("arguments"), lambda each: _argument(each, plan, workspace))
    return PlannedCall(call, step, arguments, every(row.get("faults"), _fault))


def _argument(form: Json, plan: PackedPlan, workspace: int) -> Location | int:
    kind, place, byte = items(form, 3, "an argument")
    offset: int = number(byte, "an argument")
    if kind == "workspace":
        if offset >= workspace:
            raise FormatError(f"package: byte {offset} of a workspace of {workspace}")
        return offset
    buffer = buffer_from(kind, place)
    expect_inside(buffer, offset, plan.nbytes, may_end=False)
    return Location(buffer, offset, ())


def _fault(form: Json) -> PackedFault:
    row = need(form, dict, "a fault")
    return PackedFault(need(row.get("message"), str, "a message"), node_from(row))
