"""Files of records, one JSON line each: of this user's cache, which are replaced as a whole, and of processes, which append."""

from __future__ import annotations

import json
import os
import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

from attrs import asdict

from rlx_core.errors import CacheError
from rlx_core.system.private import own_directory, read_own, write_own

MAX_NBYTES: Final = 1 << 20
"""Bytes of a file that are read; a longer one is not rlx's."""

Record = TypeVar("Record")


def read_records(path: Path, kind: type[Record]) -> list[Record]:
    """Return the records of a file whose fields have the names and the types of the class; other lines are left out.

    The result is empty if the file is absent, another user's, or not text.
    """
    try:
        lines = read_own(path, MAX_NBYTES).decode("utf-8").splitlines()
    except (OSError, CacheError, UnicodeDecodeError):
        return []
    types = typing.get_type_hints(kind)
    return [kind(**fields) for line in lines if (fields := _fields(line, types)) is not None]


def write_records(path: Path, records: Iterable[Any]) -> None:
    """Replace the content of a file with attrs records.

    Raises:
        CacheError, OSError: The directory cannot be written, or others can write to it.
    """
    own_directory(path.parent)
    write_own(path, "".join(json.dumps(asdict(each), sort_keys=True) + "\n" for each in records).encode())


def append_record(path: Path, record: Any) -> None:
    """Append an attrs record, as a line that survives the end of the process; values that are not JSON are written as text."""
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(asdict(record), default=str) + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def appended_records(path: Path, kind: type[Record]) -> list[Record]:
    """Return the records that a process appended; a line that it did not finish is left out."""
    result = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            result.append(kind(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return result


def _fields(line: str, types: dict[str, Any]) -> dict[str, Any] | None:
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    is_valid = isinstance(fields, dict) and fields.keys() == types.keys()
    return fields if is_valid and all(type(fields[name]) is expected for name, expected in types.items()) else None
