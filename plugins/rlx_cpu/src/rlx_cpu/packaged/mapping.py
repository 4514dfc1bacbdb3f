"""An image in memory, ready to be called: written first, executable after that, never both at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rlx_core.errors import FormatError, KernelBuildError
from rlx_cpu.native.llvm.c_library import addresses as of_the_c_library
from rlx_cpu.native.llvm.loading import EXECUTE, READ, CodeMemory
from rlx_cpu.native.runtime import interpreter
from rlx_cpu.packaged.image import PAGE, Image

_MOST_NBYTES: Final = 1 << 31
"""Maximum size of an image, whose parts refer to each other by distances of 32 bits."""


class MappedCode:
    """Machine code in this process; addresses are valid as long as it lives.

    Raises:
        FormatError: It imports a function that is not allowed, or exports an address outside of the code.
        KernelBuildError: The system gives no memory to execute.
    """

    def __init__(self, image: Image) -> None:
        if not (len(image.code) <= image.table <= _MOST_NBYTES and image.table % PAGE == 0):
            raise FormatError(f"package: the table of {len(image.code)} bytes of code does not lie at {image.table}")
        if not all(0 <= offset < len(image.code) for offset in image.exports.values()):
            raise FormatError("package: a function lies outside of the code")
        words = [address_of(name) for name in image.imports]
        self._exports = image.exports
        size = image.table + max(8 * len(words), 1)
        try:
            self._memory = CodeMemory(size)
        except OSError as error:
            raise KernelBuildError(
                f"package: there is no memory for {size} bytes of code ({error.strerror})"
            ) from error
        contents = self._memory.bytes
        contents[: len(image.code)] = image.code
        contents[image.table : image.table + 8 * len(words)] = b"".join(w.to_bytes(8, "little") for w in words)
        self._memory.protect(0, image.table, READ | EXECUTE)
        self._memory.protect(image.table, size - image.table, READ)

    def address(self, function: str) -> int:
        """Return the address of a function; KeyError if no function has that name."""
        return self._memory.start + self._exports[function]


def address_of(name: str) -> int:
    """Return the address of one of the functions that native code may call.

    Raises:
        FormatError: Native code calls no function of that name, or this system has none.
    """
    address = of_the_c_library().get(name) or _of_the_interpreter().get(name)
    if not address:
        raise FormatError(f"package: its code calls {name}, which is not here, or which no code of rlx calls")
    return address


def _of_the_interpreter() -> Mapping[str, int]:
    return interpreter.addresses() if interpreter.reason_against() is None else {}
