"""An allocator for NumPy in LLVM IR: blocks begin at a cache line, and large freed blocks are cached.

Cached blocks form a ring: a new block replaces the oldest. For very large ones the system may reclaim the pages at any time
(Linux's `MADV_FREE`); until then a new owner of the block reuses resident pages.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rlx_cpu.native.contract import ALIGNMENT
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I32, I64, POINTER, VOID, Variable, address, counting, index
from rlx_cpu.native.llvm.ir.functions import declare
from rlx_cpu.native.runtime.result_memory_words import (
    BUSY,
    CACHED_NBYTES,
    FIRST,
    LARGE,
    MAX_CACHED_NBYTES,
    OFFERED,
    SLOTS,
    TURN,
)

_HEAD: Final = 64
"""Bytes in front of a block, the last two words of which say where the C library's block starts and how many bytes fit."""

_HUGE_PAGE, _FREE = 14, 8  # advice to Linux


def emit_allocator(module: ir.Module) -> None:
    """Add `new`, `new_zeroed`, `resized` and `freed` to a module; the first argument of each is the state."""
    _AllocatorCode(module).write()


class _AllocatorCode:
    """The functions while they are written."""

    def __init__(self, module: ir.Module) -> None:
        self.module = module
        self.malloc = declare(module, "malloc", POINTER, [I64])
        self.free = declare(module, "free", VOID, [POINTER])
        self.new = ir.Function(module, ir.FunctionType(POINTER, [POINTER, I64]), "new")
        self.freed = ir.Function(module, ir.FunctionType(VOID, [POINTER, POINTER, I64]), "freed")

    def write(self) -> None:
        self.write_new()
        self.write_freed()
        self.write_new_zeroed()
        self.write_resized()

    def write_new(self) -> None:
        """A block: one that is kept and has about as many bytes, or a new one."""
        state, size = self.new.args
        b = ir.IRBuilder(self.new.append_basic_block("entry"))
        block_start = Variable.of(b, _NULL)
        with b.if_then(b.icmp_unsigned(">=", size, index(LARGE))), self.alone(b, state):
            max_size = b.add(size, b.lshr(size, index(2)))
            with counting(b, 0, SLOTS) as i:
                start, capacity = self.slot(b, state, i)
                slot_size = b.load(capacity, typ=I64, align=8)
                is_suitable = b.and_(b.icmp_unsigned(">=", slot_size, size), b.icmp_unsigned("<=", slot_size, max_size))
                is_first = b.icmp_unsigned("==", block_start.value(b), _NULL)
                with b.if_then(b.and_(is_suitable, is_first)):
                    block_start.set(b, b.load(start, typ=POINTER, align=8))
                    self.clear(b, state, i)
        cached = block_start.value(b)
        with b.if_then(b.icmp_unsigned("!=", cached, _NULL)):
            b.ret(self.block_in(b, cached))
        total_size = b.add(size, index(2 * _HEAD))
        fresh = b.call(self.malloc, [total_size])
        block_start.set(b, fresh)
        with b.if_then(b.icmp_unsigned("==", fresh, _NULL), likely=False):
            with self.alone(b, state), counting(b, 0, SLOTS) as i:
                self.drop(b, state, i)
            again = b.call(self.malloc, [total_size])
            with b.if_then(b.icmp_unsigned("==", again, _NULL)):
                b.ret(_NULL)
            block_start.set(b, again)
        start = block_start.value(b)
        block = self.block_in(b, start)
        with b.if_then(b.icmp_unsigned(">=", size, index(LARGE))):
            self.advise(b, block, size, _HUGE_PAGE)
        b.store(start, address(b, block, -16), align=8)
        b.store(size, address(b, block, -8), align=8)
        b.ret(block)

    def write_freed(self) -> None:
        """Free a block: a large one is cached and replaces the oldest."""
        state, block, _ = self.freed.args
        b = ir.IRBuilder(self.freed.append_basic_block("entry"))
        with b.if_then(b.icmp_unsigned("==", block, _NULL)):
            b.ret_void()
        start = b.load(address(b, block, -16), typ=POINTER, align=8)
        size = b.load(address(b, block, -8), typ=I64, align=8)
        left = Variable.of(b, start)
        is_kept = b.and_(
            b.icmp_unsigned(">=", size, index(LARGE)), b.icmp_unsigned("<=", size, index(MAX_CACHED_NBYTES))
        )
        with b.if_then(is_kept), self.alone(b, state):
            self.make_room(b, state, size)
            turn = b.load(self.word(b, state, TURN), typ=I64, align=8)
            self.drop(b, state, turn)
            with b.if_then(b.icmp_unsigned(">", size, index(OFFERED))):
                self.advise(b, block, size, _FREE)
            to, capacity = self.slot(b, state, turn)
            b.store(start, to, align=8)
            b.store(size, capacity, align=8)
            cached_nbytes = self.word(b, state, CACHED_NBYTES)
            b.store(b.add(b.load(cached_nbytes, typ=I64, align=8), size), cached_nbytes, align=8)
            self.move_on(b, state)
            left.set(b, _NULL)
        b.call(self.free, [left.value(b)])
        b.ret_void()

    def write_new_zeroed(self) -> None:
        b = ir.new_function(self.module, ir.FunctionType(POINTER, [POINTER, I64, I64]), "new_zeroed")
        state, count, size = b.function.args
        nbytes = b.mul(count, size)
        block = b.call(self.new, [state, nbytes])
        with b.if_then(b.icmp_unsigned("!=", block, _NULL)):
            b.call(
                declare(self.module, "memset", POINTER, [POINTER, I32, I64]), [block, ir.LlvmConstant(I32, 0), nbytes]
            )
        b.ret(block)

    def write_resized(self) -> None:
        b = ir.new_function(self.module, ir.FunctionType(POINTER, [POINTER, POINTER, I64]), "resized")
        state, old, size = b.function.args
        block = b.call(self.new, [state, size])
        both = b.and_(b.icmp_unsigned("!=", old, _NULL), b.icmp_unsigned("!=", block, _NULL))
        with b.if_then(both):
            before = b.load(address(b, old, -8), typ=I64, align=8)
            least = b.select(b.icmp_unsigned("<", before, size), before, size)
            b.call(declare(self.module, "memcpy", POINTER, [POINTER, POINTER, I64]), [block, old, least])
            b.call(self.freed, [state, old, before])
        b.ret(block)

    # -------------------------------------------------------------------------------------- the ring

    @contextmanager
    def alone(self, b: ir.IRBuilder, state: ir.LlvmValue) -> Iterator[None]:
        """Context that runs with exclusive access to the state, and is skipped if another thread has it."""
        busy = self.word(b, state, BUSY)
        with b.if_then(b.icmp_signed("==", b.atomic_rmw("xchg", busy, index(1), "seq_cst"), index(0))):
            yield
            b.atomic_rmw("xchg", busy, index(0), "release")

    def word(self, b: ir.IRBuilder, state: ir.LlvmValue, which: int) -> ir.LlvmValue:
        return address(b, state, 8 * which)

    def slot(self, b: ir.IRBuilder, state: ir.LlvmValue, i: ir.LlvmValue) -> tuple[ir.LlvmValue, ir.LlvmValue]:
        """Return the addresses of the start and of the bytes of a slot's block."""
        entry = address(b, self.word(b, state, FIRST), b.shl(i, index(4)))
        return entry, address(b, entry, 8)

    def clear(self, b: ir.IRBuilder, state: ir.LlvmValue, i: ir.LlvmValue) -> None:
        """A slot without a block."""
        start, capacity = self.slot(b, state, i)
        cached_nbytes = self.word(b, state, CACHED_NBYTES)
        b.store(
            b.sub(b.load(cached_nbytes, typ=I64, align=8), b.load(capacity, typ=I64, align=8)), cached_nbytes, align=8
        )
        b.store(_NULL, start, align=8)
        b.store(index(0), capacity, align=8)

    def drop(self, b: ir.IRBuilder, state: ir.LlvmValue, i: ir.LlvmValue) -> None:
        """A slot's block goes back to the C library, which takes nothing for nothing."""
        start, _ = self.slot(b, state, i)
        b.call(self.free, [b.load(start, typ=POINTER, align=8)])
        self.clear(b, state, i)

    def make_room(self, b: ir.IRBuilder, state: ir.LlvmValue, size: ir.LlvmValue) -> None:
        """Drop the oldest blocks until `size` more bytes fit."""
        with counting(b, 0, SLOTS):
            cached_nbytes = b.load(self.word(b, state, CACHED_NBYTES), typ=I64, align=8)
            with b.if_then(b.icmp_unsigned(">", b.add(cached_nbytes, size), index(MAX_CACHED_NBYTES))):
                self.drop(b, state, b.load(self.word(b, state, TURN), typ=I64, align=8))
                self.move_on(b, state)

    def move_on(self, b: ir.IRBuilder, state: ir.LlvmValue) -> None:
        turn = self.word(b, state, TURN)
        b.store(b.urem(b.add(b.load(turn, typ=I64, align=8), index(1)), index(SLOTS)), turn, align=8)

    # ------------------------------------------------------------------------------------ a block

    def block_in(self, b: ir.IRBuilder, start: ir.LlvmValue) -> ir.LlvmValue:
        """Return the start of the block in memory allocated by the C library."""
        return self.rounded_up(b, address(b, start, _HEAD), ALIGNMENT)

    def rounded_up(self, b: ir.IRBuilder, pointer: ir.LlvmValue, alignment: int) -> ir.LlvmValue:
        number = b.add(b.ptrtoint(pointer, I64), index(alignment - 1))
        return b.inttoptr(b.and_(number, index(-alignment)), POINTER)

    def advise(self, b: ir.IRBuilder, block: ir.LlvmValue, size: ir.LlvmValue, advice: int) -> None:
        """Advise Linux about the pages that are completely in a block: data in front of it must stay."""
        if sys.platform != "linux":
            return
        first = self.rounded_up(b, block, mmap.PAGESIZE)
        end = b.add(b.ptrtoint(block, I64), size)
        nbytes = b.and_(b.sub(end, b.ptrtoint(first, I64)), index(-mmap.PAGESIZE))
        function = declare(self.module, "madvise", I32, [POINTER, I64, I32])
        b.call(function, [first, nbytes, ir.LlvmConstant(I32, advice)])


_NULL: Final = ir.LlvmConstant(POINTER, None)
