"""`enter`: the built-in function that runs a program, in LLVM IR; one for all programs, controlled by words.

A program's entry is this function with its own `self`: a tuple whose first item is an array of words. They describe the
arguments, the results to allocate, the destinations of their addresses, and the calls. `enter` decides one thing only: whether
a call is plain. If it is not, there has been no side effect and the result is `NotImplemented`; the caller then takes the
checked path, which raises an error or copies. It runs with the interpreter's lock held except during long programs.

Arguments and results are `HostArray`s, each of which refers to a NumPy array; NumPy arrays are arguments too. A call owns a
reference to every argument's NumPy array while it runs, because another thread may donate the argument or replace its elements.
Between the first check of an argument and the donation of all, nothing allocates and no Python code runs, so no other thread
can intervene under the interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import CALLED, I1, I32, I64, POINTER, VOID, Variable, address, counting, index, variable
from rlx_cpu.native.llvm.ir.functions import declare
from rlx_cpu.native.runtime.code import BUSY, LINE, WORKERS
from rlx_cpu.native.runtime.entry_words import Mode, Word
from rlx_cpu.native.runtime.interpreter import ARRAY, NEW_ARRAY, OBJECT_TYPE, SET_ALLOCATOR, TUPLE_ITEMS

_STATUS_BYTES: Final = 32

_MXCSR_MODES: Final = 0xE040
"""Bits of the x86 control word, all zero where it rounds to nearest and keeps subnormals."""
_FPCR_MODES: Final = 0x1C00000
"""The same of AArch64's."""

_INPUT_WORDS, _OUTPUT_WORDS, _PLACE_WORDS, _COPY_WORDS, _CALL_WORDS, _DONATED_WORDS = 5, 5, 2, 3, 2, 2

_OWNED_ONCE: Final = 2
"""Number of references to an array that may be overwritten: those of its `HostArray` and of the call."""


def emit_enter(module: ir.Module) -> None:
    """Add `enter` to a module."""
    kind = ir.FunctionType(POINTER, [POINTER, POINTER, I64])
    _Enter(ir.Function(module, kind, "enter")).write()


