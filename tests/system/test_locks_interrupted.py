"""Locks whose holder was interrupted between the end of its block and the release: whoever waits takes them over."""

from __future__ import annotations

import ast
import re
import sys
import threading
import time
from pathlib import Path

import pytest

from rlx_core.system import locks
from rlx_core.system.locks import Lock


def interrupted_at(moment, run):
    """Whether `run` raised KeyboardInterrupt at that moment of the calls and lines in `locks`: what a signal handler may do."""
    seen = 0

    def trace(frame, event, argument):
        nonlocal seen
        if frame.f_code.co_filename != locks.__file__:
            return trace
        if event in ("call", "line"):
            seen += 1
            if seen == moment:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        run()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def takes_it(lock):
    """Whether another thread gets a lock."""
    taken = threading.Event()

    def take():
        with lock:
            taken.set()

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    thread.join(timeout=10)
    return taken.is_set()


@pytest.fixture
def forgotten():
    """What this thread left without releasing is not counted in other tests."""
    yield
    locks._depths.pop(threading.get_ident(), None)


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("depth", [1, 2])
def test_others_get_a_lock_whose_holder_was_interrupted_at_any_moment(depth):
    def nested(lock, left):
        with lock:
            if left:
                nested(lock, left - 1)

    lock, moment = Lock("interrupted"), 1
    while interrupted_at(moment, lambda: nested(lock, depth - 1)):
        assert takes_it(lock), f"after moment {moment}"
        assert lock.owner is None
        moment += 1
    assert moment > 10 * depth
    with lock:
        assert not lock._lock.acquire(blocking=False) or lock._lock.release() is None
    assert takes_it(lock)


@pytest.mark.usefixtures("forgotten")
def test_whoever_was_interrupted_takes_the_lock_again_and_releases_all():
    lock = Lock("interrupted")

    def hold():
        with lock:
            pass

    moment = 1
    while interrupted_at(moment, hold):
        hold()
        assert lock._depth == 0
        assert not lock._lock._is_owned()
        moment += 1


def test_a_lock_is_not_taken_away_from_a_function_that_goes_on():
    lock, order = Lock("a long one"), []

    def inner(level):
        if level:
            inner(level - 1)
        else:
            time.sleep(6 * locks.LOOK_AGAIN)

    def hold():
        with lock:
            inner(20)
            order.append("held")

    thread = threading.Thread(target=hold)
    thread.start()
    while lock.owner is None:
        time.sleep(0.001)
    with lock:
        order.append("taken")
    thread.join()
    assert order == ["held", "taken"]


@pytest.mark.slow
def test_no_generator_gives_a_value_while_it_has_a_lock():
    """Its frame would not be among the calls of its thread, and the lock would be taken away."""
    root = Path(__file__).parents[2]
    paths = [*(root / "rlx_core").rglob("*.py"), *(root / "plugins").glob("*/src/**/*.py")]
    assert len(paths) > 500
    found = [
        f"{path.relative_to(root)}:{block.lineno}"
        for path in paths
        for block in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(block, ast.With)
        and any("lock" in re.split(r"\W+|_", ast.unparse(item.context_expr)) for item in block.items)
        and any(isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(block))
    ]
    assert found == []
