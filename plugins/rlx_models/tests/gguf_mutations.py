"""GGUF files with bytes and fields changed: `python gguf_mutations.py COUNT [SEED]` reads so many, `make fuzz-gguf` 200,000.

Each must give a file or a typed error, within a time and a memory.
"""

from __future__ import annotations

import mmap
import os
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from gguf_files import old_version, small_file

from rlx_core.errors import RlxError
from rlx_models import gguf

SECONDS = 20  # of the processor, so that a busy machine finds no faults
MEMORY = 4 << 30
NUMBERS = [0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 31, 32, 33, 64, 255, 256, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**48, 2**62,
           2**63 - 1, 2**63, 2**64 - 32, 2**64 - 1]  # fmt: skip


def seeds(folder: Path) -> list[bytes]:
    """Return the bytes of files that differ in version, metadata and types."""
    files = [small_file(folder / f"{name}.gguf", name) for name in ("plain", "blocks", "metadata", "aligned")]
    data = [path.read_bytes() for path in files]
    return [*data, *(old_version(each, version) for version in (1, 2) for each in data[:3])]


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """Return the bytes with some of them changed, or some of their numbers."""
    found = bytearray(data)
    # Half of the changes are in the header, of which files have less than of data.
    limit = len(found) if rng.random() < 0.5 else min(len(found), 600)
    for _ in range(rng.integers(1, 4)):
        at, kind = int(rng.integers(limit)), rng.integers(7)
        if kind == 0:
            found[at : at + 1] = rng.bytes(1)
        elif kind == 1:
            del found[at : at + int(rng.integers(1, 9))]
        elif kind == 2:
            found[at:at] = rng.bytes(int(rng.integers(1, 9)))
        elif kind == 3:
            del found[at:]
        elif kind == 4:
            start = int(rng.integers(len(found) + 1))
            found[at:at] = found[start : start + int(rng.integers(64))]
        else:
            # A number in place of one that is there: lengths, counts and sizes begin with a small byte and have zeros after it.
            places = [p for p in range(limit) if found[p + 1 : p + 4] == b"\0\0\0"]
            place = places[rng.integers(len(places))] if places else at
            number = NUMBERS[rng.integers(len(NUMBERS))]
            packed = struct.pack("<Q", number) if kind == 5 else struct.pack("<I", number & 0xFFFFFFFF)
            found[place : place + len(packed)] = packed
        limit = max(min(limit, len(found)), 1)
    return bytes(found)


class TooSlow(BaseException):
    """A file took longer to read than it may."""


def read(path: Path, data: bytes) -> str:
    """Return what becomes of a file: `read`, `refused`, or the fault."""

    def late(signum: int, frame: Any) -> None:
        raise TooSlow

    path.write_bytes(data)
    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        for tensor in gguf.read(path).values():
            assert tensor.numpy().shape == tensor.shape
        return "read"
    except RlxError:
        return "refused"
    except TooSlow:
        return f"more than {SECONDS} s"
    except BaseException:  # noqa: BLE001 - whatever it is, it is what is looked for
        return traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def main(count: int, seed: int) -> int:
    """Read so many in processes of their own; return the number of faults, the end of a process among them."""
    folder = Path(tempfile.mkdtemp())
    given, kinds, faults, begun = seeds(folder), Counter[str](), 0, time.perf_counter()
    for each in given:  # what is imported on first use is there in every child
        assert read(folder / "seed.gguf", each) == "read"
    at = mmap.mmap(-1, 8)
    number = 0
    while number < count:
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(ours)
            _work(given, seed, range(number, count), at, theirs, folder / "changed.gguf")
        os.close(theirs)
        with os.fdopen(ours) as said:
            for line in said:
                kind, _, words = line.partition(" ")
                kinds[kind] += 1
                if kind == "fault":
                    faults += 1
                    print(f"seed {seed}, number {words}".replace("\x00", "\n"), flush=True)
        _, status = os.waitpid(child, 0)
        last = int.from_bytes(at[:8], "little")
        if os.WIFSIGNALED(status) or os.WEXITSTATUS(status):
            faults += 1
            kinds["ended"] += 1
            print(f"seed {seed}, number {last}: the process ended ({status})", flush=True)
        number = last + 1
    shutil.rmtree(folder)
    print(f"{count} files in {time.perf_counter() - begun:.0f} s: {dict(kinds)}")
    return faults


def _work(given: list[bytes], seed: int, numbers: range, at: mmap.mmap, said: int, path: Path) -> None:
    """Read files, writing what becomes of each."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    with os.fdopen(said, "w") as out:
        for number in numbers:
            at[:8] = number.to_bytes(8, "little")
            found = read(path, mutated(given[number % len(given)], np.random.default_rng((seed, number))))
            words = "" if found in ("read", "refused") else f"{number}:\x00" + found.replace("\n", "\x00")
            out.write(f"{found if not words else 'fault'} {words}\n")
            out.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(min(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0), 1))
