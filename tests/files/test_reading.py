"""Files that are shortened while they are in use: small ones and those read into memory are safe."""

from __future__ import annotations

import mmap
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import FormatError
from rlx_core.files.reading import SMALL, in_memory, mapped
from rlx_core.ir.prefix import ALIGNMENT

PROGRAM = """
import os, sys
import numpy as np
import rlx_core as rlx
path, is_mapped = sys.argv[1], sys.argv[2] == "mapped"
arrays = rlx.load(path, mapped=is_mapped)
os.truncate(path, 100)
print(float(np.asarray(arrays["w"]).sum()))
"""


@pytest.mark.parametrize(("count", "way"), [(1000, "mapped"), (SMALL, "read")])
def test_arrays_of_a_file_that_was_shortened_have_their_elements(count: int, way: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    rlx.save(path, {"w": np.ones(count, np.float32)})
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(path), way], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, str(float(count))), done.stderr


def test_a_file_that_is_shorter_than_its_header_says_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    rlx.save(path, {"w": np.ones(SMALL, np.float32)})
    with path.open("r+b") as file:
        file.truncate(SMALL)
    with pytest.raises(FormatError):
        rlx.load(path)


def test_large_files_are_mapped_and_all_memory_is_aligned_and_read_only(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    for count, is_mapped in ((0, False), (SMALL, False), (SMALL + 1, True)):
        path.write_bytes(bytes(count))
        found = mapped(path)
        assert is_of_a_mapping(found) is is_mapped
        assert (found.size, found.flags.writeable, count and found.ctypes.data % ALIGNMENT) == (count, False, 0)
    with in_memory():
        assert not is_of_a_mapping(mapped(path))


def is_of_a_mapping(data: np.ndarray) -> bool:
    return isinstance(data.base, memoryview) and isinstance(data.base.obj, mmap.mmap)
