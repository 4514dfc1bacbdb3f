"""Jobs in the background: their order, what they raise, forks, and LLVM in several threads at once."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import pytest
from callers import finished, forked, forks, side_by_side
from llvmlite.binding import ffi

from rlx_core.codegen.scalars.floats import polynomial
from rlx_core.system.locks import Lock
from rlx_cpu.native import threads
from rlx_cpu.native.llvm import background, optimise
from rlx_cpu.native.llvm.background import later, share_out, yielding
from rlx_cpu.native.llvm.build import DOUBLE, FLOAT
from rlx_cpu.native.llvm.ir import Function, FunctionType, IRBuilder, VectorType
from rlx_cpu.native.llvm.ir.numbers import constant
from rlx_cpu.native.llvm.isa import host_isa

T = TypeVar("T")


def test_jobs_begin_in_order_and_may_wait_for_earlier_ones() -> None:
    """So that linking, which waits for all code, can be asked for before any is there."""
    begun: list[int] = []

    def job(number: int, *waits: background.JobFuture[int]) -> int:
        begun.append(number)
        time.sleep(0.001)
        return number + sum(each.result() for each in waits)

    made: list[background.JobFuture[int]] = []
    expected: list[int] = []
    for number in range(20):
        waits = tuple(made[-3:])
        made.append(later(lambda n=number, w=waits: job(n, *w)))
        expected.append(number + sum(expected[-3:]))

    assert [each.result() for each in made] == expected
    assert sorted(begun) == list(range(20))
    assert all(begun.index(n) - n < background.MOST_THREADS for n in range(20))


def test_what_a_job_raises_is_raised_by_whoever_asks() -> None:
    def fail() -> None:
        raise RuntimeError("no code")

    failed, fine = later(fail), later(lambda: 7)

    assert fine.result() == 7
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no code"):
            failed.result()


def test_threads_end_when_nothing_is_left() -> None:
    later(lambda: None).result()
    background.drain()

    deadline = time.monotonic() + 10
    while background._workers and time.monotonic() < deadline:
        time.sleep(0.001)
    assert not background._workers


@forks
@pytest.mark.parametrize("begun_before", [False, True])
def test_a_child_has_what_was_begun_and_what_was_not(begun_before: bool) -> None:
    """A fork waits for the former, because nobody would finish it in the child; the latter is done there too."""
    begun = threading.Event()
    slow = later(lambda: begun.set() or time.sleep(0.05) or 7)
    if begun_before:
        assert begun.wait(10)
    child = forked(lambda: slow.is_done >= begun_before and slow.result() == 7 and later(lambda: 8).result() == 8)

    assert finished(child) == 0


def test_without_another_thread_whoever_asks_does_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*args: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "start_new_thread", no_memory)
    first = later(lambda: 1)
    assert later(lambda: first.result() + 1).result() == 2
    done: list[int] = []
    share_out(done.append, range(10), 4)
    assert done == list(range(10))
    background.drain()


def test_threads_that_never_begin_keep_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where there is memory for the thread and none for its first call."""
    monkeypatch.setattr(threads, "start_new_thread", lambda *args: 1)
    assert [later(lambda n=n: n).result() for n in range(8)] == list(range(8))
    done: list[int] = []
    share_out(done.append, range(10), 4)
    assert done == list(range(10))
    background.drain()
    background._workers.clear()


def test_a_job_that_failed_is_done_again() -> None:
    """What it lacked may be there by then: memory, most of all."""
    lacking = [1]

    def job() -> int:
        if lacking:
            raise MemoryError
        return 5

    made = later(job)
    with pytest.raises(MemoryError):
        made.result()
    lacking.clear()
    assert made.result() == 5


def in_time(function: Callable[[], T]) -> T:
    """What a function gives in a thread of its own, which may be left hanging."""
    found: list[T] = []
    thread = threading.Thread(target=lambda: found.append(function()), daemon=True)
    thread.start()
    thread.join(20)
    assert found, "it hangs"
    return found[0]


