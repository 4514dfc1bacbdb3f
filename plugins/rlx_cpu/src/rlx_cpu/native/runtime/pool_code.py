"""The native half of a pool: what threads do in a run, as one module of LLVM IR; its words are in `words`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import CALLED, I32, I64, POINTER, VOID, address, counting, index, pointer_to
from rlx_cpu.native.llvm.c_library import addresses
from rlx_cpu.native.llvm.ir.functions import declare
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.team import TEAM_BYTES, begin_team, help_others, team_functions
from rlx_cpu.native.runtime.clock_code import emit_clock
from rlx_cpu.native.runtime.code import (
    BUSY,
    CALLERS,
    GATE,
    GENERATION,
    HOME,
    JOB,
    LINE,
    MEETS,
    RECORD_WORDS,
    STATE_BYTES,
    STEP_WORDS,
    TEAM,
    WORKERS,
)

assert WORKERS == TEAM + TEAM_BYTES, "the block of a team lies before the lines of workers"

_STEPS, _COUNT, _TABLE, _RECORD, _STATE = (JOB + 8 * i for i in range(5))

_OPEN: Final = 1 << 32
"""The bit of the gate that lets workers in; below it is how many are inside."""

_PATIENCE: Final = 4096
"""Turns a waiting thread spins at a barrier before it offers its CPU to others, turn by turn."""


def emit_runtime(module: ir.Module, isa: Isa) -> None:
    """Add barriers, the loop over steps, and the two sides of a run."""
    _pauses(module, isa)
    emit_clock(module)
    team_functions(module, lambda b, place, value: _wait_for(b, isa, place, value))
    _take_and_leave(module)
    _drive(module, isa)
    _work(module, isa)
    _start(module)
    _finish(module, isa)
    _unpark(module)


def _read(b: ir.IRBuilder, place: ir.LlvmValue) -> ir.LlvmValue:
    return b.load_atomic(place, "seq_cst", 8, typ=I64)


def _write(b: ir.IRBuilder, place: ir.LlvmValue, value: ir.LlvmValue) -> None:
    b.atomic_rmw("xchg", place, value, "seq_cst")


def _pause(b: ir.IRBuilder, isa: Isa) -> None:
    if isa.pause is not None:
        b.call(declare(b.module, isa.pause, VOID, []), [])


def _yield(b: ir.IRBuilder) -> None:
    """Offer the CPU to another thread, where the platform's library is known to say how."""
    if "sched_yield" in addresses():
        b.call(declare(b.module, "sched_yield", I32, []), [])


def _function(module: ir.Module, name: str, result: ir.Type, count: int) -> tuple[ir.Function, ir.IRBuilder]:
    function = ir.Function(module, ir.FunctionType(result, [I64] * count), name)
    return function, ir.IRBuilder(function.append_basic_block("entry"))


def _pauses(module: ir.Module, isa: Isa) -> None:
    """`pauses(n)`: as many turns of a waiting loop, to find out how long one takes."""
    function, b = _function(module, "pauses", VOID, 1)
    with counting(b, 0, function.args[0]):
        _pause(b, isa)
    b.ret_void()


def _wait_for(
    b: ir.IRBuilder, isa: Isa, place: ir.LlvmValue, value: ir.LlvmValue, meanwhile: Callable[[], None] = lambda: None
) -> ir.LlvmValue:
    """Spin until the word at `place` is `value`; after a while, yield at every turn. After how many turns it was.

    Args:
        meanwhile: Builds what else is done at every turn.
    """
    function, before = b.function, b.block
    head, turn, tired, again, done = (function.append_basic_block(n) for n in ("wait", "turn", "tired", "again", "met"))
    b.branch(head)
    b.position_at_end(head)
    turns = b.phi(I64)
    turns.add_incoming(index(0), before)
    b.cbranch(b.icmp_signed("==", _read(b, place), value), done, turn)
    b.position_at_end(turn)
    meanwhile()
    _pause(b, isa)
    b.cbranch(b.icmp_unsigned(">", turns, index(_PATIENCE)), tired, again)
    b.position_at_end(tired)
    _yield(b)
    b.branch(again)
    b.position_at_end(again)
    turns.add_incoming(b.add(turns, index(1)), again)
    b.branch(head)
    b.position_at_end(done)
    return turns


def _take_and_leave(module: ir.Module) -> None:
    """`take(control)`: whether the pool was free, and is the caller's now; `leave(control)`: it is free again."""
    function, b = _function(module, "take", I64, 1)
    was = b.atomic_rmw("xchg", pointer_to(b, function.args[0], BUSY), index(1), "seq_cst")
    b.ret(b.zext(b.icmp_signed("==", was, index(0)), I64))
    function, b = _function(module, "leave", VOID, 1)
    _write(b, pointer_to(b, function.args[0], BUSY), index(0))
    b.ret_void()


