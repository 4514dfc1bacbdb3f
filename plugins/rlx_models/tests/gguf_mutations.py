"""GGUF files with bytes and fields changed: `python gguf_mutations.py COUNT [SEED]` reads so many, `make fuzz-gguf` 200,000.

Each must give a file or a typed error, within a time and a memory.
"""

from __future__ import annotations

import struct
import sys
import tempfile
from pathlib import Path

import numpy as np
from gguf_files import old_version, small_file
from mutation_runs import count_faults, outcome

from rlx_models import gguf

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


def outcome_of(path: Path, data: bytes) -> str:
    """What becomes of a file: `read`, `refused`, or the fault."""
    path.write_bytes(data)

    def read() -> None:
        for tensor in gguf.read(path).values():
            assert tensor.numpy().shape == tensor.shape

    return outcome(read)


def main(count: int, seed: int) -> int:
    """Read so many in processes of their own; return the number of faults, the end of a process among them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "changed.gguf"
        given = seeds(Path(folder))
        for each in given:  # what is imported on first use is there in every child
            assert outcome_of(path, each) == "read"

        def changed(number: int) -> str:
            return outcome_of(path, mutated(given[number % len(given)], np.random.default_rng((seed, number))))

        return count_faults(changed, count, seed, memory=MEMORY)


if __name__ == "__main__":
    sys.exit(min(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0), 1))
