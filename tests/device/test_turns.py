"""Runs on a device that wait for one another: alone is alone, and nobody waits for itself."""

from __future__ import annotations

import threading
import time

from rlx_core.device.turns import Turns


def test_who_is_alone_waits_for_the_others_and_later_ones_wait_for_it() -> None:
    turns, order, begun = Turns("fake:0"), [], threading.Event()

    def early() -> None:
        with turns.among_others():
            begun.set()
            time.sleep(0.02)
            order.append("early")

    def late() -> None:
        with turns.among_others():
            order.append("late")

    first, second = threading.Thread(target=early), threading.Thread(target=late)
    first.start()
    begun.wait()
    with turns.alone():
        order.append("alone")
        second.start()
        time.sleep(0.02)
        order.append("still alone")
    for thread in (first, second):
        thread.join(10)
    assert order == ["early", "alone", "still alone", "late"]


def test_a_run_inside_a_run_does_not_wait() -> None:
    turns = Turns("fake:0")
    with turns.among_others(), turns.alone(), turns.among_others():
        assert turns.is_inside
    with turns.alone(), turns.among_others():
        assert turns.is_inside
    assert not turns.is_inside