def _drive(module: ir.Module, isa: Isa) -> None:
    """`drive(control, steps, count, table, record, tid, n)`: one thread's share of all steps; alone, every step as one part."""
    function, b = _function(module, "drive", VOID, 7)
    control, steps, count, table, record, tid, threads = function.args
    is_alone = b.icmp_signed("==", threads, index(1))
    is_recorded = b.icmp_signed("!=", record, index(0))
    team = b.add(control, index(TEAM))
    own_record = b.add(record, b.mul(b.mul(tid, count), index(8 * RECORD_WORDS)))
    states = b.alloca(I64)
    b.store(index(0), states, align=8)
    with b.if_then(b.not_(is_alone)):
        b.store(b.load(pointer_to(b, control, _STATE), typ=I64, align=8), states, align=8)
    mine, head = b.alloca(I64), b.alloca(I64)
    b.store(b.zext(is_alone, I64), mine, align=8)
    with counting(b, 0, count) as i:
        step = pointer_to(b, b.add(steps, b.mul(i, index(8 * STEP_WORDS))))
        line = b.add(own_record, b.mul(i, index(8 * RECORD_WORDS)))
        code, place, parts, bits = (b.load(address(b, step, 8 * k), typ=I64, align=8) for k in range(STEP_WORDS))
        meets = b.icmp_signed("!=", b.and_(bits, index(MEETS)), index(0))
        is_others = b.and_(
            b.icmp_signed("!=", b.and_(bits, index(CALLERS)), index(0)), b.icmp_signed("!=", tid, index(0))
        )
        run, buffers = b.inttoptr(code, POINTER), pointer_to(b, b.add(table, place))

        def call(
            part: ir.LlvmValue, run: ir.LlvmValue = run, buffers: ir.LlvmValue = buffers, parts: ir.LlvmValue = parts
        ) -> object:
            return b.call(run, [buffers, part, parts, tid, team], CALLED)

        _stamp(b, is_recorded, line, 0)
        with b.if_else(is_alone) as (alone, together):
            with alone:
                b.call(run, [buffers, index(0), index(1), index(0), index(0)], CALLED)
            with together, b.if_else(b.icmp_signed("==", parts, index(0))) as (continued, begun):
                with continued, b.if_then(b.icmp_signed("!=", b.load(mine, typ=I64, align=8), index(0))):
                    b.call(run, [buffers, index(0), index(1), tid, team], CALLED)
                with begun:
                    b.store(i, head, align=8)
                    b.store(index(0), mine, align=8)
                    with b.if_then(b.not_(is_others)):
                        _claim(b, _state_of(b, states, i), parts, tid, threads, mine, call)
        _stamp(b, b.and_(is_recorded, b.icmp_signed("!=", b.load(mine, typ=I64, align=8), index(0))), line, 1)
        with b.if_then(b.and_(meets, b.not_(is_alone))):
            first = b.load(head, typ=I64, align=8)
            expected = b.load(pointer_to(b, b.add(steps, b.mul(first, index(8 * STEP_WORDS))), 16), typ=I64, align=8)
            done = address(b, _state_of(b, states, first), 8)
            did = b.load(mine, typ=I64, align=8)
            with b.if_then(b.icmp_signed("!=", did, index(0))):
                b.atomic_rmw("add", done, did, "seq_cst")
            _wait_for(b, isa, done, expected, meanwhile=lambda: help_others(b, team, tid))
        _stamp(b, is_recorded, line, 2)
    b.ret_void()


def _state_of(b: ir.IRBuilder, states: ir.LlvmValue, step: ir.LlvmValue) -> ir.LlvmValue:
    return pointer_to(b, b.add(b.load(states, typ=I64, align=8), b.mul(step, index(STATE_BYTES))))


def _claim(
    b: ir.IRBuilder,
    claimed: ir.LlvmValue,
    parts: ir.LlvmValue,
    tid: ir.LlvmValue,
    threads: ir.LlvmValue,
    mine: ir.LlvmValue,
    run: Callable[[ir.LlvmValue], object],
) -> None:
    """Run the parts that this thread gets, beginning with its own share, and count them in `mine`."""
    start = b.sdiv(b.mul(tid, parts), threads)
    with counting(b, 0, parts) as turn:
        part = b.srem(b.add(start, turn), parts)
        bit = b.shl(index(1), part)
        with b.if_then(b.icmp_signed("==", b.and_(_read(b, claimed), bit), index(0))):
            before = b.atomic_rmw("or", claimed, bit, "seq_cst")
            with b.if_then(b.icmp_signed("==", b.and_(before, bit), index(0))):
                run(part)
                b.store(b.add(b.load(mine, typ=I64, align=8), index(1)), mine, align=8)


def _stamp(b: ir.IRBuilder, is_recorded: ir.LlvmValue, line: ir.LlvmValue, position: int) -> None:
    with b.if_then(is_recorded, likely=False):
        b.store(b.call(b.module.globals["clock"], []), pointer_to(b, line, 8 * position), align=8)


