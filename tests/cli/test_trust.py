"""`rlx trust`: packages from elsewhere are added to the known ones, listed and removed."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import rlx_core as rlx
from rlx_core.cli.main import app
from rlx_core.errors import FileError

pytest.importorskip("rlx_cpu", reason="packages hold code of the CPU")


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), prog_name="rlx")


@pytest.fixture
def downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that was made with another cache, so that it is not known."""
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "maker"))
    compiled = rlx.compile(lambda x: x * 2, rlx.spec("f32[4]"))
    rlx.package(compiled, tmp_path / "made.rlxpack")
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "user"))
    path = tmp_path / "files" / "made.rlxpack"
    path.parent.mkdir(mode=0o700)
    shutil.copy(tmp_path / "made.rlxpack", path)
    return path


@pytest.mark.medium
def test_a_package_is_added_listed_and_removed(downloaded: Path) -> None:
    digest = hashlib.sha256(downloaded.read_bytes()).hexdigest()
    with pytest.raises(FileError, match="nobody has agreed"):
        rlx.load(downloaded)
    assert run("trust", str(downloaded)).exit_code == 0
    np.testing.assert_array_equal(rlx.load(downloaded)(np.ones(4, np.float32)), np.full(4, 2, np.float32))
    (row,) = json.loads(run("trust", "--json").stdout)
    assert (row["sha256"], row["origin"]) == (digest, "rlx trust")
    assert run("trust", "--remove", digest).exit_code == 0
    with pytest.raises(FileError, match="nobody has agreed"):
        rlx.load(downloaded)


@pytest.mark.medium
def test_a_digest_that_is_not_known_and_a_damaged_package_are_errors(downloaded: Path) -> None:
    assert "no known package has the SHA-256" in run("trust", "--remove", "ab" * 32).stderr
    data = bytearray(downloaded.read_bytes())
    data[len(data) * 2 // 3] ^= 1
    downloaded.write_bytes(data)
    done = run("trust", str(downloaded))
    assert done.exit_code != 0
    assert json.loads(run("trust", "--json").stdout) == []