@pytest.mark.parametrize("comes_first", ["the worker", "the handler"])
def test_a_handler_does_what_a_worker_cannot_before_it_returns(comes_first: str) -> None:
    """A thread is interrupted in a job; the handler asks for another, which a worker has begun and which needs the first."""
    interrupted, asking, attempts = threading.Event(), threading.Event(), []

    def object_file() -> int:
        attempts.append(1)
        if len(attempts) == 1:  # here the signal comes
            stored = later(store)
            interrupted.set()
            wait_until(lambda: stored.owner is not None)
            if comes_first == "the worker":
                wait_until(lambda: bool(code._waiting))
            else:
                asking.set()
            assert stored.result() == 6
        return 5

    def store() -> int:
        if comes_first == "the handler" and threading.current_thread() is not asker[0]:
            assert asking.wait(10)
            time.sleep(0.1)
        return code.result() + 1

    def ask() -> int:
        asker.append(threading.current_thread())
        return code.result()

    asker: list[threading.Thread] = []
    code = background.JobFuture(object_file)
    assert in_time(ask) == 5


def test_whoever_has_a_lock_does_what_waits_for_the_lock() -> None:
    """A worker has begun a job that needs a lock, which the thread that asks for the job has."""
    lock = Lock("a table")

    def job() -> int:
        with lock:
            return 5

    def ask() -> int:
        with lock:
            made = later(job)
            wait_until(lambda: made.owner is not None)
            return made.result()

    assert in_time(ask) == 5


def test_a_handler_that_comes_before_llvms_lock_is_noted_does_llvms_work_itself() -> None:
    isa = host_isa()
    assert isa is not None

    def ask() -> bytes:
        with ffi.lib._lock._lock:  # taken, and what is called then is not called yet
            made = later(lambda: optimise.generate(kernel(3, 4), isa))
            time.sleep(0.1)
            return made.result()

    assert in_time(ask) == optimise.generate(kernel(3, 4), isa)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.001)


def test_work_is_shared_out_whole_and_its_first_error_is_raised() -> None:
    done: list[int] = []
    share_out(done.append, range(100), 4)
    assert sorted(done) == list(range(100))

    def fail(number: int) -> None:
        if number == 3:
            raise KeyError(number)

    for count in (1, 4):
        with pytest.raises(KeyError, match="3"):
            share_out(fail, range(100), count)


def test_the_interval_of_the_interpreter_is_what_it_was_once_all_are_done() -> None:
    before = sys.getswitchinterval()
    with yielding(), yielding():
        assert sys.getswitchinterval() < before
    assert sys.getswitchinterval() == before


def kernel(degree: int, lanes: int) -> str:
    """A polynomial on a vector, which is different for each degree and each number of lanes."""
    module = optimise.new_module("test")
    type = VectorType(FLOAT if degree % 2 else DOUBLE, lanes)
    function = Function(module, FunctionType(type, [type]), "f")
    b = IRBuilder(function.append_basic_block("entry"))
    (x,) = function.args
    b.ret(b.fdiv(polynomial(b, x, [1 / (n + 1) for n in range(degree)]), b.fadd(x, constant(type, 2.0))))
    return str(module)


@pytest.mark.medium
def test_code_made_in_several_threads_at_once_is_that_made_one_after_the_other() -> None:
    isa = host_isa()
    assert isa is not None
    texts = [kernel(degree, lanes) for degree in range(1, 24) for lanes in (2, 8)]
    alone = [optimise.generate(text, isa) for text in texts]
    together = side_by_side(*(lambda: [optimise.generate(text, isa) for text in texts] for _ in range(4)))

    assert len(set(alone)) == len(alone)
    assert together == [alone] * 4


def test_a_text_that_is_no_module_is_refused_and_harms_no_other() -> None:
    isa = host_isa()
    assert isa is not None
    good = optimise.generate(kernel(5, 4), isa)
    for wrong in ("define void @f() {", kernel(5, 4).replace("fdiv", "fdivide")):
        with pytest.raises(RuntimeError, match="parsing error"):
            optimise.generate(wrong, isa)
        assert optimise.generate(kernel(5, 4), isa) == good