def _work(module: ir.Module, isa: Isa) -> None:
    """`work(control, tid, n, seen, turns)`: serve jobs until none came for `turns` turns; the last generation served."""
    function, b = _function(module, "work", I64, 5)
    control, tid, threads, seen, limit = function.args
    entry = b.block
    wait, turn, again, tired, back, asleep, enter, serve, leave = (
        function.append_basic_block(n)
        for n in ("wait", "turn", "again", "tired", "back", "asleep", "enter", "serve", "leave")
    )
    generation = pointer_to(b, control, GENERATION)
    gate = pointer_to(b, control, GATE)
    parked = _worker(b, control, tid)
    b.branch(wait)

    b.position_at_end(wait)
    last, turns = b.phi(I64), b.phi(I64)
    last.add_incoming(seen, entry)
    turns.add_incoming(index(0), entry)
    now = _read(b, generation)
    b.cbranch(b.icmp_signed("!=", now, last), enter, turn)

    b.position_at_end(turn)
    _pause(b, isa)
    b.cbranch(b.icmp_signed(">", turns, limit), tired, again)

    b.position_at_end(again)
    last.add_incoming(last, again)
    turns.add_incoming(b.add(turns, index(1)), again)
    b.branch(wait)

    # The starter of a run increments the generation and then checks for sleepers; a sleeper marks itself and then checks the
    # generation. At least one of the two sees the other.
    b.position_at_end(tired)
    _write(b, parked, index(1))
    b.cbranch(b.icmp_signed("!=", _read(b, generation), last), back, asleep)

    b.position_at_end(back)
    was = b.atomic_rmw("xchg", parked, index(0), "seq_cst")
    # If the mark is gone already, the other side has released the lock, and it must be taken.
    last.add_incoming(last, back)
    turns.add_incoming(index(0), back)
    b.cbranch(b.icmp_signed("==", was, index(1)), wait, asleep)

    b.position_at_end(asleep)
    b.ret(last)

    b.position_at_end(enter)
    # After the gate is closed the job must not be read: its run may be over, and its program freed.
    before = b.atomic_rmw("add", gate, index(1), "seq_cst")
    b.cbranch(b.icmp_signed("!=", b.and_(before, index(_OPEN)), index(0)), serve, leave)

    b.position_at_end(serve)
    steps, count, table, record = (
        b.load(pointer_to(b, control, offset), typ=I64, align=8) for offset in (_STEPS, _COUNT, _TABLE, _RECORD)
    )
    b.call(module.globals["drive"], [control, steps, count, table, record, tid, threads])
    b.branch(leave)

    b.position_at_end(leave)
    b.atomic_rmw("sub", gate, index(1), "seq_cst")
    last.add_incoming(now, leave)
    turns.add_incoming(index(0), leave)
    b.branch(wait)


def _worker(b: ir.IRBuilder, control: ir.LlvmValue, tid: ir.LlvmValue) -> ir.LlvmValue:
    return address(b, pointer_to(b, control, WORKERS), b.mul(tid, index(LINE)))


def _start(module: ir.Module) -> None:
    """`start(control, steps, count, table, record, state, n)`: publish a job; how many workers sleep or are on this CPU."""
    function, b = _function(module, "start", I64, 7)
    control, steps, count, table, record, state, threads = function.args
    fields = ((steps, _STEPS), (count, _COUNT), (table, _TABLE), (record, _RECORD), (state, _STATE))
    begin_team(b, b.add(control, index(TEAM)), threads)
    for value, offset in fields:
        b.store(value, pointer_to(b, control, offset), align=8)
    with counting(b, 0, b.mul(count, index(STATE_BYTES)), 8) as byte_offset:
        b.store(index(0), pointer_to(b, b.add(state, byte_offset)), align=8)
    b.atomic_rmw("add", pointer_to(b, control, GATE), index(_OPEN), "seq_cst")
    b.atomic_rmw("add", pointer_to(b, control, GENERATION), index(1), "seq_cst")
    total = b.alloca(I64)
    b.store(index(0), total, align=8)
    here: ir.LlvmValue = index(-2)
    if "sched_getcpu" in addresses():
        here = b.sext(b.call(declare(module, "sched_getcpu", I32, []), []), I64)
    with counting(b, 1, threads) as tid:
        worker = _worker(b, control, tid)
        is_asleep = b.icmp_signed("!=", _read(b, worker), index(0))
        is_here = b.icmp_signed("==", b.load(address(b, worker, HOME), typ=I64, align=8), here)
        b.store(b.add(b.load(total, typ=I64, align=8), b.zext(b.or_(is_asleep, is_here), I64)), total, align=8)
    b.ret(b.load(total, typ=I64, align=8))


def _finish(module: ir.Module, isa: Isa) -> None:
    """`finish(control, steps, count, table, record, n)`: the caller's own share; then shut the gate behind the workers."""
    function, b = _function(module, "finish", VOID, 6)
    control, steps, count, table, record, threads = function.args
    b.call(module.globals["drive"], [control, steps, count, table, record, index(0), threads])
    gate = pointer_to(b, control, GATE)
    b.atomic_rmw("sub", gate, index(_OPEN), "seq_cst")
    _wait_for(b, isa, gate, index(0))
    b.ret_void()


def _unpark(module: ir.Module) -> None:
    """`unpark(control, tid)`: whether a worker slept; it does not any more."""
    function, b = _function(module, "unpark", I64, 2)
    control, tid = function.args
    b.ret(b.atomic_rmw("xchg", _worker(b, control, tid), index(0), "seq_cst"))
