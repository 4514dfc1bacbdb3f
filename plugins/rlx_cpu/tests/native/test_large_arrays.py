"""Arrays of more than 2³¹ elements: positions behind it are computed with 64 bits everywhere."""

from __future__ import annotations

import os

import numpy as np
import pytest

import rlx_core as rlx

SIZE = 2**31 + 8
NEEDED = 6 << 30  # bytes: an operand, a result, and the rest of the process


def has_memory() -> bool:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") > NEEDED
    except (ValueError, AttributeError):  # this system does not say
        return False


pytestmark = [pytest.mark.slow, pytest.mark.skipif(not has_memory(), reason="less than 6 GiB of memory are free")]


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    made = np.zeros(SIZE, np.int8)
    made[2**31 - 1], made[-3] = 7, 5
    return made


def test_elements_are_added(x: np.ndarray) -> None:
    found = np.asarray(rlx.jit(lambda x: x + x)(x))
    assert found.shape == (SIZE,)
    assert (found[2**31 - 1], found[-3]) == (14, 10)
    assert np.count_nonzero(found[-16:]) == 2


def test_reductions_see_every_element(x: np.ndarray) -> None:
    assert int(rlx.jit(rlx.max)(x)) == 7
    assert int(rlx.jit(rlx.argmax)(x)) == 2**31 - 1
    assert int(rlx.jit(lambda x: rlx.sum(x[2**30 :] != 0))(x)) == 2


def test_truths_are_reduced() -> None:
    made = np.zeros(SIZE, np.bool_)
    made[2**31] = True
    assert bool(rlx.jit(rlx.any)(made))
    assert not bool(rlx.jit(rlx.all)(made))


def test_slices_and_rows_behind_it_are_read(x: np.ndarray) -> None:
    np.testing.assert_array_equal(rlx.jit(lambda x: x[2**31 - 2 :])(x), [0, 7, 0, 0, 0, 0, 0, 5, 0, 0])
    np.testing.assert_array_equal(
        rlx.jit(lambda x, i: rlx.take(x, i))(x, np.int64([SIZE - 3, 2**31 - 1, 0])), [5, 7, 0]
    )
    np.testing.assert_array_equal(rlx.jit(lambda x: rlx.flip(x)[:4])(x), [0, 0, 5, 0])
    np.testing.assert_array_equal(rlx.jit(lambda x: rlx.reshape(x, (8, -1))[-1, -4:])(x), [0, 5, 0, 0])