class _Enter:
    """The function while it is written. `self`, `args` and the count are CPython's `METH_FASTCALL`."""

    def __init__(self, function: ir.Function) -> None:
        self.function = function
        self.self, self.args, self.count = function.args
        self.b = ir.IRBuilder(function.append_basic_block("entry"))
        self.refused = function.append_basic_block("refused")
        self.declined = function.append_basic_block("declined")
        self.dropped = function.append_basic_block("dropped")

    def write(self) -> None:
        b = self.b
        self.words = self.load(POINTER, self.load(POINTER, self.self, TUPLE_ITEMS), ARRAY.data)
        self.cursor = Variable.new(b, I64)
        self.results = Variable.new(b, POINTER)
        self.taken = Variable.new(b, I64)  # how many arguments' arrays the call has a reference to
        self.go_on_if(b.icmp_signed("==", self.word(Word.BUSY), index(0)), self.declined)
        watched = b.load(b.inttoptr(self.word(Word.WATCHED), POINTER), typ=I64, align=8)
        self.go_on_if(b.icmp_signed("==", watched, index(0)), self.declined)
        self.go_on_if(b.icmp_signed("==", self.count, self.word(Word.INPUTS)), self.declined)
        self.expect_standard_modes()
        self.set_word(Word.BUSY, index(1))
        self.take_inputs()
        self.expect_no_overlap()
        self.donate()
        self.make_outputs()
        self.run()
        self.expect_no_fault()
        self.copy()
        self.deliver()
        self.write_refusals()

    def expect_standard_modes(self) -> None:
        """This thread rounds to nearest and keeps subnormals; else the checked path sees to it."""
        b = self.b
        if self.function.module.triple.startswith(("x86_64", "amd64")):
            place = variable(b, I32)
            b.call(self.outside("llvm.x86.sse.stmxcsr", VOID, [POINTER]), [place])
            modes = b.and_(b.load(place, typ=I32, align=4), ir.LlvmConstant(I32, _MXCSR_MODES))
            self.go_on_if(b.icmp_signed("==", modes, ir.LlvmConstant(I32, 0)), self.declined)
        elif self.function.module.triple.startswith(("aarch64", "arm64")):
            modes = b.and_(b.call(self.outside("llvm.aarch64.get.fpcr", I64, []), []), index(_FPCR_MODES))
            self.go_on_if(self.same(modes, index(0)), self.declined)

    # --------------------------------------------------------------------------------- arguments

    def take_inputs(self) -> None:
        """Every argument is an array as it was compiled for; its address goes where steps read it."""
        b = self.b
        self.taken.set(b, index(0))
        self.start_at(Word.INPUT_RECORDS)
        with counting(b, 0, self.count) as i:
            descr, rank, flags, nbytes, places = self.record(_INPUT_WORDS)
            array = b.load(self.reference(i)[0], typ=POINTER, align=8)
            self.go_on_if(b.icmp_unsigned("!=", array, _NULL), self.refused)
            self.go_on_if(self.same(self.type_of(array), self.word(Word.ARRAY_TYPE)), self.refused)
            self.incref(array)
            b.store(array, self.taken_at(i), align=8)
            self.taken.set(b, b.add(i, index(1)))
            self.go_on_if(self.same(self.load(I64, array, ARRAY.descr), descr), self.refused)
            self.go_on_if(self.same(b.sext(self.load(I32, array, ARRAY.ndim), I64), rank), self.refused)
            has = b.and_(b.zext(self.load(I32, array, ARRAY.flags), I64), flags)
            self.go_on_if(self.same(has, flags), self.refused)
            dims = self.load(POINTER, array, ARRAY.dims)
            with counting(b, 0, rank) as axis:
                dimension = b.load(address(b, dims, b.shl(axis, index(3))), typ=I64, align=8)
                self.go_on_if(self.same(dimension, self.next_word()), self.refused)
            data = self.load(I64, array, ARRAY.data)
            span = address(b, b.inttoptr(self.word(Word.SPANS), POINTER), b.shl(i, index(4)))
            b.store(data, span, align=8)
            b.store(b.add(data, nbytes), address(b, span, 8), align=8)
            self.put(data, places)

    def reference(self, number: ir.LlvmValue) -> tuple[ir.LlvmValue, ir.LlvmValue]:
        """Return the address of the reference to an argument's NumPy array, and whether that is in a `HostArray`."""
        b = self.b
        place = address(b, self.args, b.shl(number, index(3)))
        argument = b.load(place, typ=POINTER, align=8)
        is_wrapped = self.same(self.type_of(argument), self.word(Word.HOST_ARRAY_TYPE))
        return b.select(is_wrapped, self.elements(argument), place), is_wrapped

    def elements(self, wrapper: ir.LlvmValue) -> ir.LlvmValue:
        """Return the address of a `HostArray`'s reference to its NumPy array."""
        return address(self.b, wrapper, self.word(Word.ELEMENTS_OFFSET))

    def taken_at(self, number: ir.LlvmValue) -> ir.LlvmValue:
        """Return the address of the call's reference to an argument's NumPy array."""
        return address(self.b, self.b.inttoptr(self.word(Word.TAKEN), POINTER), self.b.shl(number, index(3)))

    def expect_no_overlap(self) -> None:
        """A donated argument shares no byte with another, nor with a parameter, and nothing else refers to its elements."""
        b = self.b
        spans = b.inttoptr(self.word(Word.SPANS), POINTER)
        known = b.add(self.count, self.word(Word.PARAMETERS))
        self.start_at(Word.DONATED_RECORDS)
        with counting(b, 0, self.word(Word.DONATED)):
            donated, _ = self.record(_DONATED_WORDS)
            self.expect_owned_once(donated)
            begin, end = self.span(spans, donated)
            with counting(b, 0, known) as other:
                low, high = self.span(spans, other)
                meet = b.and_(b.icmp_unsigned("<", begin, high), b.icmp_unsigned("<", low, end))
                is_empty = b.or_(self.same(begin, end), self.same(low, high))
                fine = b.or_(b.or_(self.same(donated, other), is_empty), b.not_(meet))
                self.go_on_if(fine, self.refused)

    def expect_owned_once(self, number: ir.LlvmValue) -> None:
        """Only its `HostArray` refers to an argument's elements: the NumPy array is no view, and there is no view of it."""
        b = self.b
        with b.if_then(self.reference(number)[1]):
            array = b.load(self.taken_at(number), typ=POINTER, align=8)
            count = b.load(array, typ=I32, align=4)
            self.go_on_if(b.icmp_signed("==", count, ir.LlvmConstant(I32, _OWNED_ONCE)), self.refused)
            base = self.load(POINTER, array, ARRAY.base)
            with b.if_then(b.icmp_unsigned("!=", base, _NULL), likely=False):
                is_subtype = self.outside("PyType_IsSubtype", I32, [POINTER, POINTER])
                kinds = [b.inttoptr(each, POINTER) for each in (self.type_of(base), self.word(Word.ARRAY_TYPE))]
                self.go_on_if(self.same(b.call(is_subtype, kinds), ir.LlvmConstant(I32, 0)), self.refused)

    def donate(self) -> None:
        """Take the elements from the `HostArray`s of donated arguments; the call's references remain."""
        with self.donated() as (place, array, marker):
            self.incref(marker)
            self.b.store(marker, place, align=8)
            self.decref(array)

    def take_back(self) -> None:
        """Undo `donate`."""
        with self.donated() as (place, array, marker):
            self.incref(array)
            self.b.store(array, place, align=8)
            self.decref(marker)

    @contextmanager
    def donated(self) -> Iterator[tuple[ir.LlvmValue, ir.LlvmValue, ir.LlvmValue]]:
        """Loop over each donated `HostArray`: the address of its reference, its elements, and its marker."""
        b = self.b
        self.start_at(Word.DONATED_RECORDS)
        with counting(b, 0, self.word(Word.DONATED)):
            number, marker = self.record(_DONATED_WORDS)
            place, is_wrapped = self.reference(number)
            with b.if_then(is_wrapped):
                yield place, b.load(self.taken_at(number), typ=POINTER, align=8), b.inttoptr(marker, POINTER)

    def release(self) -> None:
        """Drop the call's references to the arguments' elements."""
        b = self.b
        with counting(b, 0, self.taken.value(b)) as i:
            self.decref(b.load(self.taken_at(i), typ=POINTER, align=8))

    def span(self, spans: ir.LlvmValue, number: ir.LlvmValue) -> tuple[ir.LlvmValue, ir.LlvmValue]:
        b = self.b
        entry = address(b, spans, b.shl(number, index(4)))
        return b.load(entry, typ=I64, align=8), self.load(I64, entry, 8)

    # ----------------------------------------------------------------------------------- results

    def make_outputs(self) -> None:
        """A tuple of `HostArray`s: of new arrays, and of donated arguments that come back."""
        b = self.b
        count = self.word(Word.OUTPUTS)
        outputs = b.call(self.outside("PyTuple_New", POINTER, [I64]), [count])
        self.results.set(b, outputs)
        self.go_on_if(b.icmp_unsigned("!=", outputs, _NULL), self.dropped)
        self.start_at(Word.OUTPUT_RECORDS)
        new = self.outside(NEW_ARRAY, POINTER, [POINTER, POINTER, I32, POINTER, POINTER, POINTER, I32, POINTER])
        allocate = self.outside("PyType_GenericAlloc", POINTER, [POINTER, I64])
        with counting(b, 0, count) as i:
            argument, descr, rank, places, allocator = self.record(_OUTPUT_WORDS)
            wrapper = b.call(allocate, [b.inttoptr(self.word(Word.HOST_ARRAY_TYPE), POINTER), index(0)])
            b.store(wrapper, address(b, address(b, outputs, TUPLE_ITEMS), b.shl(i, index(3))), align=8)
            self.go_on_if(b.icmp_unsigned("!=", wrapper, _NULL), self.dropped)
            with b.if_else(b.icmp_signed(">=", argument, index(0))) as (donated, fresh):
                with donated:
                    array = b.load(self.taken_at(argument), typ=POINTER, align=8)
                    self.incref(array)
                    b.store(array, self.elements(wrapper), align=8)
                with fresh:
                    kind, dtype = b.inttoptr(self.word(Word.ARRAY_TYPE), POINTER), b.inttoptr(descr, POINTER)
                    self.incref(dtype)  # the new array takes it over, also when it is not made
                    dims = b.inttoptr(self.cursor.value(b), POINTER)
                    nothing = ir.LlvmConstant(I32, 0)
                    with self.allocated_by(allocator):
                        array = b.call(new, [kind, dtype, b.trunc(rank, I32), dims, _NULL, _NULL, nothing, _NULL])
                    b.store(array, self.elements(wrapper), align=8)
                    self.go_on_if(b.icmp_unsigned("!=", array, _NULL), self.dropped)
                    self.advance(b.shl(rank, index(3)))
                    self.put(self.load(I64, array, ARRAY.data), places)

    @contextmanager
    def allocated_by(self, allocator: ir.LlvmValue) -> Iterator[None]:
        """Context in which arrays are allocated by the given allocator, if there is one."""
        b, before = self.b, Variable.new(self.b, POINTER)
        swap = self.outside(SET_ALLOCATOR, POINTER, [POINTER])
        is_own = b.icmp_signed("!=", allocator, index(0))
        before.set(b, _NULL)
        with b.if_then(is_own):
            before.set(b, b.call(swap, [b.inttoptr(allocator, POINTER)]))
        yield
        other = before.value(b)
        with b.if_then(b.icmp_unsigned("!=", other, _NULL)):
            ours = b.call(swap, [other])
            self.decref(other)
            with b.if_then(b.icmp_unsigned("!=", ours, _NULL)):
                self.decref(ours)

    def expect_no_fault(self) -> None:
        """No step has reported a fault."""
        b = self.b
        statuses = b.inttoptr(self.word(Word.STATUSES), POINTER)
        with counting(b, 0, self.word(Word.STATUS_COUNT)) as i:
            status = b.load(address(b, statuses, b.mul(i, index(_STATUS_BYTES))), typ=I64, align=8)
            with b.if_then(b.icmp_signed("!=", status, index(0)), likely=False):
                self.call_object(Word.FAULT)  # it always raises
                self.fail()

    def copy(self) -> None:
        """Results that are copies of something else, now that all steps have run."""
        b = self.b
        memcpy = self.outside("memcpy", POINTER, [POINTER, POINTER, I64])
        self.start_at(Word.COPY_RECORDS)
        with counting(b, 0, self.word(Word.COPIES)):
            into, source, nbytes = self.record(_COPY_WORDS)
            places = [b.load(b.inttoptr(word, POINTER), typ=POINTER, align=8) for word in (into, source)]
            b.call(memcpy, [*places, nbytes])

    def deliver(self) -> None:
        self.release()
        self.set_word(Word.BUSY, index(0))
        self.b.ret(self.results.value(self.b))

    def write_refusals(self) -> None:
        """The ways back: before anything, after the frame was taken, after arguments were donated."""
        b = self.b
        b.position_at_end(self.dropped)
        b.call(self.outside("PyErr_Clear", VOID, []), [])  # the checked path raises the error
        results = self.results.value(b)
        with b.if_then(b.icmp_unsigned("!=", results, _NULL)):
            self.decref(results)
        self.take_back()
        b.branch(self.refused)
        b.position_at_end(self.refused)
        self.release()
        self.set_word(Word.BUSY, index(0))
        b.branch(self.declined)
        b.position_at_end(self.declined)
        answer = b.inttoptr(self.word(Word.NOT_IMPLEMENTED), POINTER)
        self.incref(answer)
        b.ret(answer)

    # ----------------------------------------------------------------------------------- running

    def run(self) -> None:
        """Run the steps on the threads selected by the mode."""
        paths = {Mode.TINY: self.run_alone, Mode.AWAKE: self.run_with_who_is_awake, Mode.ALONE: self.run_unheld}
        mode, ran = self.word(Word.MODE), self.function.append_basic_block("ran")
        for each, path in paths.items():
            with self.b.if_then(self.same(mode, index(each))):
                path()
                self.b.branch(ran)
        self.run_with_all()
        self.b.branch(ran)
        self.b.position_at_end(ran)

    def run_alone(self) -> None:
        """All steps by the calling thread."""
        self.start_at(Word.CALL_RECORDS)
        with counting(self.b, 0, self.word(Word.CALLS)):
            function, buffers = self.record(_CALL_WORDS)
            run, table = self.b.inttoptr(function, POINTER), self.b.inttoptr(buffers, POINTER)
            self.b.call(run, [table, index(0), index(1), index(0), index(0)], CALLED)

    def run_unheld(self) -> None:
        """All steps by the calling thread, without the interpreter's lock."""
        with self.lock_released():
            self.run_alone()

    def run_with_who_is_awake(self) -> None:
        """Run all steps, with the pool if it is free and one of its workers spins; no thread is woken."""
        b, is_shared = self.b, Variable.of(self.b, ir.LlvmConstant(I1, 0))
        with counting(b, 1, self.word(Word.THREADS)) as tid:
            parked = b.inttoptr(b.add(self.word(Word.POOL), b.add(index(WORKERS), b.mul(tid, index(LINE)))), POINTER)
            is_awake = self.same(b.load_atomic(parked, "seq_cst", 8, typ=I64), index(0))
            is_shared.set(b, b.or_(is_shared.value(b), is_awake))
        with b.if_then(is_shared.value(b)):
            is_shared.set(b, self.took_pool())
        with b.if_else(is_shared.value(b)) as (shared, alone):
            with shared:
                self.start()
                self.finish()
            with alone:
                self.run_alone()

    def run_with_all(self) -> None:
        """Run all steps with the pool, without the interpreter's lock; through the Python object `WORK` if it is not
        available."""
        b, failed = self.b, Variable.of(self.b, ir.LlvmConstant(I1, 0))
        with b.if_else(self.took_pool()) as (together, otherwise):
            with together:
                with b.if_then(b.icmp_signed("!=", self.start(), index(0)), likely=False):
                    self.called(Word.WAKE, failed)
                with self.lock_released():
                    self.finish()
            with otherwise:
                self.called(Word.WORK, failed)
        with b.if_then(failed.value(b), likely=False):
            self.fail()

    def took_pool(self) -> ir.LlvmValue:
        """Return whether the pool was free; it is this call's then."""
        busy = self.b.inttoptr(self.b.add(self.word(Word.POOL), index(BUSY)), POINTER)
        return self.same(self.b.atomic_rmw("xchg", busy, index(1), "seq_cst"), index(0))

    def start(self) -> ir.LlvmValue:
        """Publish the steps to the pool; how many workers have to be woken."""
        return self.runtime(Word.START, I64, *self.job(), self.word(Word.STATE), self.word(Word.THREADS))

    def finish(self) -> None:
        """This thread's share; then the pool is free again."""
        self.runtime(Word.FINISH, VOID, *self.job(), self.word(Word.THREADS))
        self.runtime(Word.LEAVE, VOID, self.word(Word.POOL))

    def job(self) -> list[ir.LlvmValue]:
        return [*(self.word(w) for w in (Word.POOL, Word.STEPS, Word.CALLS, Word.TABLE)), index(0)]

    def runtime(self, which: Word, result: ir.Type, *operands: ir.LlvmValue) -> ir.LlvmValue:
        """Call a function of the runtime, all of whose operands are words."""
        kind = ir.FunctionType(result, [I64] * len(operands))
        return self.b.call(self.b.inttoptr(self.word(which), POINTER), operands, kind)

    @contextmanager
    def lock_released(self) -> Iterator[None]:
        """Context that runs without the interpreter's lock."""
        state = self.b.call(self.outside("PyEval_SaveThread", POINTER, []), [])
        yield
        self.b.call(self.outside("PyEval_RestoreThread", VOID, [POINTER]), [state])

    def called(self, which: Word, failed: Variable) -> None:
        """Call the Python object in a word for its side effect; record whether it raised."""
        b, done = self.b, self.call_object(which)
        with b.if_else(b.icmp_unsigned("==", done, _NULL), likely=False) as (raised, fine):
            with raised:
                failed.set(b, ir.LlvmConstant(I1, 1))
            with fine:
                self.decref(done)

    def fail(self) -> None:
        """An exception is set: the results are dropped, and the caller sees it."""
        self.decref(self.results.value(self.b))
        self.release()
        self.set_word(Word.BUSY, index(0))
        self.b.ret(_NULL)

    # ------------------------------------------------------------------------------------- words

    def word(self, which: Word) -> ir.LlvmValue:
        return self.load(I64, self.words, 8 * which)

    def set_word(self, which: Word, value: ir.LlvmValue) -> None:
        self.b.store(value, address(self.b, self.words, 8 * which), align=8)

    def start_at(self, which: Word) -> None:
        """The cursor goes to the start of some records."""
        self.cursor.set(self.b, self.word(which))

    def next_word(self) -> ir.LlvmValue:
        """The word at the cursor, which moves on."""
        cursor = self.cursor.value(self.b)
        self.advance(index(8))
        return self.b.load(self.b.inttoptr(cursor, POINTER), typ=I64, align=8)

    def record(self, count: int) -> list[ir.LlvmValue]:
        return [self.next_word() for _ in range(count)]

    def advance(self, nbytes: ir.LlvmValue) -> None:
        self.cursor.set(self.b, self.b.add(self.cursor.value(self.b), nbytes))

    def put(self, data: ir.LlvmValue, places: ir.LlvmValue) -> None:
        """Write an address, moved by some bytes, to the `places` words that the cursor's records name."""
        with counting(self.b, 0, places):
            place, nbytes = self.record(_PLACE_WORDS)
            self.b.store(self.b.add(data, nbytes), self.b.inttoptr(place, POINTER), align=8)

    # --------------------------------------------------------------------------------- small words

    def load(self, type: Any, base: ir.LlvmValue, nbytes: int) -> ir.LlvmValue:
        return self.b.load(address(self.b, base, nbytes), typ=type, align=4 if type is I32 else 8)

    def type_of(self, thing: ir.LlvmValue) -> ir.LlvmValue:
        """An object's type, as a word."""
        return self.load(I64, thing, OBJECT_TYPE)

    def same(self, x: ir.LlvmValue, y: ir.LlvmValue) -> ir.LlvmValue:
        return self.b.icmp_signed("==", x, y)

    def go_on_if(self, condition: ir.LlvmValue, otherwise: ir.Block) -> None:
        """Continue if the condition is true; otherwise branch to `otherwise`."""
        following = self.function.append_basic_block("on")
        self.b.cbranch(condition, following, otherwise)
        self.b.position_at_end(following)

    def outside(self, name: str, result: ir.Type, operands: list[ir.Type]) -> ir.Function:
        return declare(self.b.module, name, result, operands)

    def incref(self, thing: ir.LlvmValue) -> None:
        self.b.call(self.outside("Py_IncRef", VOID, [POINTER]), [thing])

    def decref(self, thing: ir.LlvmValue) -> None:
        self.b.call(self.outside("Py_DecRef", VOID, [POINTER]), [thing])

    def call_object(self, which: Word) -> ir.LlvmValue:
        """Call the Python object in a word, without arguments."""
        thing = self.b.inttoptr(self.word(which), POINTER)
        return self.b.call(self.outside("PyObject_CallNoArgs", POINTER, [POINTER]), [thing])


_NULL: Final = ir.LlvmConstant(POINTER, None)
