"""Files that nobody else can have written."""

from __future__ import annotations

import os

import pytest

from rlx_core.system.private import reason_against

pytestmark = pytest.mark.skipif(os.name != "posix", reason="files have owners and modes there")


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o1666])
def test_a_file_that_others_may_write_is_not_trusted_whatever_its_sticky_bit(mode: int, tmp_path) -> None:
    path = tmp_path / "f"
    path.touch()
    path.chmod(mode)
    assert "can be written by others" in (reason_against(path.stat()) or "")


def test_a_sticky_directory_is_one_in_which_nobody_exchanges_files(tmp_path) -> None:
    path = tmp_path / "d"
    path.mkdir()
    path.chmod(0o1777)
    assert reason_against(path.stat()) is None
    path.chmod(0o777)
    assert reason_against(path.stat()) is not None
