"""Ctrl-C, and any handler that raises, while a native loop runs: it ends at once, and what follows works.

Each program is a process of its own, which is sent a real signal.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Windows has no signals that a process sends itself")

PRELUDE = """
    import os, signal, threading, time
    import numpy as np
    import rlx_core as rlx

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are told to ignore it
    FOREVER = 2_000_000_000

    def counting(x):
        return rlx.while_loop(lambda c: c[0] < FOREVER, lambda c: (c[0] + 1, rlx.sin(c[1] + 1)), (np.int32(0), x))[1]

    def through_steps(x):
        return rlx.scan(lambda c, _: (rlx.sin(c + 1), None), x, None, length=FOREVER)[0]

    def loop_in_loop(x):
        inner = lambda c: rlx.scan(lambda d, _: (rlx.sin(d + 1), None), c, None, length=1000)[0]
        return rlx.scan(lambda c, _: (inner(c), None), x, None, length=FOREVER // 1000)[0]

    def one_after_another(x):
        return through_steps(rlx.sin(through_steps(x)))

    def of_products(x):
        return rlx.scan(lambda c, _: (rlx.tanh(c @ WEIGHTS), None), x + np.zeros((200, 200), np.float32), None, length=FOREVER)[0]

    WEIGHTS = np.eye(200, dtype=np.float32)

    def after(seconds, do):
        timer = threading.Timer(seconds, do)
        timer.daemon = True
        timer.start()

    def interrupted(function, *args, by=KeyboardInterrupt):
        "Seconds from a signal to the end of what it interrupts."
        sent = []
        def send():
            sent.append(time.perf_counter())
            os.kill(os.getpid(), signal.SIGINT)
        after(0.2, send)
        try:
            function(*args)
        except by:
            return time.perf_counter() - sent[0]
        raise SystemExit("it ended by itself")
"""


def run(program: str, tmp_path: Path) -> str:
    """What a program prints; it must end, and well."""
    process = subprocess.run(
        [sys.executable, "-c", dedent(PRELUDE) + dedent(program)],
        env={**os.environ, "RLX_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_ctrl_c_ends_a_loop_that_goes_on(threads: int, tmp_path: Path) -> None:
    """Every kind of loop, called by the checked path and by the entry."""
    program = """
        for function in (counting, through_steps, loop_in_loop, one_after_another, of_products):
            choice = lambda x, goes: rlx.cond(goes, function, lambda x: x + WEIGHTS if function is of_products else x, x)
            compiled = rlx.jit(choice, config={"options": {"cpu.threads": THREADS}})
            compiled(np.float32(1), np.False_)  # it is the loop that is interrupted, not the compiling of it
            for _ in range(2):
                assert interrupted(compiled, np.float32(1), np.True_) < 10, function
        print(rlx.jit(lambda x: rlx.fori_loop(0, 1000, lambda i, c: c + 1, x))(np.float32(0)))
    """
    assert run(program.replace("THREADS", str(threads)), tmp_path) == "1000.0\n"


@pytest.mark.slow
def test_a_handler_of_the_users_is_called_and_may_let_the_loop_go_on(tmp_path: Path) -> None:
    """It may call programs too, the interrupted one among them."""
    program = """
        seen = []
        double = rlx.jit(lambda x: x + x)
        steps = lambda x, n: rlx.fori_loop(0, n, lambda i, c: rlx.sin(c + 1), x)
        loop = rlx.jit(steps)
        loop(np.float32(0), np.int32(3))
        def handler(*_):
            seen.append((float(double(np.float32(2))), float(loop(np.float32(0), np.int32(3)))))
            if len(seen) == 3:
                raise LookupError("enough")
        signal.signal(signal.SIGINT, handler)
        for number in range(2):
            after(0.4 + 0.2 * number, lambda: os.kill(os.getpid(), signal.SIGINT))
        assert interrupted(loop, np.float32(0), np.int32(FOREVER), by=LookupError) < 10
        print(len(seen), len(set(seen)))
    """
    assert run(program, tmp_path) == "3 1\n"


@pytest.mark.slow
def test_loops_of_other_threads_go_on(tmp_path: Path) -> None:
    """Signals are the main thread's."""
    program = """
        loop = rlx.jit(lambda x, n: rlx.fori_loop(0, n, lambda i, c: c + 1, x))
        found = [int(loop(np.int64(0), np.int64(3)))]
        other = threading.Thread(target=lambda: found.append(int(loop(np.int64(0), np.int64(30_000_000)))))
        other.start()
        interrupted(loop, np.int64(0), np.int64(FOREVER))
        other.join()
        print(found)
    """
    assert run(program, tmp_path) == "[3, 30000000]\n"


@pytest.mark.medium
def test_what_a_loop_left_behind_can_be_computed_again(tmp_path: Path) -> None:
    """A donated array has some step's values; the same call with a good one gives what it always gave."""
    program = """
        step = lambda c, x: (c + x, None)
        loop = rlx.jit(lambda state, n: rlx.fori_loop(0, n, lambda i, c: c + 1, state), donate="state")
        loop(np.zeros(4, np.int64), np.int64(3))
        interrupted(loop, np.zeros(4, np.int64), np.int64(FOREVER))
        print(loop(np.zeros(4, np.int64), np.int64(7)))
    """
    assert run(program, tmp_path) == "[7 7 7 7]\n"


@pytest.mark.slow
def test_ctrl_c_ends_a_packaged_loop(tmp_path: Path) -> None:
    program = f"""
        loop = rlx.compile(through_steps, rlx.spec("f32[]"))
        rlx.package(loop, {str(tmp_path / "loop.rlxpack")!r})
        packaged = rlx.load({str(tmp_path / "loop.rlxpack")!r})
        for _ in range(2):
            assert interrupted(packaged, np.float32(1)) < 10
        print("ended")
    """
    assert run(program, tmp_path) == "ended\n"
