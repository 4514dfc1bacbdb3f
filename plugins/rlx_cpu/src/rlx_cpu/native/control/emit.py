"""The functions of `If`, `While` and `Scan`: one thread runs the loop and calls the functions of the bodies' steps.

Waiting threads execute parts of those steps that are large enough (`llvm.team`). Loop-invariant operands are packed before the
first iteration: with the parameters if they are bound, else by the function itself.

Carries are stored in the results: each iteration reads them there, and its new carries are copied there at its end. Carries
that are permutations of old carries (`a, b = b, a`) are first copied to temporary memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rlx_core.codegen.places import Fault, Layout
from rlx_core.ir.graph import Node
from rlx_core.ir.lir import Lir
from rlx_core.ir.op import Op
from rlx_core.ops.control.conditional import If
from rlx_core.ops.control.loop import While
from rlx_core.ops.control.scan import Scan
from rlx_core.system.records import frozen
from rlx_cpu.native.contract import (
    STATUS_ASK,
    STATUS_LEFT,
    STATUS_RECORD,
    BufferPositions,
    EmitNested,
    EmitStep,
    Emitted,
    aligned,
)
from rlx_cpu.native.control.bodies import Body, BodyMemory, move, whole
from rlx_cpu.native.control.making import Bodies, InputOrigin
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import CALLED, I8, I64, POINTER, Variable, address, counting
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import index, pointer_at
from rlx_cpu.native.table import native
from rlx_cpu.native.work import estimated_us, rounds


@frozen(eq=False)
class LoopFrame:
    """A function under construction, and its arguments.

    Attributes:
        kinds: For each kind of its fault, the index of the first kind of a step's fault, from 0 on.
    """

    b: ir.IRBuilder
    isa: Isa
    operands: Sequence[ir.LlvmValue]
    results: Sequence[ir.LlvmValue]
    memory: BodyMemory
    aside: ir.LlvmValue
    unasked: int
    kinds: Mapping[Fault, int]

    @property
    def status(self) -> ir.LlvmValue:
        """The step's status words."""
        assert self.memory.status is not None, "who holds a fault, or a loop that asks, has some"
        return self.memory.status

    def run(self, body: Body) -> None:
        """Run a body, and hand on its faults: the first one stays, but for a loop's that was left."""
        body.run(self.b)
        for words, fault in body.statuses:
            self._report(words, 0 if fault is None else self.kinds[fault])

    def leave_if_asked(self, left: ir.Block) -> None:
        """Ask, every so many turns, whether a signal's handler has raised; then go to `left`."""
        if not self.unasked:
            return
        b, status = self.b, self.status
        with b.goto_entry_block():
            count = Variable.of(b, index(self.unasked))
        remaining = b.sub(count.value(b), index(1))
        count.set(b, remaining)
        with b.if_then(b.icmp_signed("==", remaining, index(0)), likely=False):
            count.set(b, index(self.unasked))
            ask, record = (b.load(address(b, status, n), typ=I64, align=8) for n in (STATUS_ASK, STATUS_RECORD))
            with b.if_then(b.icmp_signed("!=", ask, index(0))):
                answer = b.call(b.inttoptr(ask, POINTER), [record], POLL_FUNCTION)
                with b.if_then(b.icmp_signed("!=", answer, index(0)), likely=False):
                    b.store(index(STATUS_LEFT), status, align=8)
                    b.branch(left)

    def leave_if_left(self, left: ir.Block) -> None:
        """Go to `left` if a loop inside was left."""
        b, status = self.b, self.status
        with b.if_then(b.icmp_signed("==", b.load(status, typ=I64, align=8), index(STATUS_LEFT)), likely=False):
            b.branch(left)

    def _report(self, words: ir.LlvmValue, before: int) -> None:
        """Hand on the status words of a step, whose kinds of faults come after so many others."""
        b, status = self.b, self.status
        kind = b.load(words, typ=I64, align=8)
        with b.if_then(b.icmp_signed("!=", kind, index(0)), likely=False):
            was_left = b.icmp_signed("<", kind, index(0))
            is_first = b.icmp_signed("==", b.load(status, typ=I64, align=8), index(0))
            with b.if_then(b.or_(is_first, was_left)):
                b.store(b.load(address(b, words, 8), typ=I64, align=8), address(b, status, 8), align=8)
                b.store(b.select(was_left, kind, b.add(kind, index(before))), status, align=8)


SHORT_US: Final = 1000
"""A loop that is expected to end in fewer microseconds is not left before."""

POLL_US, MOST_UNASKED = 10, 256
"""Microseconds of turns after which a longer one asks whether it is to be left, and how many turns they are at most."""

POLL_FUNCTION: Final = ir.FunctionType(I64, [I64])
"""`interrupted(record)`."""

FEWEST_ROUNDS: Final = 4
"""Rounds from which packing what they read takes less than it saves."""


