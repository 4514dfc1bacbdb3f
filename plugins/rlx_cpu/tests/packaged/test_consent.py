"""Code of a package runs only if its user has agreed: by its digest, by the list of known packages, or by `trusted=True`."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import ConfigError, FileError
from rlx_core.files.packages import consent

from .conftest import HOST, N, X, compiled, leaves


@pytest.fixture
def downloaded(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that belongs to this user, who has not made it here: the list of known packages is empty."""
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "files" / "m.rlxpack"
    path.parent.mkdir(mode=0o700)
    shutil.copyfile(package, path)
    path.chmod(0o644)
    return path


@pytest.mark.medium
def test_a_package_made_here_is_known_wherever_it_is_copied(tmp_path: Path) -> None:
    path, other = tmp_path / "m.rlxpack", tmp_path / "n.rlxpack"
    digest = rlx.package(compiled(), path, sizes=[{"rows": 8}])
    shutil.copy(path, other)
    assert rlx.load(other, host=HOST)(X, N)[0]["h"].shape == (8, 64)
    assert (digest, consent.MADE_HERE) in [(each.sha256, each.origin) for each in consent.trusted_packages()]


def test_an_unknown_package_is_refused_with_its_digest_and_what_to_do(downloaded: Path) -> None:
    with pytest.raises(FileError, match="nobody has agreed to run it") as caught:
        rlx.load(downloaded, host=HOST)
    digest = hashlib.sha256(downloaded.read_bytes()).hexdigest()
    text = str(caught.value)
    for remedy in (str(downloaded), f"sha256='{digest}'", f"rlx trust {downloaded}", "trusted=True", "trusted=False"):
        assert remedy in text


def test_each_remedy_runs_it(downloaded: Path, wanted: list[np.ndarray]) -> None:
    digest = hashlib.sha256(downloaded.read_bytes()).hexdigest()
    for options in ({"sha256": digest}, {"sha256": digest.upper()}, {"trusted": True}):
        found = rlx.load(downloaded, host=HOST, **options)
        assert found.report.code is not None
        np.testing.assert_allclose(leaves(found(X, N))[0], wanted[0], rtol=2e-6, atol=1e-6)
    with pytest.raises(FileError):  # consent to one load is not kept
        rlx.load(downloaded, host=HOST)


def test_without_trust_the_program_is_compiled_and_none_of_the_code_is_read(
    downloaded: Path, wanted: list[np.ndarray]
) -> None:
    found = rlx.load(downloaded, host=HOST, trusted=False)
    assert found.report.code is None
    assert set(found.report.reasons.values()) == {"is not run: trusted=False"}
    np.testing.assert_allclose(leaves(found(X, N))[0], wanted[0], rtol=2e-6, atol=1e-6)


def test_a_changed_package_is_not_the_known_one(downloaded: Path) -> None:
    container = consent.TrustedPackage("0" * 64, "0" * 64, str(downloaded), "rlx trust")
    consent.remember(container)
    with pytest.raises(FileError, match="nobody has agreed"):
        rlx.load(downloaded, host=HOST)


@pytest.mark.skipif(os.name != "posix", reason="directories have modes there")
def test_trusted_is_refused_where_others_can_exchange_the_file(downloaded: Path) -> None:
    downloaded.parent.chmod(0o777)
    digest = hashlib.sha256(downloaded.read_bytes()).hexdigest()
    with pytest.raises(FileError, match=r"cannot exchange, and the directory .* can be written by others"):
        rlx.load(downloaded, host=HOST, trusted=True)
    assert rlx.load(downloaded, host=HOST, sha256=digest).report.code is not None
    downloaded.parent.chmod(0o1777)  # sticky: only its owner renames a file
    assert rlx.load(downloaded, host=HOST, trusted=True).report.code is not None


@pytest.mark.medium
@pytest.mark.skipif(os.name != "posix", reason="directories have modes there")
def test_a_list_that_others_can_write_is_not_used(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "m.rlxpack"
    rlx.package(compiled(), path, sizes=[{"rows": 8}])
    assert rlx.load(path, host=HOST).report.code is not None
    consent.list_directory().chmod(0o777)
    with pytest.raises(FileError, match=r"(?s)nobody has agreed.*open to others"):
        rlx.load(path, host=HOST)
    with pytest.warns(RuntimeWarning, match="is not in the list of known packages"):
        rlx.package(compiled(), path, sizes=[{"rows": 8}])


@pytest.mark.parametrize("trusted", [2, "yes", 1.0])
def test_what_is_no_consent_is_refused(downloaded: Path, trusted: object) -> None:
    with pytest.raises(ConfigError, match="trusted is True, False or None"):
        rlx.load(downloaded, host=HOST, trusted=trusted)  # type: ignore[arg-type]


def test_consent_is_for_packages(tmp_path: Path) -> None:
    rlx.save(tmp_path / "x.safetensors", {"x": X})
    with pytest.raises(ConfigError, match="trusted is for a package"):
        rlx.load(tmp_path / "x.safetensors", trusted=True)
