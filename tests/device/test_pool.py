"""The memory of a device: blocks that come back are given out again, and what does not fit is said with numbers."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from attrs import evolve

from rlx_core.device.pool import Pool, capacity_for
from rlx_core.errors import OutOfMemoryError
from rlx_core.testing.fake_device import FACTS, FakeDriver


def pool(**limits: int) -> Pool:
    return Pool("fake:0", FakeDriver(facts=evolve(FACTS, **limits)))


def test_a_block_that_nobody_has_is_given_out_again() -> None:
    mine = pool()
    first = mine.block(1000, "x").buffer
    assert mine.block(900, "x").buffer is first
    assert (mine.reserved, mine.used) == (1024, 0)


def test_two_blocks_that_somebody_has_are_apart() -> None:
    mine = pool()
    a, b = mine.block(100, "x"), mine.block(100, "x")
    assert a.buffer is not b.buffer
    assert mine.used == 512


@pytest.mark.parametrize("nbytes", [1, 255, 256, 257, 1000, 4097, 10**6, 10**6 + 1, 3 * 10**7])
def test_at_most_an_eighth_of_a_large_block_is_unused(nbytes: int) -> None:
    capacity = capacity_for(nbytes, 256)
    assert nbytes <= capacity <= max(nbytes * 9 / 8, nbytes + 255)
    assert capacity % 256 == 0


def test_without_room_blocks_that_wait_are_freed_and_it_is_tried_once_more() -> None:
    mine = pool(memory_nbytes=4096)
    for nbytes in (1024, 2048):
        mine.block(nbytes, "x")
    mine.block(4096, "an arena")
    assert mine.driver.count("free") == 2  # type: ignore[attr-defined]
    assert mine.reserved == 4096


def test_what_does_not_fit_is_named_with_what_is_in_use() -> None:
    mine = pool(memory_nbytes=4096)
    kept = mine.block(2048, "x")
    with pytest.raises(OutOfMemoryError, match=r"^fake:0: an arena of 3000 bytes cannot be allocated") as caught:
        mine.block(3000, "an arena")
    assert "2048 bytes by arrays and programs" in str(caught.value)
    del kept
    assert mine.block(3000, "an arena").capacity >= 3000


def test_a_buffer_larger_than_the_device_has_is_refused_with_both_numbers() -> None:
    with pytest.raises(OutOfMemoryError, match="an input of 2000 bytes, and a buffer there has at most 1024"):
        pool(largest_buffer=1024).block(2000, "an input")


def test_poisoned_blocks_come_full_of_nan() -> None:
    mine = pool()
    mine.poison = 0xFF
    block = mine.block(16, "x")
    found = np.zeros(4, np.float32)
    mine.driver.read(block.buffer, 0, found)
    assert np.isnan(found).all()


def test_what_is_passed_whole_is_not_given_out_as_a_part_of_something() -> None:
    mine = pool()
    words = mine.block(100, "words", is_apart=True).buffer
    assert words.is_apart
    assert mine.block(100, "x").buffer is not words
    assert mine.block(100, "words", is_apart=True).buffer is words


@pytest.mark.medium
def test_a_block_that_goes_in_a_cycle_gives_back_a_buffer_that_lives() -> None:
    """The collector finalises a whole cycle before any of it goes, so a buffer that releases itself then must not be of it."""

    class Buffer(bytearray):
        is_released = False

        def __del__(self) -> None:
            self.is_released = True

    class Driver(FakeDriver):
        def allocate(self, nbytes: int) -> Buffer:
            return Buffer(nbytes)

    mine = Pool("fake:0", Driver(facts=FACTS))
    cycle: list[object] = [mine.block(1000, "x")]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert mine.used == 0, "the block went"
    assert not mine.block(1000, "x").buffer.is_released