def emit_control(
    module: ir.Module,
    node: Node,
    layout: Layout,
    plans: Mapping[str, Lir],
    offset: int,
    isa: Isa,
    name: str,
    emit: EmitStep,
) -> Emitted:
    """Emit the function of a step with nested graphs.

    Args:
        module: The module to add it to.
        node: The step's node.
        layout: Layout of its operands and results.
        plans: Plans of its graphs, by attribute.
        offset: Bytes from the step's workspace to the graphs' memory.
        isa: The target instruction set.
        name: The function's name.
        emit: Adds the function of a step of a graph.
    """
    bodies = Bodies(module, name, emit)
    by_attribute = {attribute: bodies.of(plan, origins(node.op, plan, layout)) for attribute, plan in plans.items()}
    aside = _aside_nbytes(node.op, by_attribute)
    shared = aside + bodies.hoisted_nbytes + max(body.shared for body in by_attribute.values())
    workspace = max(body.workspace for body in by_attribute.values())
    faults, kinds = _numbered(fault for body in by_attribute.values() for fault in body.faults)
    us = sum(estimated_us(step, isa.machine.speed) for plan in plans.values() for step in plan.steps)
    has_end = not isinstance(node.op, While) or node.op.max_steps is not None
    # A loop that may not end, or that takes long enough to notice, has to let signals be handled: Ctrl-C would wait for its end.
    asks = not has_end or (not isinstance(node.op, If) and us * rounds(node.op) > SHORT_US)
    polls = asks or any(body.polls for body in by_attribute.values())
    b = ir.new_function(module, CALLED, name)
    buffers, _, _, thread, team = b.function.args
    count = len(node.operands)
    # The positions are those of the `Emitted` below, and the arena's word exists if one of the plans has an arena.
    positions = BufferPositions.of(
        node, has_workspace=shared + workspace > 0, packs=len(bodies.packs), has_status=bool(faults) or polls,
        has_arena=any(plan.arena_nbytes for plan in plans.values()),
    )  # fmt: skip
    pointers = [pointer_at(b, buffers, k) for k in range(count + len(node.results))]
    scratch = buffers if positions.workspace is None else pointer_at(b, buffers, positions.workspace)
    packs = [pointer_at(b, buffers, k) for k in positions.packs]
    status = None if positions.status is None else pointer_at(b, buffers, positions.status)
    arena = buffers if positions.arena is None else address(b, pointer_at(b, buffers, positions.arena), offset)
    memory = BodyMemory(arena, address(b, scratch, shared), address(b, scratch, aside), packs, thread, team, status)
    # Iterations between two polls: about `POLL_US` of work, however short an iteration is estimated to be.
    turns = max(int(POLL_US / max(us, POLL_US / MOST_UNASKED)), 1) if asks else 0
    frame = LoopFrame(b, isa, pointers[:count], pointers[count:], memory, scratch, turns, kinds)
    op: Any = node.op
    if isinstance(op, If):
        _choose(frame, by_attribute["then"], by_attribute["otherwise"])
    elif isinstance(op, While):
        _repeat(frame, op, by_attribute["cond"], by_attribute["body"])
    else:
        _step_through(frame, op, by_attribute["body"])
    b.ret_void()
    return Emitted(
        name,
        packs=tuple(bodies.packs),
        workspace=workspace,
        shared_workspace=shared,
        fault=Fault.among(faults),
        polls=polls,
        uses_threads=False,
        shares=any(body.shares for body in by_attribute.values()),
    )


def _numbered(steps: Iterable[Fault]) -> tuple[list[Fault], dict[Fault, int]]:
    """The kinds of all faults one after the other, and how many come before each fault's; those of equal faults are the same."""
    kinds: list[Fault] = []
    before: dict[Fault, int] = {}
    for fault in steps:
        if fault not in before:
            before[fault] = len(kinds)
            kinds += fault.kinds
    return kinds, before


def origins(op: Op, plan: Lir, layout: Layout) -> list[InputOrigin]:
    """Return the origins of the inputs of one of an op's graphs."""
    bound = [place is not None and place.is_bound for place in layout.operands]
    count = len(plan.graph.inputs)
    if isinstance(op, If):
        return [InputOrigin(1 + i, is_bound=bound[1 + i]) for i in range(count)]
    if isinstance(op, Scan):
        assert isinstance(op.length, int), "sizes are known when code is made"
        rounds, first = op.length, op.carries + op.consts
    else:
        assert isinstance(op, While), "no other op holds graphs here"
        rounds, first = FEWEST_ROUNDS if op.max_steps is None else op.max_steps, count
    carried = [InputOrigin()] * op.carries
    consts = (InputOrigin(i, is_bound=bound[i], is_held=rounds >= FEWEST_ROUNDS) for i in range(op.carries, first))
    return [*carried, *consts, *(InputOrigin(i, rounds, is_bound=bound[i]) for i in range(first, count))]


# ------------------------------------------------------------------------------------------------ the ops


