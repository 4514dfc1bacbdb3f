"""Tensors with external data: memory-mapped, and only from the model's folder.

A model contains the name of such a file, so an untrusted model could name any file. The name must be a path below the folder
without `..`, no component may be a link, and the file must be a regular one with one name: a hard link could refer to a private
file.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np

from rlx_core.errors import Fact, FormatError
from rlx_core.system.budget import current_work

_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_FILE = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def bytes_in(folder: Path | None, taken: Mapping[str, np.ndarray]) -> Callable[[Any], np.ndarray]:
    """Return a function that reads the bytes of tensors outside of the model: extracted ones, and those in its folder.

    Raises:
        FormatError: Raised by the returned function, for a tensor in another file if the model has no folder.
    """
    neighbours = None if folder is None else Neighbours(folder)

    def bytes_of(tensor: Any) -> np.ndarray:
        if tensor.name in taken:
            return taken[tensor.name]
        if neighbours is None:
            raise FormatError(
                f"tensor {tensor.name}: its bytes lie in another file, of which there is none for a model in memory"
            )
        return neighbours.bytes_of(tensor)

    return bytes_of


def _number(text: str) -> int:
    """Return the number of a text of ASCII digits; `int` also accepts spaces, underscores and digits of other alphabets."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is not written in digits")
    return int(text)


class Neighbours:
    """The files of a model's folder that tensors may lie in, each mapped once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mapped: dict[str, np.ndarray] = {}

    def bytes_of(self, tensor: Any) -> np.ndarray:
        """Return the bytes of a tensor with external data.

        Raises:
            FormatError: It names no file of the folder, or bytes that the file does not have.
        """
        message = {each.key: each.value for each in tensor.external_data}
        where = f"tensor {tensor.name}"
        full = self._file(message.get("location", ""), where)
        try:
            offset = _number(message.get("offset", "0"))
            length = _number(message["length"]) if "length" in message else len(full) - offset
        except ValueError as error:
            raise FormatError(f"{where}: offset and length are numbers ({error})") from None
        if offset < 0 or length < 0 or offset + length > len(full):
            raise FormatError(
                f"{where}: bytes {offset} to {offset + length} are not in {message['location']}, which has {len(full)}"
            )
        return full[offset : offset + length]

    def _file(self, location: str, where: str) -> np.ndarray:
        if location not in self._mapped:
            self._mapped[location] = self._map(location, where)
        return self._mapped[location]

    def _map(self, location: str, where: str) -> np.ndarray:
        parts = PurePosixPath(location).parts
        is_rooted = PurePosixPath(location).is_absolute() or bool(PureWindowsPath(location).anchor)
        if not parts or is_rooted or ".." in parts or "\\" in location or "\0" in location:
            raise _outside(where, location)
        try:
            descriptor = self._opened(parts)
        except OSError as error:
            raise FormatError(
                f"{where}: {location} cannot be read from the model's folder ({error.strerror or error})",
                Fact("folder", self.folder),
                hint="links are not followed" if self._is_link(parts) else None,
            ) from None
        with os.fdopen(descriptor, "rb") as file:
            result = os.fstat(file.fileno())
            if not stat.S_ISREG(result.st_mode) or result.st_nlink > 1:
                kind = "has several names" if stat.S_ISREG(result.st_mode) else "is no regular file"
                raise FormatError(f"{where}: {location} {kind}", Fact("folder", self.folder))
            work = current_work()
            if work is not None:
                work.read(result.st_size, location)
            if result.st_size == 0:
                return np.zeros(0, np.uint8)
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)

    def _opened(self, parts: tuple[str, ...]) -> int:
        """The file, each folder on the way opened from the one before it, so that none can be exchanged meanwhile."""
        directory = os.open(self.folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        for step, part in enumerate(parts):
            try:
                below = os.open(part, _FILE if step == len(parts) - 1 else _DIRECTORY, dir_fd=directory)
            finally:
                os.close(directory)
            directory = below
        return directory

    def _is_link(self, parts: tuple[str, ...]) -> bool:
        ways = (self.folder.joinpath(*parts[:n]) for n in range(1, len(parts) + 1))
        return any(way.is_symlink() for way in ways)


def _outside(where: str, location: str) -> FormatError:
    return FormatError(
        f"{where}: its bytes may lie in a file under the model's folder, not in {location!r}",
        hint="onnx.save_model(model, path, save_as_external_data=True) writes one",
    )
