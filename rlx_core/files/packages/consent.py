"""Known packages: those whose code this user has agreed to run, because it was made here or by `rlx trust`.

A package is identified by the SHA-256 of its manifest. The manifest has the digests of all blobs, and a blob is checked before
it is used, so the identity covers everything that runs and opening a package does not read the whole file.
The list is a directory of this user alone in the cache directory, with one file for each package.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rlx_core.errors import CacheError, Fact, FileError
from rlx_core.system.private import cache_directory, own_directory, read_own, reason_against, write_own
from rlx_core.system.records import frozen

MADE_HERE: Final = "made here"
_MAX_NBYTES: Final = 1 << 16
"""Bytes of an entry, whose longest part is a path."""


@frozen
class TrustedPackage:
    """An entry of the list.

    Attributes:
        identity: SHA-256 of the manifest, as hex digits.
        sha256: SHA-256 of the file, as hex digits.
        file: Its path when it was added.
        origin: `made here`, or the command that added it.
    """

    identity: str
    sha256: str
    file: str
    origin: str


def list_directory() -> Path:
    """The directory of the list."""
    return cache_directory() / "known-packages"


def remember(package: TrustedPackage) -> None:
    """Add a package to the list.

    Raises:
        CacheError: The list cannot be written, or its directory is open to others.
    """
    directory = list_directory()
    own_directory(directory)
    row = {"sha256": package.sha256, "file": package.file, "origin": package.origin}
    try:
        write_own(directory / package.identity, json.dumps(row).encode())
    except OSError as error:
        raise CacheError(
            f"package: the list of known packages cannot be written ({error.strerror or error})"
        ) from error


def is_known(identity: str) -> bool:
    """Return whether a package is in the list.

    Raises:
        CacheError: The list is another user's or open to others.
    """
    directory = list_directory()
    if not os.path.lexists(directory):
        return False
    own_directory(directory)
    try:
        read_own(directory / identity, _MAX_NBYTES)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise CacheError(f"package: an entry of {directory} is not used: {error}") from error
    return True


def trusted_packages() -> list[TrustedPackage]:
    """Return the list, sorted by file.

    Raises:
        CacheError: It is another user's or open to others, or an entry cannot be read.
    """
    directory = list_directory()
    if not os.path.lexists(directory):
        return []
    own_directory(directory)
    return sorted((_read(each) for each in directory.iterdir() if len(each.name) == 64), key=lambda each: each.file)


def forget(sha256: str) -> None:
    """Remove the entries of a file's digest from the list.

    Raises:
        FileError: The list has no such entry.
        CacheError: The list is not this user's alone, or cannot be read.
    """
    matches = [each for each in trusted_packages() if each.sha256 == sha256.lower()]
    if not matches:
        raise FileError(f"trust: no known package has the SHA-256 {sha256!r:.80}", hint="`rlx trust` lists them")
    for each in matches:
        (list_directory() / each.identity).unlink(missing_ok=True)


def _read(path: Path) -> TrustedPackage:
    try:
        row = json.loads(read_own(path, _MAX_NBYTES))
        return TrustedPackage(path.name, str(row["sha256"]), str(row["file"]), str(row["origin"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CacheError(f"package: {path} is no entry of known packages ({error})", hint=f"remove {path}") from error


def safe_directory(path: Path) -> str | None:
    """Return why others could exchange a file, as a sentence about the directory, or `None` where they cannot."""
    for directory in dict.fromkeys((path.parent, Path(os.path.realpath(path)).parent)):
        reason = reason_against(directory.stat())
        if reason is not None:
            return f"the directory {os.path.abspath(directory)} {reason}"
    return None


def expect_consent(path: Path, identity: str, digest: Callable[[], str], trusted: bool | None) -> None:
    """Require that the user has agreed to run the code of a package, and that no other user can write the file.

    Args:
        path: The file.
        identity: The SHA-256 of its manifest, as hex digits.
        digest: Returns the SHA-256 of the file for an error; that takes as long as reading all of it.
        trusted: Whether the caller agrees; `None` leaves that to the list.

    Raises:
        FileError: The package is not known and `trusted` is not given; or it is, and others could have exchanged the file.
    """
    if trusted:
        reason = safe_directory(path)
        if reason is None:
            return
        sha256 = digest()
        raise FileError(
            f"package: trusted=True is for a file that others cannot exchange, and {reason}",
            Fact("sha256", sha256),
            hint=f"chmod go-w on that directory, or rlx.load(path, sha256={sha256!r})",
        )
    try:
        if is_known(identity):
            return
        facts: list[Fact] = []
    except CacheError as error:
        facts = [Fact("list of known packages", error.message)]
    sha256 = digest()
    raise FileError(
        f"package: {path} holds machine code, and nobody has agreed to run it: it was not made by this user here",
        Fact("sha256", sha256),
        *facts,
        hint=f"if you know where the file is from: rlx.load(path, sha256={sha256!r}) runs this file alone; "
        f"`rlx trust {path}` adds it to the known packages; rlx.load(path, trusted=True) runs whatever the file holds. "
        "rlx.load(path, trusted=False) compiles its program instead and runs none of its code",
    )