def _choose(f: LoopFrame, then: Body, otherwise: Body) -> None:
    b, x = f.b, f.operands[1:]
    with b.if_else(_holds(b, f.operands[0])) as branches:
        for branch, body in zip(branches, (then, otherwise), strict=True):
            with branch:
                body.begin(b, f.memory, x)
                f.run(body)
                for number, value in enumerate(body.lir.graph.outputs):
                    move(b, f.isa, value, body.placed(number), body.output(b, number, f.memory, x), f.results[number])


def _repeat(f: LoopFrame, op: While, cond: Body, body: Body) -> None:
    b = f.b
    inputs = [*f.results, *f.operands[op.carries :]]
    _enter(f, op.carries, body)
    for each in (cond, body):
        each.begin(b, f.memory, inputs)
    head, test, go, done = (b.append_basic_block(name) for name in ("while", "test", "go", "over"))
    before = b.block
    b.branch(head)
    b.position_at_end(head)
    turn = b.phi(I64)
    turn.add_incoming(index(0), before)
    if op.max_steps is None:
        b.branch(test)
    else:
        b.cbranch(b.icmp_signed("<", turn, index(op.max_steps)), test, done)
    b.position_at_end(test)
    f.run(cond)
    goes = _holds(b, cond.output(b, 0, f.memory, inputs))
    for words, _ in (*cond.statuses, *body.statuses):  # what follows a fault may never end
        goes = b.and_(goes, b.icmp_signed("==", b.load(words, typ=I64, align=8), index(0)))
    b.cbranch(goes, go, done)
    b.position_at_end(go)
    f.run(body)
    _carry(f, op.carries, body, inputs)
    f.leave_if_asked(done)
    turn.add_incoming(b.add(turn, index(1)), b.block)
    b.branch(head)
    b.position_at_end(done)


def _step_through(f: LoopFrame, op: Scan, body: Body) -> None:
    b, first = f.b, op.carries + op.consts
    assert isinstance(op.length, int), "sizes are known when code is made"
    inputs = [*f.results[: op.carries], *f.operands[op.carries :]]
    _enter(f, op.carries, body)
    body.begin(b, f.memory, inputs)
    left = b.append_basic_block("left")
    with counting(b, 0, op.length) as turn:
        t = b.sub(index(op.length - 1), turn) if op.reverse else turn
        for number, value in enumerate(body.lir.graph.inputs[first:], first):
            inputs[number] = address(b, f.operands[number], b.mul(t, index(value.type.static_nbytes)))
            body.place(b, number, inputs[number])
        body.turn(b, t)
        f.run(body)
        for number, value in enumerate(body.lir.graph.outputs[op.carries :], op.carries):
            to = address(b, f.results[number], b.mul(t, index(value.type.static_nbytes)))
            move(b, f.isa, value, body.placed(number), body.output(b, number, f.memory, inputs), to)
        _carry(f, op.carries, body, inputs)
        if body.polls:
            f.leave_if_left(left)
        f.leave_if_asked(left)
    b.branch(left)
    b.position_at_end(left)


# ------------------------------------------------------------------------------------------------ carries


def _enter(f: LoopFrame, carries: int, body: Body) -> None:
    """The carries of the first step."""
    for number, value in enumerate(body.lir.graph.inputs[:carries]):
        move(f.b, f.isa, value, whole(value), f.operands[number], f.results[number])


def _crossing(body: Body, carries: int) -> list[int]:
    """Return the carries whose new values share memory with other carries, which are about to be written."""
    carried = body.lir.graph.inputs[:carries]
    return [
        number
        for number in range(carries)
        if any(body.placed(number).root is root for root in carried) and not body.is_input(number, number)
    ]


def _carry(f: LoopFrame, carries: int, body: Body, inputs: Sequence[ir.LlvmValue]) -> None:
    """The carries of the next step."""
    b, outputs = f.b, body.lir.graph.outputs
    crossing = _crossing(body, carries)
    places: dict[int, ir.LlvmValue] = {}
    start = 0
    for number in crossing:  # copied first, because the carry that it is read from may be written before it
        places[number] = address(b, f.aside, start)
        start += aligned(outputs[number].type.static_nbytes)
        move(b, f.isa, outputs[number], body.placed(number), body.output(b, number, f.memory, inputs), places[number])
    for number in range(carries):
        value = outputs[number]
        if number in places:
            move(b, f.isa, value, whole(value), places[number], f.results[number])
        elif not body.is_input(number, number):
            move(b, f.isa, value, body.placed(number), body.output(b, number, f.memory, inputs), f.results[number])


def _aside_nbytes(op: Any, bodies: Mapping[str, Body]) -> int:
    if isinstance(op, If):
        return 0
    body = bodies["body"]
    outputs = body.lir.graph.outputs
    return sum(aligned(outputs[number].type.static_nbytes) for number in _crossing(body, op.carries))


def _holds(b: ir.IRBuilder, place: ir.LlvmValue) -> ir.LlvmValue:
    return b.icmp_signed("!=", b.load(place, typ=I8, align=1), ir.LlvmConstant(I8, 0))


native.register(If, While, Scan, accepts_strides=False, runs_nested=True, name="control")(EmitNested(emit_control))
