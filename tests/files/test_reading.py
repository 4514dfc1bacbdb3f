"""Files that are shortened while they are in use: small ones and those read into memory are safe."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import BudgetError, FormatError
from rlx_core.files.reading import MAX_READ_NBYTES, in_memory, mapped
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


@pytest.mark.medium
@pytest.mark.parametrize(("count", "way"), [(1000, "mapped"), (MAX_READ_NBYTES, "read")])
def test_arrays_of_a_file_that_was_shortened_have_their_elements(count: int, way: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    rlx.save(path, {"w": np.ones(count, np.float32)})
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(path), way], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, str(float(count))), done.stderr


def test_a_file_that_is_shorter_than_its_header_says_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    rlx.save(path, {"w": np.ones(MAX_READ_NBYTES, np.float32)})
    with path.open("r+b") as file:
        file.truncate(MAX_READ_NBYTES)
    with pytest.raises(FormatError):
        rlx.load(path)


def test_large_files_are_mapped_and_all_memory_is_aligned_and_read_only(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    for count, is_mapped in ((0, False), (MAX_READ_NBYTES, False), (MAX_READ_NBYTES + 1, True)):
        path.write_bytes(bytes(count))
        found = mapped(path)
        assert is_of_a_mapping(found) is is_mapped
        assert (found.size, found.flags.writeable, count and found.ctypes.data % ALIGNMENT) == (count, False, 0)
    with in_memory():
        assert not is_of_a_mapping(mapped(path))


def is_of_a_mapping(data: np.ndarray) -> bool:
    return isinstance(data.base, memoryview) and isinstance(data.base.obj, mmap.mmap)


def test_a_file_larger_than_the_budget_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    rlx.save(path, {"w": np.ones(1000, np.float32)})
    with pytest.raises(BudgetError, match=r"loading a.safetensors: .* more than 4,000 bytes") as caught:
        rlx.load(path, config={"budget.read": 4000})
    assert "budget.read" in str(caught.value)


def test_the_configuration_of_the_folder_has_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rlx.save(tmp_path / "a.safetensors", {"w": np.ones(1000, np.float32)})
    (tmp_path / "rlx.toml").write_text("[budget]\nread = 4000\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BudgetError):
        rlx.load("a.safetensors")
    (tmp_path / "rlx.toml").write_text("[budget]\nread = 5000\n")
    assert rlx.load("a.safetensors")["w"].sum() == 1000


def test_a_sparse_file_of_two_tebibytes_is_refused(tmp_path: Path) -> None:
    """Such a file takes no space; reading it into memory would."""
    path = tmp_path / "a.safetensors"
    rlx.save(path, {"w": np.ones(10, np.float32)})
    try:
        os.truncate(path, 2 << 40)
    except OSError as error:
        pytest.skip(f"this file system has no such files ({error.strerror})")
    for is_mapped in (True, False):
        with pytest.raises(BudgetError, match="more than 1,099,511,627,776 bytes"):
            rlx.load(path, mapped=is_mapped)
