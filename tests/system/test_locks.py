"""Locks under what happens between two instructions: signal handlers, other threads, forks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from textwrap import dedent

import pytest

from rlx_core.errors import DeadlockError
from rlx_core.system import locks
from rlx_core.system.locks import Lock, forks_wait, lazy

POSIX = pytest.mark.skipif(os.name != "posix", reason="Windows has neither timers that interrupt nor forks")


def test_threads_take_turns():
    lock, count = Lock("a count"), 0

    def add():
        nonlocal count
        for _ in range(200):
            with lock, lock:
                before = count
                time.sleep(0)
                count = before + 1

    with ThreadPoolExecutor(4) as threads:
        for each in [threads.submit(add) for _ in range(4)]:
            each.result(timeout=60)
    assert count == 800
    assert lock.owner is None
    assert threading.get_ident() not in locks._depths


@POSIX
def test_a_handler_takes_what_its_own_thread_holds():
    lock, taken = Lock("ours"), []

    def handler(*_):
        with lock:
            taken.append(lock.owner == threading.get_ident())

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with lock:
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            while not taken:
                time.sleep(0.001)
        assert taken == [True]
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_circle_of_threads_is_told_and_the_others_go_on():
    first, second, third = Lock("first"), Lock("second"), Lock("third")
    ready, done = threading.Barrier(3), []

    def take(own, other):
        with own:
            ready.wait(10)
            with other:
                done.append(own.what)

    others = [threading.Thread(target=take, args=pair) for pair in ((second, third), (third, first))]
    for each in others:
        each.start()
    with first:
        ready.wait(10)
        with pytest.raises(DeadlockError, match="deadlock: second is another thread's"), second:
            pass
    for each in others:
        each.join(10)
    assert sorted(done) == ["second", "third"]
    assert locks._waits == {}


def test_whoever_waits_for_a_thread_that_goes_on_just_waits():
    lock, begun = Lock("slow"), threading.Event()

    def hold():
        with lock:
            begun.set()
            time.sleep(3 * locks.LOOK_AGAIN)

    thread = threading.Thread(target=hold)
    thread.start()
    assert begun.wait(10)
    with lock:
        assert not thread.is_alive() or lock.owner == threading.get_ident()
    thread.join()


def test_a_lazy_property_is_worked_out_once_and_without_a_lock():
    class Thing:
        count = 0

        @lazy
        def value(self):
            self.count += 1
            return self.count

    thing = Thing()
    assert (thing.value, thing.value, thing.count) == (1, 1, 1)
    inside = threading.Event()

    class Slow:
        def __init__(self, waits):
            self.waits = waits

        @lazy
        def value(self):
            return inside.set() or self.waits.wait(10) if self.waits else True

    never = threading.Event()
    thread = threading.Thread(target=lambda: Slow(never).value)
    thread.start()
    assert inside.wait(10)
    assert Slow(None).value, "Python 3.11 has one lock for all objects of a class"
    never.set()
    thread.join()


FORKED = """
    import os, signal, sys, threading, time, warnings
    from rlx_core.system import locks
    from rlx_core.system.locks import Lock, forks_wait
    warnings.simplefilter("ignore", DeprecationWarning)
    lock, begun = Lock("ours"), threading.Event()
    def forked(holds):
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            os._exit(0 if holds() else 1)
        return os.waitpid(child, 0)[1]
    def taken():
        with lock:
            return True
    def run(other):
        thread = threading.Thread(target=other, daemon=True)
        thread.start()
        begun.wait()
"""

WAITED = """
    done = []
    def other():
        with forks_wait:
            begun.set()
            time.sleep(0.2)
            done.append(1)
    run(other)
    assert forked(lambda: done == [1]) == 0
"""

HELD_TOO_LONG = """
    locks._PATIENCE = 0.1
    def other():
        with lock:
            begun.set()
            time.sleep(60)
    run(other)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        assert forked(taken) == 0
    assert any("another thread has been compiling" in str(each.message) for each in caught), caught
"""

WAITS_FOR_US = """
    def other():
        with forks_wait:
            begun.set()
            taken()
    with lock:
        run(other)
        time.sleep(0.1)
        begin = time.monotonic()
        assert forked(taken) == 0
        assert time.monotonic() - begin < 10
"""

WAITS_FOR_ONE_WHO_BEGINS = """
    class Job:
        owner = None
    job, finished = Job(), threading.Event()
    def helper():
        job.owner = threading.get_ident()
        begun.wait()
        while not locks._forking:
            time.sleep(0.001)
        with forks_wait:
            finished.set()
    def other():
        threading.Thread(target=helper, daemon=True).start()
        with forks_wait, locks.waiting(job):
            while job.owner is None:
                time.sleep(0.001)
            begun.set()
            finished.wait()
    run(other)
    begin = time.monotonic()
    assert forked(taken) == 0
    assert time.monotonic() - begin < 10
