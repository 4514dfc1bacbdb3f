"""Files of records: what does not have the fields of the class is left out, and an unreadable file has none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rlx_core.system.record_files import append_record, appended_records, read_records, write_records
from rlx_core.system.records import frozen


@frozen
class Point:
    name: str
    count: int


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "points.jsonl"


def test_records_come_back_in_order(path: Path) -> None:
    assert read_records(path, Point) == []
    points = [Point("a", 1), Point("b", 2)]
    write_records(path, points)
    assert read_records(path, Point) == points
    write_records(path, points[1:])
    assert read_records(path, Point) == points[1:]


@pytest.mark.parametrize(
    "line",
    [
        *("{", "[]", '"a"', '{"name": "a"}', '{"name": "a", "count": 1, "more": 2}'),
        *('{"name": 1, "count": 1}', '{"name": "a", "count": "1"}', '{"name": "a", "count": true}'),
    ],
)
def test_lines_of_another_form_are_left_out(path: Path, line: str) -> None:
    write_records(path, [Point("a", 1)])
    path.write_text(f"{line}\n{path.read_text()}")
    assert read_records(path, Point) == [Point("a", 1)]


@pytest.mark.skipif(os.name != "posix", reason="files have modes there")
def test_a_file_that_others_can_write_has_no_records(path: Path) -> None:
    write_records(path, [Point("a", 1)])
    path.chmod(0o666)
    assert read_records(path, Point) == []
    assert json.loads(path.read_text()) == {"count": 1, "name": "a"}


def test_appended_records_are_read_up_to_a_line_that_was_not_finished(tmp_path: Path) -> None:
    file = tmp_path / "points.jsonl"
    assert appended_records(file, Point) == []
    points = [Point("a", 1), Point("b", 2)]
    for each in points:
        append_record(file, each)
    with file.open("a") as stream:
        stream.write('{"name": "c", "cou')
    assert appended_records(file, Point) == points
