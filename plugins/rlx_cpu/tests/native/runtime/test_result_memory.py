"""Large results: where they begin, that they are arrays like any other, and what is kept when they are dropped."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from callers import finished, forked, forks, side_by_side
from entries import jitted, opened

import rlx_core as rlx
from rlx_core.ir.array import unwrapped
from rlx_cpu.native.contract import ALIGNMENT
from rlx_cpu.native.runtime.result_memory import MIN_ALLOCATOR_NBYTES, allocating, allocator, handler_name, held_nbytes
from rlx_cpu.native.runtime.result_memory_words import LARGE, MAX_CACHED_NBYTES, SLOTS

pytestmark = pytest.mark.usefixtures("without_poison")


def block(nbytes: int) -> np.ndarray:
    """An array whose memory is from our allocator."""
    with allocating(allocator()):
        return np.empty(nbytes, np.uint8)


def test_numpy_takes_the_allocator() -> None:
    """One that does not is served by its own: results are right and slower, and this test says that it is time to look."""
    assert allocator() is not None


@pytest.mark.parametrize("nbytes", [MIN_ALLOCATOR_NBYTES, LARGE, LARGE + 4])
def test_large_results_begin_at_a_cache_line_and_own_their_memory(nbytes: int) -> None:
    x = np.arange(nbytes // 4, dtype="f4")
    y = unwrapped(opened(jitted(lambda x: x + 1.0), x)(x))
    assert handler_name(y) == "rlx"
    assert y.ctypes.data % ALIGNMENT == 0
    assert y.flags.owndata
    assert y.base is None
    np.testing.assert_array_equal(y, x + 1)


def test_small_results_and_everybody_elses_arrays_are_numpys() -> None:
    before = handler_name(np.empty(MIN_ALLOCATOR_NBYTES))
    x = np.ones(MIN_ALLOCATOR_NBYTES // 4 - 1, "f4")
    small, large = (
        unwrapped(opened(jitted(lambda x: rlx.exp(x)), a)(a)) for a in (x, np.ones(MIN_ALLOCATOR_NBYTES, "f4"))
    )
    assert (handler_name(small), handler_name(large)) == (before, "rlx")
    assert handler_name(np.empty(MIN_ALLOCATOR_NBYTES)) == before


def test_a_block_is_found_again_by_who_asks_for_about_as_much() -> None:
    def start_of(nbytes: int) -> int:
        return int(block(nbytes).ctypes.data)

    start = start_of(2 * LARGE)
    same, less, half, more = (start_of(n) for n in (2 * LARGE, 2 * LARGE - LARGE // 4, LARGE, 2 * LARGE + 1))
    assert same == less == start
    assert half != start, "half of it would be wasted"
    assert more != start, "it has not so many bytes"


def test_what_is_kept_is_bounded() -> None:
    for nbytes in (LARGE, MAX_CACHED_NBYTES // 3, MAX_CACHED_NBYTES // 2 + 1, MAX_CACHED_NBYTES + 1, LARGE - 1):
        blocks = [block(nbytes) for _ in range(2 * SLOTS)]
        del blocks
        assert 0 < held_nbytes() <= MAX_CACHED_NBYTES


@pytest.mark.medium
def test_bytes_stay_when_an_array_is_resized() -> None:
    shortest = MIN_ALLOCATOR_NBYTES
    for before, after in [(shortest, 3 * shortest), (LARGE, shortest), (shortest, LARGE), (LARGE, 2 * LARGE)]:
        array = block(before)
        array[:] = np.arange(before) % 251
        array.resize(after, refcheck=False)
        both = min(before, after)
        np.testing.assert_array_equal(array[:both], np.arange(both) % 251)
        assert not array[both:].any()


def test_zeros_are_zero_in_a_block_that_was_used() -> None:
    for nbytes in (MIN_ALLOCATOR_NBYTES, LARGE):
        used = block(nbytes)
        used[:] = 1
        del used
        with allocating(allocator()):
            assert not np.zeros(nbytes, np.uint8).any()


@pytest.mark.medium
def test_a_program_of_large_results_gives_the_same_again_and_again() -> None:
    x = np.random.default_rng(0).random(LARGE // 4 + 5, np.float32)
    fast = opened(jitted(lambda x: (x * 2.0, rlx.flip(x))), x)
    kept = [fast(x) for _ in range(3)]
    for _ in range(2 * SLOTS):
        twice, back = fast(x)
        np.testing.assert_array_equal(twice, x * 2)
        np.testing.assert_array_equal(back, x[::-1])
    assert len({np.asarray(a).ctypes.data for pair in kept for a in pair}) == 6
    for twice, back in kept:
        np.testing.assert_array_equal(twice, x * 2)
        np.testing.assert_array_equal(back, x[::-1])


@pytest.mark.medium
def test_threads_may_drop_and_make_results_at_once() -> None:
    def work(seed: int) -> bool:
        rng = np.random.default_rng(seed)
        held: list[tuple[int, np.ndarray]] = []
        for i in range(200):
            array = block(int(rng.integers(LARGE - 100, 2 * LARGE)))
            array[::4096] = i % 251
            held.append((i % 251, array))
            if len(held) > 3:
                number, oldest = held.pop(int(rng.integers(len(held))))
                if (oldest[::4096] != number).any():
                    return False
        return True

    assert side_by_side(*(lambda seed=seed: work(seed) for seed in range(4))) == [True] * 4


@pytest.mark.medium
@forks
def test_a_forked_child_has_blocks_of_its_own() -> None:
    mine = block(LARGE)
    mine[:] = 7
    del mine
    gc.collect()
    again = block(LARGE)

    def holds() -> bool:
        again[:] = 9
        other = block(LARGE)
        other[:] = 1
        return bool((again == 9).all())

    again[:] = 7
    child = forked(holds)
    assert finished(child) == 0
    assert (again == 7).all()
