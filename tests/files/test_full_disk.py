"""A disk without space: a file is written as a whole or stays as it was, and compiling goes on without its cache.

`RLIMIT_FSIZE` stands for the full disk, in a process of its own: a write beyond it fails half way, as one to a full disk does.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Windows has no limit of a file's size")
needs_code = pytest.mark.skipif(importlib.util.find_spec("rlx_cpu") is None, reason="a package has code for the CPU")

PROGRAM = """
import sys
import numpy as np
import resource
import rlx_core as rlx

def predict(w, x):
    return rlx.tanh(w["w"] @ x)

def other(w, x):
    return rlx.exp(w["w"] @ x) + 1

def compiled(function):
    return rlx.compile(function, {"w": np.ones((200, 200), np.float32)}, rlx.spec("f32[200]"))

def full(nbytes=int(sys.argv[1])):
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, nbytes))
"""

SAVE = """
small, large = {"w": np.ones(10, np.float32)}, {"w": np.ones(50_000, np.float32)}
old, new = (small, large) if path.endswith(".safetensors") else (compiled(predict), compiled(other))
rlx.save(path, old)
with open(path, "rb") as file:
    before = file.read()
full()
try:
    rlx.save(path, new)
except rlx_core.errors.FileError as error:
    assert isinstance(error, OSError) and path in str(error), error
else:
    raise AssertionError("it was saved")
with open(path, "rb") as file:
    assert file.read() == before
"""


def run(program: str, nbytes: int, folder: Path) -> None:
    cache = folder / "cache"
    cache.mkdir(mode=0o700, exist_ok=True)
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM + program, str(nbytes)],
        cwd=folder,
        env={**os.environ, "RLX_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-2000:]
    left = [str(each) for each in folder.rglob("*") if "tmp" in each.name]
    assert left == []


@pytest.mark.medium
@pytest.mark.parametrize("nbytes", [0, 1, 4096, 100_000])
@pytest.mark.parametrize("name", ["a.safetensors", "a.rlx", pytest.param("a.rlxpack", marks=needs_code)])
def test_what_cannot_be_saved_leaves_the_old_file(name: str, nbytes: int, tmp_path: Path) -> None:
    run(f"import rlx_core.errors, rlx_core\npath = {name!r}\n{SAVE}", nbytes, tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(["cache", name])


@pytest.mark.medium
@needs_code
def test_a_package_that_does_not_fit_is_not_there(tmp_path: Path) -> None:
    program = """
fitted = compiled(predict)
full()
try:
    rlx.package(fitted, "a.rlxpack")
except OSError as error:
    print(error)
else:
    raise AssertionError("it was written")
"""
    run(program, 50_000, tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["cache"]


@pytest.mark.medium
@pytest.mark.parametrize("nbytes", [0, 60, 1000])
def test_programs_are_compiled_without_their_cache(nbytes: int, tmp_path: Path) -> None:
    """Then again in a process with space, which finds no part of an entry."""
    program = """
full()
x = np.float32([1, 2, 3])
np.testing.assert_allclose(rlx.jit(lambda x: rlx.sin(x) * 2 + rlx.exp(x))(x), np.sin(x) * 2 + np.exp(x), rtol=1e-6)
"""
    run(program, nbytes, tmp_path)
    run(program, 1 << 40, tmp_path)
    run(program, nbytes, tmp_path)
