"""Pages that are not needed leave the memory of the process; those of mapped files are read again where they are accessed."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path

import numpy as np
import pytest

from rlx_core.files.reading import in_memory, mapped
from rlx_core.ir.mapped_pages import free_mapped_pages, free_owned_pages, owner_of, trim_heap
from rlx_core.run.memory import address_of

NBYTES = 4 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "data").write_bytes(np.arange(NBYTES // 4, dtype="<u4").tobytes())
    return tmp_path / "data"


def resident_nbytes(array: np.ndarray) -> int:
    """Return the bytes in memory of the mapping that an array begins."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    start = f"{address_of(array):x}-"
    assert any(line.startswith(start) for line in lines), "the array begins a mapping"
    rss = next(line for line in lines if line.startswith("Rss:"))
    return int(rss.split()[1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="memory of a mapping is read from Linux")
def test_pages_of_a_view_with_strides_are_freed_and_the_others_kept(path: Path) -> None:
    data = mapped(path)
    total = int(data.view("<u4").sum(dtype=np.uint64))
    assert resident_nbytes(data) == NBYTES
    free_mapped_pages(data[: NBYTES // 2].view("<u4")[::3])
    assert NBYTES // 2 <= resident_nbytes(data) <= NBYTES // 2 + 2 * mmap.PAGESIZE
    assert int(data.view("<u4").sum(dtype=np.uint64)) == total


def test_arrays_in_private_memory_and_within_a_page_are_left_alone(path: Path) -> None:
    with in_memory():
        copy = mapped(path)
    for array in (copy, np.arange(NBYTES), mapped(path)[100:200], np.empty(0)):
        before = array.copy()
        free_mapped_pages(array)
        assert np.array_equal(array, before)


def test_pages_that_the_process_has_written_are_kept(path: Path) -> None:
    with open(path, "rb") as file:
        private = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)
    private[:] = 7
    free_mapped_pages(private)
    assert (private == 7).all()


@pytest.mark.skipif(sys.platform != "linux", reason="pages of private memory are freed on Linux")
def test_pages_of_an_owned_array_are_freed_and_can_be_written_again() -> None:
    array = np.full(NBYTES, 7, np.uint8)
    assert free_owned_pages(array)
    first = -address_of(array) % mmap.PAGESIZE
    inside = array[first : first + (NBYTES - first) // mmap.PAGESIZE * mmap.PAGESIZE]
    assert not inside.any()
    assert (array[:first] == 7).all()
    assert free_owned_pages(array[first + 1 : first + 100])
    array[:] = 5
    assert (array == 5).all()
    trim_heap()


def test_the_owner_of_a_view_is_what_has_its_memory(path: Path) -> None:
    array = np.arange(12)
    assert owner_of(array[::2].reshape(2, 3)) is array
    assert not isinstance(owner_of(mapped(path)[3:]), np.ndarray)