"""

IMPORTS_THE_LOCKS = """
    class Slowly:
        def find_spec(self, name, path, target=None):
            if name == "rlx_core.errors":  # the first that the locks need
                begun.set()
                time.sleep(0.2)
    for name in [each for each in sys.modules if each.startswith("rlx_core")]:
        del sys.modules[name]
    import rlx_core
    sys.meta_path.insert(0, Slowly())
    def imported():
        from rlx_core.system.locks import forks_wait
        return True
    run(imported)
    assert forked(imported) == 0
"""

LOGS_INSIDE = """
    import logging
    from rlx_core.system.logs import log_event
    os.register_at_fork(before=lambda: (begun.set(), time.sleep(0.3)))
    logging.getLogger("rlx.cache").setLevel("INFO")
    def other():
        with lock:
            while True:
                logging.Logger.manager._clear_cache()  # so that every record asks for the lock of `logging`
                log_event("cache-miss", {"program": "p"})
                begun.set()
    run(other)
    for _ in range(5):
        begin = time.monotonic()
        assert forked(taken) == 0
        assert time.monotonic() - begin < 5
"""

STANDS_STILL = """
    foreign = threading.Lock()
    os.register_at_fork(before=foreign.acquire, after_in_parent=foreign.release, after_in_child=foreign.release)
    def other():
        with forks_wait:
            foreign.acquire()
            begun.set()
            foreign.release()
            while not locks._forking:
                pass
            with foreign:
                pass
    run(other)
    begin = time.monotonic()
    assert forked(taken) == 0
    assert time.monotonic() - begin < 10
"""

WAITS_FOR_ONE_AT_A_SAFEPOINT = """
    never = threading.Event()
    def other():
        with lock, locks.fork_safepoint:
            begun.set()
            never.wait()
    def third():
        taken()
    run(other)
    threading.Thread(target=third, daemon=True).start()
    time.sleep(0.2)
    begin = time.monotonic()
    assert forked(taken) == 0
    assert time.monotonic() - begin < 5
"""

IN_OUR_OWN = """
    with lock, forks_wait:
        assert forked(lambda: taken() and forked(taken) == 0) == 0
    assert taken()
"""


@POSIX
@pytest.mark.parametrize(
    "program",
    [
        WAITED,
        HELD_TOO_LONG,
        WAITS_FOR_US,
        WAITS_FOR_ONE_WHO_BEGINS,
        IMPORTS_THE_LOCKS,
        IN_OUR_OWN,
        LOGS_INSIDE,
        STANDS_STILL,
        WAITS_FOR_ONE_AT_A_SAFEPOINT,
    ],
    ids=["waited", "long", "ours", "awaited", "imported", "own", "logs", "standstill", "safepoint"],
)
def test_a_fork_waits_for_others_and_its_child_has_every_lock(program):
    """But for those that wait for the one who forks, and for those that never end."""
    ran = subprocess.run(
        [sys.executable, "-c", dedent(FORKED) + dedent(program)],
        timeout=60,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


@POSIX
def test_nobody_begins_while_another_thread_forks():
    """Otherwise a program in which somebody always compiles could never fork."""
    locks._forking[-1] = 1  # as if it were another thread's
    try:
        begun = threading.Event()

        def begin():
            with forks_wait:
                begun.set()

        thread = threading.Thread(target=begin)
        thread.start()
        assert not begun.wait(0.05)
        locks._forking.pop(-1)
        assert begun.wait(10)
        thread.join()
    finally:
        locks._forking.pop(-1, None)


FOREIGN_LOCKS = """
    import signal
    {before}
    import numpy as np
    from rlx_core.system import locks
    import rlx_core as rlx
    {after}
    import logging, threading, os, time, warnings
    warnings.simplefilter("error", RuntimeWarning)
    warnings.simplefilter("ignore", DeprecationWarning)
    logging.basicConfig(level="DEBUG", filename=os.devnull)
    signal.alarm(60)
    ends = time.monotonic() + {seconds}
    def compile_often():
        n = 1
        while time.monotonic() < ends:
            n += 1
            rlx.jit(lambda x: rlx.exp(x) * n)(np.ones((n,), np.float32))
    threads = [threading.Thread(target=compile_often) for _ in range(2)]
    for thread in threads:
        thread.start()
    longest, forks = 0.0, 0
    while time.monotonic() < ends:
        begin = time.monotonic()
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            os._exit(0 if rlx.jit(lambda x: x + 1)(np.ones(3, np.float32)).shape == (3,) else 1)
        longest, forks = max(longest, time.monotonic() - begin), forks + 1
        assert os.waitpid(child, 0)[1] == 0
    for thread in threads:
        thread.join()
    assert forks, "no fork was made"
    assert longest < 10, longest
"""

FOREIGN_MODULES = "import logging, concurrent.futures.thread, multiprocessing.pool"


@pytest.mark.medium
@POSIX
@pytest.mark.parametrize(
    ("before", "after"), [(FOREIGN_MODULES, ""), ("", FOREIGN_MODULES)], ids=["imported-before", "imported-after"]
)
def test_forks_pass_threads_that_compile_and_log(before, after):
    """Hooks run in reverse order of registration, so modules imported after rlx acquire their locks first."""
    program = dedent(FOREIGN_LOCKS).format(before=before, after=after, seconds=3)
    ran = subprocess.run([sys.executable, "-c", program], timeout=120, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
