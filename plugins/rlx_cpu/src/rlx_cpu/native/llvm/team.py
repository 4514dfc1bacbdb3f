"""Sharing a step inside a loop: the thread that runs the loop publishes it, and threads that wait for the loop's end take
parts.

One thread leads: it runs the loop and alone decides what comes next. The others are in the barrier after the loop, where they
poll for parts. The leader waits only for parts that have been started, so a thread that is late, or descheduled, delays only
the part that it is executing; the result of a part does not depend on the thread. After a wait that is far too long the leader
works alone for a while: a processor that is shared with other programs then costs a loop some milliseconds, and not at every
step.

The word `CLAIM` contains the number of steps shared so far (high half) and which parts of the last one are free (low half). A
thread reads it, then the step, and takes a part by compare-and-swap of the word: that fails if another step has been published.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import CALLED, I1, I64, POINTER, VOID, index, least, pointer_to
from rlx_cpu.native.llvm.ir.functions import declare

MOST_SHARED: Final = 32
"""Parts of a shared step: half a word."""

# Byte offsets in a team's block; words that different threads write are in separate cache lines.
_CLAIM, _STEP, _DONE, TEAM_BYTES = 0, 64, 128, 192
_FUNCTION, _BUFFERS, _PARTS, _THREADS, SHARE, _ALONE, _PENALTY = (_STEP + 8 * i for i in range(7))
"""`SHARE` contains the address of the function `share`, for separately linked code."""

SHARED: Final = ir.FunctionType(VOID, [I64] * 5)
"""`share(team, function, buffers, parts, tid)`: all parts of a step, complete when it returns."""

_HALF: Final = 32

_SHORT_TURNS, _SHORT_NS = 256, 20_000
"""A wait of fewer turns is not timed; one that took so much longer than twice the leader's own share has met a thread that lost
its processor to another program."""

_FEWEST_ALONE, _MOST_ALONE, _DECAY = 256, 1 << 16, 8
"""Minimum and maximum number of steps run alone after a long wait; it grows if that recurs, and decays by 2^-8 a step."""


def team_functions(
    module: ir.Module, wait_for: Callable[[ir.IRBuilder, ir.LlvmValue, ir.LlvmValue], ir.LlvmValue]
) -> None:
    """Add `share`, and `help` (which takes parts of a shared step until none is free).

    Args:
        wait_for: Builds a loop that ends when the word at a place has a value; returns its number of iterations.
    """
    _help(module)
    # its address is taken, which code in a package reaches by distance only
    b = ir.new_function(module, SHARED, "share", is_internal=True)
    team, run, buffers, max_parts, tid = b.function.args
    threads = b.load(pointer_to(b, team, _THREADS), typ=I64, align=8)
    alone = b.load(pointer_to(b, team, _ALONE), typ=I64, align=8)
    with b.if_then(b.icmp_signed(">", alone, index(0)), likely=False):
        b.store(b.sub(alone, index(1)), pointer_to(b, team, _ALONE), align=8)
        b.call(b.inttoptr(run, POINTER), [b.inttoptr(buffers, POINTER), index(0), index(1), tid, index(0)], CALLED)
        b.ret_void()
    begun = b.call(module.globals["clock"], [])
    requested = b.select(b.icmp_signed("<", max_parts, threads), threads, max_parts)
    parts = least(b, requested, index(MOST_SHARED))
    for value, offset in ((run, _FUNCTION), (buffers, _BUFFERS), (parts, _PARTS), (index(0), _DONE)):
        b.store(value, pointer_to(b, team, offset), align=8)
    number = b.add(b.lshr(_claimed(b, team), index(_HALF)), index(1))
    free = b.sub(b.shl(index(1), parts), index(1))
    b.atomic_rmw("xchg", pointer_to(b, team, _CLAIM), b.or_(b.shl(number, index(_HALF)), free), "seq_cst")
    b.call(module.globals["help"], [team, tid])
    worked = b.call(module.globals["clock"], [])
    turns = wait_for(b, pointer_to(b, team, _DONE), parts)
    _judge(b, team, turns, b.sub(worked, begun), worked)
    b.ret_void()


def _judge(b: ir.IRBuilder, team: ir.LlvmValue, turns: ir.LlvmValue, work: ir.LlvmValue, worked: ir.LlvmValue) -> None:
    """Go on alone for a while after a wait that was far too long; twice as long as the last time, if that is not long ago."""
    penalty = b.load(pointer_to(b, team, _PENALTY), typ=I64, align=8)
    milder = b.sub(penalty, b.lshr(penalty, index(_DECAY)))
    b.store(milder, pointer_to(b, team, _PENALTY), align=8)
    with b.if_then(b.icmp_signed(">", turns, index(_SHORT_TURNS)), likely=False):
        waited = b.sub(b.call(b.module.globals["clock"], []), worked)
        longest = b.add(b.mul(work, index(2)), index(_SHORT_NS))
        with b.if_then(b.icmp_signed(">", waited, longest)):
            twice = b.add(b.mul(penalty, index(2)), index(_FEWEST_ALONE))
            steps = least(b, twice, index(_MOST_ALONE))
            b.store(steps, pointer_to(b, team, _PENALTY), align=8)
            b.store(steps, pointer_to(b, team, _ALONE), align=8)


def begin_team(b: ir.IRBuilder, team: ir.LlvmValue, threads: ir.LlvmValue) -> None:
    """Note what threads find there; nothing is shared yet."""
    b.store(threads, pointer_to(b, team, _THREADS), align=8)
    b.store(b.ptrtoint(b.module.globals["share"], I64), pointer_to(b, team, SHARE), align=8)


def help_others(b: ir.IRBuilder, team: ir.LlvmValue, tid: ir.LlvmValue) -> None:
    """Take parts of a shared step, if any is free."""
    is_any = b.icmp_signed("!=", _free(b, _claimed(b, team)), index(0))
    with b.if_then(is_any, likely=False):
        b.call(b.module.globals["help"], [team, tid])


def _help(module: ir.Module) -> None:
    """`help(team, tid)`: parts of the step that is shared, a thread's own share first."""
    b = ir.new_function(module, ir.FunctionType(VOID, [I64, I64]), "help", is_internal=True)
    team, tid = b.function.args
    look, take, run, over = (b.append_basic_block(name) for name in ("look", "take", "run", "over"))
    b.branch(look)
    b.position_at_end(look)
    claim = _claimed(b, team)
    free = _free(b, claim)
    b.cbranch(b.icmp_signed("!=", free, index(0)), take, over)
    b.position_at_end(take)
    code, buffers, parts, threads = (
        b.load_atomic(pointer_to(b, team, offset), "monotonic", 8, typ=I64)
        for offset in (_FUNCTION, _BUFFERS, _PARTS, _THREADS)
    )
    start = b.sdiv(b.mul(tid, parts), threads)
    own_parts = b.shl(b.lshr(free, start), start)
    part = _lowest(b, b.select(b.icmp_signed("!=", own_parts, index(0)), own_parts, free))
    without = b.and_(claim, b.not_(b.shl(index(1), part)))
    b.cbranch(b.compare_exchange(pointer_to(b, team, _CLAIM), claim, without), run, look)
    b.position_at_end(run)
    b.call(b.inttoptr(code, POINTER), [b.inttoptr(buffers, POINTER), part, parts, tid, index(0)], CALLED)
    b.atomic_rmw("add", pointer_to(b, team, _DONE), index(1), "seq_cst")
    b.branch(look)
    b.position_at_end(over)
    b.ret_void()


def _lowest(b: ir.IRBuilder, bits: ir.LlvmValue) -> ir.LlvmValue:
    return b.call(declare(b.module, "llvm.cttz.i64", I64, [I64, I1]), [bits, ir.LlvmConstant(I1, 1)])


def _claimed(b: ir.IRBuilder, team: ir.LlvmValue) -> ir.LlvmValue:
    return b.load_atomic(pointer_to(b, team, _CLAIM), "seq_cst", 8, typ=I64)


def _free(b: ir.IRBuilder, claim: ir.LlvmValue) -> ir.LlvmValue:
    return b.and_(claim, index((1 << _HALF) - 1))
