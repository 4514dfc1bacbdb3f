"""Several processes share the files of a cache, and one that is killed at any moment leaves them whole."""

from __future__ import annotations

import hashlib
import multiprocessing
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rlx_core.system.disk import DiskCache

KEY = hashlib.sha256(b"a program").hexdigest()
OTHER = hashlib.sha256(b"another").hexdigest()
PAYLOAD = bytes(range(256)) * 2
X = np.float32([[1, 2, 3], [4, 5, 6]])


@pytest.fixture
def disk(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "cache")


def entry(disk: DiskCache, key: str = KEY) -> Path:
    return disk.directory / f"{key}.rlx"


def write_and_read(directory: str, seed: int) -> int:
    """Store and read twelve shared keys in turn; returns how many reads gave something other than what was stored."""
    disk = DiskCache(directory, max_nbytes=40_000)
    wrong = 0
    for round in range(30):
        number = (round * 7 + seed) % 12
        key, payload = hashlib.sha256(bytes([number])).hexdigest(), bytes([number]) * 5000
        if round % 3 == seed % 3:
            disk.put(key, payload)
        wrong += disk.get(key) not in (None, payload)
    return wrong + disk.counts.rejected


@pytest.mark.medium
def test_several_processes_may_write_read_and_evict_at_once(tmp_path):
    directory = str(tmp_path / "cache")
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        wrong = pool.starmap(write_and_read, [(directory, seed) for seed in range(3)])

    assert wrong == [0, 0, 0]
    assert DiskCache(directory).nbytes <= 40_000


KILLED = """
import os, resource, signal, sys
from rlx_core.system.disk import DiskCache

directory, key, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
old, new = b"o" * 50_000, b"n" * 60_000
header = 80
limits = [n * (header + len(new)) // times for n in range(times)]
disk, seen = DiskCache(directory), set()


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def killed(prepare):
    child = os.fork()
    if child == 0:
        prepare()
        disk.put(key, new)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the writer was not killed"
    found = disk.get(key)
    assert found in (None, old, new), f"{len(found)} bytes"
    seen.add(None if found is None else found[:1])


def at(size):
    def prepare():  # the kernel kills whoever writes beyond a limit, in the middle of the call
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    return prepare


def before_renaming():
    os.replace = die


def after_renaming():
    rename = os.replace
    os.replace = lambda *places: (rename(*places), die())


for number, limit in enumerate(limits):
    if number == times // 2:
        assert seen == {None}, seen
        disk.put(key, old)
    killed(at(limit))
killed(before_renaming)
assert disk.get(key) == old
killed(after_renaming)
assert disk.get(key) == new
assert disk.counts.rejected == 0
assert seen == {None, b"o", b"n"}, seen
"""


@pytest.mark.medium
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a write beyond the limit is an error, not a signal")
@pytest.mark.parametrize("kind", ["programs", "objects"])
def test_a_process_killed_at_any_byte_of_a_write_leaves_a_whole_entry_or_none(tmp_path, kind):
    """A hundred writers of each kind die at another byte, then one before and one after its file gets its name."""
    directory = tmp_path / kind
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(directory), KEY, "100"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    disk = DiskCache(directory)
    assert len(list(directory.glob(".*.tmp"))) >= 100, "killed writers leave temporary files"
    assert disk.keys() == [KEY]
    assert disk.put(KEY, PAYLOAD)
    assert disk.get(KEY) == PAYLOAD
