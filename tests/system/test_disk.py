"""The files of a cache survive whatever happens to them; damage costs an entry and nothing else."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from rlx_core.errors import CacheError
from rlx_core.system.disk import DiskCache
from rlx_core.system.private import cache_directory

KEY = hashlib.sha256(b"a program").hexdigest()
OTHER = hashlib.sha256(b"another").hexdigest()
PAYLOAD = bytes(range(256)) * 2
X = np.float32([[1, 2, 3], [4, 5, 6]])


@pytest.fixture
def disk(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "cache")


def entry(disk: DiskCache, key: str = KEY) -> Path:
    return disk.directory / f"{key}.rlx"


# -------------------------------------------------------------------------------------------- entries


@pytest.mark.parametrize("payload", [b"", b"x", PAYLOAD], ids=len)
def test_what_was_stored_is_read_back(disk, payload):
    assert disk.get(KEY) is None
    assert disk.put(KEY, payload)
    assert DiskCache(disk.directory).get(KEY) == payload
    assert disk.keys() == [KEY]


def test_an_entry_cut_at_any_length_is_no_entry(disk):
    disk.put(KEY, PAYLOAD[:64])
    whole = entry(disk).read_bytes()
    for length in range(len(whole)):
        entry(disk).write_bytes(whole[:length])
        assert disk.get(KEY) is None, length
        assert not entry(disk).exists()
    assert disk.counts.rejected == len(whole)


@pytest.mark.medium
def test_an_entry_with_any_bit_flipped_is_no_entry(disk):
    disk.put(KEY, PAYLOAD[:32])
    whole = entry(disk).read_bytes()
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        entry(disk).write_bytes(damaged)
        assert disk.get(KEY) is None, bit


def test_an_entry_with_bytes_appended_is_no_entry(disk):
    disk.put(KEY, PAYLOAD)
    with entry(disk).open("ab") as file:
        file.write(b"\0")

    assert disk.get(KEY) is None


def test_an_entry_under_another_name_is_no_entry(disk):
    disk.put(KEY, PAYLOAD)
    entry(disk).rename(entry(disk, OTHER))

    assert disk.get(OTHER) is None
    assert "stored under" in disk.counts.faults[-1]


def test_a_damaged_entry_is_replaced(disk):
    disk.put(KEY, PAYLOAD)
    entry(disk).write_bytes(b"junk")

    assert disk.put(KEY, PAYLOAD)
    assert disk.get(KEY) == PAYLOAD


@pytest.mark.parametrize("kind", ["symlink", "directory", "pipe"])
def test_what_is_not_a_plain_file_is_no_entry(disk, kind, tmp_path):
    target = tmp_path / "elsewhere"
    target.write_bytes(b"secret")
    if kind == "symlink":
        entry(disk).symlink_to(target)
    elif kind == "directory":
        entry(disk).mkdir()
    else:
        os.mkfifo(entry(disk))

    assert disk.get(KEY) is None
    assert target.read_bytes() == b"secret"


@pytest.mark.parametrize("key", ["", "../../etc/passwd", KEY.upper(), KEY[:-1], KEY + "0", KEY[:-1] + "\n"])
def test_only_hex_digests_are_keys(disk, key):
    with pytest.raises(CacheError, match="64 hex digits"):
        disk.get(key)


# ------------------------------------------------------------------------------------------- eviction


def test_the_entries_unused_for_longest_go_first(tmp_path):
    disk = DiskCache(tmp_path / "cache", max_nbytes=3 * 1200)
    keys = [hashlib.sha256(bytes([i])).hexdigest() for i in range(4)]
    for age, key in enumerate(keys[:3]):
        disk.put(key, bytes(1000))
        os.utime(entry(disk, key), (1000 + age, 1000 + age))
    disk.get(keys[0])

    disk.put(keys[3], bytes(1000))

    assert disk.keys() == sorted([keys[0], keys[2], keys[3]])
    assert disk.nbytes <= disk.max_nbytes
    assert disk.counts.evicted == 1


@pytest.mark.medium
def test_entries_are_listed_for_a_share_of_the_limit_and_not_for_each(tmp_path, monkeypatch):
    """Otherwise an entry would take the longer to write, the more there are."""
    listings = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listings.append(path) or scandir(path))
    disk = DiskCache(tmp_path / "cache", max_nbytes=100 * 1080)

    for i in range(100):
        disk.put(hashlib.sha256(bytes([i])).hexdigest(), bytes(1000))

    # The first, and one for every seven entries, which are more than a sixteenth of the limit.
    assert len(listings) == 1 + 99 // 7


@pytest.mark.medium
def test_what_another_process_wrote_is_found_before_the_share_is_exceeded_twice(tmp_path):
    mine, other = (DiskCache(tmp_path / "cache", max_nbytes=100 * 1080) for _ in range(2))
    keys = [hashlib.sha256(bytes([i])).hexdigest() for i in range(200)]
    for own, foreign in zip(keys[:100], keys[100:], strict=True):
        mine.put(own, bytes(1000))
        other.put(foreign, bytes(1000))

    assert mine.nbytes <= mine.max_nbytes * (1 + 2 / 16)
    assert mine.counts.evicted + other.counts.evicted >= 200 - 112


def test_a_payload_larger_than_the_cache_is_not_kept(tmp_path):
    disk = DiskCache(tmp_path / "cache", max_nbytes=500)

    assert not disk.put(KEY, bytes(501))
    assert disk.keys() == []


def test_temporary_files_of_killed_writers_are_swept_away_when_old(disk):
    old, young = disk.directory / ".old.tmp", disk.directory / ".young.tmp"
    old.write_bytes(b"")
    young.write_bytes(b"")
    os.utime(old, (1000, 1000))

    disk.put(KEY, PAYLOAD)

    assert not old.exists()
    assert young.exists()


def test_temporary_files_of_processes_that_are_gone_go_at_once_and_others_count(tmp_path):
    disk = DiskCache(tmp_path / "cache", max_nbytes=10_000)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    dead = disk.directory / f".{KEY[:16]}.{gone.pid}.{'0' * 16}.tmp"
    alive = disk.directory / f".{KEY[:16]}.{os.getppid()}.{'0' * 16}.tmp"
    for each in (dead, alive):
        each.write_bytes(bytes(6000))
        os.utime(each, (time.time() - 60,) * 2)  # a moment, since a writer in another container is not seen from here

    disk.put(OTHER, bytes(3000))
    disk.put(KEY, bytes(3000))

    assert not dead.exists()
    assert alive.exists()
    assert disk.keys() == [KEY], "with what is being written, the two were too many"


# ----------------------------------------------------------------------------------------- permissions


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such modes")
def test_an_entry_that_others_may_write_is_no_entry(disk):
    disk.put(KEY, PAYLOAD)
    entry(disk).chmod(0o622)

    assert disk.get(KEY) is None
    assert "can be written by others" in disk.counts.faults[-1]


def test_directory_and_entries_belong_to_the_owner_alone(disk):
    disk.put(KEY, PAYLOAD)

    assert stat.S_IMODE(disk.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry(disk).stat().st_mode) == 0o600


def test_a_directory_open_to_others_is_refused(tmp_path):
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(0o755)

    with pytest.raises(CacheError, match="mode 755, not 700"):
        DiskCache(directory)


def test_a_directory_or_an_entry_of_another_user_is_refused(disk, monkeypatch):
    disk.put(KEY, PAYLOAD)
    someone_else = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: someone_else)

    assert disk.get(KEY) is None
    with pytest.raises(CacheError, match="belongs to user"):
        DiskCache(disk.directory)


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(CacheError, match="cannot be used"):
        DiskCache(tmp_path / "file" / "cache")


@pytest.mark.parametrize("operation", ["replace", "fsync", "open"])
def test_a_write_that_fails_leaves_nothing_and_raises_nothing(disk, monkeypatch, operation):
    """Stands for a full disk and a read-only directory, which a test cannot make for every user."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, operation, fail)
        assert not disk.put(KEY, PAYLOAD)

    assert list(disk.directory.iterdir()) == []
    assert "No space left" in disk.counts.faults[-1]
    assert disk.put(KEY, PAYLOAD)


@contextmanager
def an_ordinary_user() -> Iterator[None]:
    """Root may write where nobody else may, so it becomes nobody for a while."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.mark.skipif(os.name != "posix", reason="Windows has no modes that keep an owner from writing")
def test_a_read_only_directory_is_read_and_not_written():
    with an_ordinary_user(), tempfile.TemporaryDirectory() as place:  # one that this user may enter, as pytest's is not
        disk = DiskCache(Path(place) / "cache")
        disk.put(KEY, PAYLOAD)
        disk.directory.chmod(0o500)
        try:
            assert disk.get(KEY) == PAYLOAD
            assert not disk.put(OTHER, PAYLOAD)
            assert "Permission denied" in disk.counts.faults[-1]
        finally:
            disk.directory.chmod(0o700)


def test_the_directory_comes_from_the_environment():
    home = Path.home() / ".cache" / "rlx"
    assert cache_directory({"RLX_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_directory({"XDG_CACHE_HOME": "/b"}) == Path("/b/rlx")
    assert cache_directory({"XDG_CACHE_HOME": "relative"}) == home
    assert cache_directory({"RLX_CACHE_DIR": "", "XDG_CACHE_HOME": ""}) == home
