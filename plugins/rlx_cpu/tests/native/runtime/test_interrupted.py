"""Programs that are interrupted at any moment: by a signal whose handler calls them, by a fork, for want of memory.

Each is a process of its own, because what is looked for is that it comes to an end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Windows has neither timers that interrupt nor forks")


def run(program: str, cache: Path, seconds: float = 60) -> str:
    """What a program prints; it must end, and well."""
    prelude = (
        "import os, random, signal, sys, threading, time\nimport numpy as np, numpy.testing\nimport rlx_core as rlx\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", prelude + dedent(program)],
        env={**os.environ, "RLX_CACHE_DIR": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        pytest.fail(f"it hangs (for {seconds:.0f} s)")
    assert process.returncode == 0, err
    return out


# --------------------------------------------------------------------------------------------- signals

INTERRUPTED = """
    def interrupted(do, handle, times):
        "Do something so often, each time with a handler at another moment of it; how often the handler was called."
        calls = []
        def handler(*_):
            handle(len(calls))
            calls.append(1)
        signal.signal(signal.SIGALRM, handler)
        spent = 0.05
        for number in range(times):
            start = time.perf_counter()
            signal.setitimer(signal.ITIMER_REAL, 0.001 + spent * number / times)
            do(number)
            spent = time.perf_counter() - start
            signal.setitimer(signal.ITIMER_REAL, 0)
        return len(calls)
"""


@pytest.mark.medium
def test_a_handler_may_call_what_it_interrupts_while_that_specialises(tmp_path: Path) -> None:
    found = run(
        INTERRUPTED
        + """
    program = rlx.compile(lambda x: rlx.softmax(x @ x.T), rlx.spec("f32[n, 3]"))
    def check(n):
        x = np.full((n, 3), 0.5, np.float32)
        np.testing.assert_allclose(program(x), 1 / n, rtol=1e-5)
    check(2)
    # A size that is there already, one that is asked for at the moment, and a new one.
    print(interrupted(lambda n: check(3 + n), lambda n: [check(2), check(3 + n), check(100 + n)], 4))
    """,
        tmp_path,
    )
    assert int(found) >= 2


@pytest.mark.slow
def test_a_handler_that_interrupts_the_first_run_of_all_is_served_or_told(tmp_path: Path) -> None:
    """Modules are imported then, and one that is half imported is of no use to a handler, which nobody can help."""
    found = run(
        """
    program = rlx.compile(lambda x: rlx.softmax(x @ x.T), rlx.spec("f32[n, 3]"))
    def check(n):
        x = np.full((n, 3), 0.5, np.float32)
        np.testing.assert_allclose(program(x), 1 / n, rtol=1e-5)
    served, told, inside = [], [], []
    def handle(*_):
        if inside:
            return
        inside.append(1)
        try:
            check(100 + len(told))
            served.append(1)
        except rlx.errors.DeadlockError as error:
            told.append(error)
        inside.clear()
    import rlx_core.errors
    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    check(2)
    signal.setitimer(signal.ITIMER_REAL, 0)
    check(5)
    print(len(served) + len(told))
    """,
        tmp_path,
    )
    assert int(found) >= 1  # in the middle of the first run, where each ends in one way or the other


@pytest.mark.slow
def test_a_handler_may_call_a_program_while_another_is_compiled(tmp_path: Path) -> None:
    """Nothing is cached, so that LLVM is at work whenever the handler comes, and what it calls specialises."""
    found = run(
        INTERRUPTED
        + """
    uncached = {"cache": {"disk": False}}
    ready = rlx.compile(lambda x: rlx.exp(x), rlx.spec("f32[n]"), config=uncached)
    ready(np.zeros(2, np.float32))
    def compiled(n):
        program = rlx.jit(lambda x: rlx.exp(x) * n + rlx.sum(x), config=uncached)
        np.testing.assert_allclose(program(np.zeros(n + 1, np.float32)), n, rtol=1e-6)
    def call(n):
        np.testing.assert_allclose(ready(np.zeros(100 + n, np.float32)), 1)
    print(interrupted(compiled, call, 10))
    """,
        tmp_path,
    )
    assert int(found) >= 4


# ----------------------------------------------------------------------------------------------- forks


@pytest.mark.slow
def test_a_child_forked_while_another_thread_compiles_can_compile(tmp_path: Path) -> None:
    """At many moments: a plugin being activated, a module being imported, LLVM at work, a program being stored."""
    found = run(
        """
    import warnings
    warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
    def compiled(n):
        program = rlx.jit(lambda x: rlx.softmax(x * n) @ rlx.erf(x).T)
        return float(np.sum(program(np.full((n, 2), 0.25, np.float32)))) > 0
    def forever():
        n = 2
        while True:
            compiled(n := n + 1)
    threading.Thread(target=forever, daemon=True).start()
    good = 0
    for number in range(5):
        time.sleep(0.003 * 3 ** number % 0.2)
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            os._exit(0 if compiled(1000 + number) else 1)
        good += os.waitpid(child, 0)[1] == 0
    print(good)
    os._exit(sys.stdout.flush() or 0)
    """,
        tmp_path,
        120,
    )
    assert int(found) == 5


# ---------------------------------------------------------------------------------------------- memory

LIMITED = """
    import resource
    def limited(nbytes):
        "What comes of compiling with so many bytes of address space more than there are in use."
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + nbytes, -1))
        try:
            found = type(check(2)).__name__
        except rlx.errors.RlxError as error:
            found = type(error).__name__
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        check(3)
        return found
    def check(n):
        x = np.full((n, n), 0.5, np.float32)
        program = rlx.jit(lambda x: rlx.softmax(x @ x.T * n))
        np.testing.assert_allclose(program(x), 1 / n, rtol=1e-5)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the address space cannot be limited, or not be read")
@pytest.mark.parametrize(
    ("before", "mib", "found"),
    [
        pytest.param("check(4)", 64, "NoneType", marks=pytest.mark.slow),
        pytest.param("check(4)", 16, "OutOfMemoryError", marks=pytest.mark.slow),
        ("rlx.jit, rlx.softmax", 16, "OutOfMemoryError"),
    ],
)
def test_without_memory_a_compilation_ends_and_the_next_is_as_ever(
    before: str, mib: int, found: str, tmp_path: Path
) -> None:
    """16 MiB hold neither what LLVM may need for a module nor, if it is not there yet, LLVM itself."""
    assert run(f"{LIMITED}\n    {before}\n    print(limited({mib} << 20))\n", tmp_path).strip() == found
