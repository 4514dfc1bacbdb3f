"""Scatter by owners: the thread of a result's element combines all updates that go there, in the order of the updates.

Nothing is sorted and no two threads write one element, so the result does not depend on the order in which threads run. A thread
reads every index of its batch; an update it reads only where the index is its own.
"""

from __future__ import annotations

from typing import Literal

from rlx_core.codegen.gpu.assembler import Register, TextAssembler
from rlx_core.codegen.gpu.functions import Function, assembled
from rlx_core.codegen.gpu.languages import Argument, Language
from rlx_core.codegen.gpu.memory import Memory, index_text
from rlx_core.codegen.gpu.reductions import Reductions
from rlx_core.codegen.gpu.tiles import Factor
from rlx_core.codegen.gpu.walks import Machine
from rlx_core.codegen.loops import Buffer, Combine
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.ir.dtypes import i32, i64
from rlx_core.system.records import frozen

__all__ = ["OwnedScatter", "print_scatter"]

Outside = Literal["drop", "clip", "report"]
"""What becomes of an update whose index lies outside: nothing, the nearest element, or nothing but a fault."""

_COMBINE: dict[str, Combine] = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}


@frozen
class OwnedScatter:
    """`result[…, index[…, u], …]` combined with `updates[…, u, …]` for every update u; a factor's depth is along u.

    Attributes:
        extents: Of the result.
        axis: The axis of the result that indices count along.
        count: Updates of one index each.
        buffers: Of the problem.
        base: What the result begins with; without it, zeros.
        mode: "set" keeps the last update.
    """

    extents: tuple[int, ...]
    axis: int
    count: int
    buffers: tuple[Buffer, ...]
    index: Factor
    updates: Factor
    base: Factor | None
    result: Factor
    mode: Literal["set", "add", "mul", "max", "min"] = "add"
    outside: Outside = "report"


def print_scatter(problem: OwnedScatter, language: Language, machine: Machine, scalars: ScalarTable) -> Function:
    """The function of a problem whose result has elements and whose indices fit into 32 bits."""
    p, b = problem, TextAssembler(language)
    factors = [f for f in (p.index, p.updates, p.base, p.result) if f is not None]
    names = {buffer: f"m{i}" for i, buffer in enumerate(sorted({f.buffer for f in factors}))}
    points = 1
    for size in p.extents:
        points *= size
    groups = min(-(-points // machine.group), machine.most_groups)
    first = f"{language.group} * {machine.group}u + {language.thread}"
    step = f"{groups * machine.group}u"
    with b.writer.block(language.loop("u32", "i", first, f"{points}u", step)):
        _owned(p, b, names, scalars)
    arguments = {
        buffer: Argument(name, p.buffers[buffer].dtype, buffer == p.result.buffer) for buffer, name in names.items()
    }
    return assembled("scatter", b, arguments, (), machine.group, groups, (0,) if p.outside == "report" else ())


def _owned(p: OwnedScatter, b: TextAssembler, names: dict[int, str], scalars: ScalarTable) -> None:
    """One element of the result."""
    places: dict[int, str] = {}
    divisor = 1
    for axis in reversed(range(len(p.extents))):
        places[axis] = f"g{axis}"
        b.writer.line(b.language.declared("u32", places[axis], f"i / {divisor}u % {p.extents[axis]}u"))
        divisor *= p.extents[axis]
    memory, dtype = Memory(b, "u32"), p.buffers[p.result.buffer].dtype

    def located(factor: Factor, depth: str | None) -> str:
        coordinates = {**places, len(p.extents): depth or "0u"}
        return index_text(
            (*factor.strides, factor.depth), factor.offset, p.buffers[factor.buffer].dtype.itemsize, coordinates
        )

    def loaded(factor: Factor, depth: str | None = None) -> Register:
        return memory.load(names[factor.buffer], p.buffers[factor.buffer].dtype, located(factor, depth))

    reductions = Reductions(b, scalars, 1, None)
    total = b.variable(loaded(p.base) if p.base is not None else reductions.identity("sum", dtype))
    own = b.resized(Register(f"({places[p.axis]})", i32), i64, is_signed=False)
    with b.writer.block(b.language.loop("u32", "u", "0u", f"{p.count}u", "1u")):
        index = b.resized(loaded(p.index, "u"), i64, is_signed=p.buffers[p.index.buffer].dtype.kind == "int")
        if p.outside == "clip":
            index = _held(b, index, p.extents[p.axis])
        elif p.outside == "report":
            _reported(p, b, index, places)
        with b.writer.block(f"if ({b.icmp_unsigned('==', index, own).text}) {{"):
            update = loaded(p.updates, "u")
            b.assign(total, update if p.mode == "set" else reductions.combined(_COMBINE[p.mode], dtype, total, update))
    memory.store(names[p.result.buffer], dtype, located(p.result, None), total)


def _held(b: TextAssembler, index: Register, size: int) -> Register:
    """The nearest index inside an axis."""
    zero, last = b.literal(i64, 0), b.literal(i64, size - 1)
    low = b.select(b.icmp_signed("<", index, zero), zero, index)
    return b.select(b.icmp_signed(">", low, last), last, low)


def _reported(p: OwnedScatter, b: TextAssembler, index: Register, places: dict[int, str]) -> None:
    """An index outside is a fault at the number of its update among those of all batches, which the owners of the first element
    of the axis report."""
    is_inside = b.icmp_unsigned("<", index, b.literal(i64, p.extents[p.axis]))
    place, step = "u", p.count
    for axis in reversed(range(len(p.extents))):
        if p.index.strides[axis]:
            place += f" + {places[axis]} * {step}u"
            step *= p.extents[axis]
    with b.writer.block(f"if ({places[p.axis]} == 0u && !{is_inside.text}) {{"):
        b.writer.line(b.language.fault(0, place, index.text))
