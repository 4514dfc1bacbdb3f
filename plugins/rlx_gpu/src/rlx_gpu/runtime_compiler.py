"""A run-time compiler with the interface of NVRTC, which HIPRTC has too: both are C libraries, called by ctypes.

Not through CuPy, so that code is compiled for devices that are not here; the interpreter is free meanwhile, and several
threads compile at once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from functools import cached_property
from typing import Any

from rlx_core.device.libraries import first_that_loads
from rlx_core.errors import Fact, KernelBuildError
from rlx_core.system.records import define


@define(eq=False, slots=False)
class RuntimeCompiler:
    """A library and how it is called.

    Attributes:
        name: Its maker's name for it.
        language: The language that it compiles.
        target, level: Whose sources `rlx compile --target TARGET --emit LEVEL` prints.
        prefix: Of its functions.
        file: File name of a source in the compiler's messages.
        install: The command that brings it.
        paths: Where it may lie, best first.
        companions: Pattern of libraries in the same folder that are loaded before it.
    """

    name: str
    language: str
    target: str
    level: str
    prefix: str
    file: str
    install: str
    paths: Callable[[], Iterator[str]]
    companions: str = ""

    def compiled(
        self, source: str, architecture: str, options: Sequence[str], kind: str, place: str
    ) -> tuple[bytes, str]:
        """Return the code that a source is compiled to, and the compiler's log.

        Args:
            options: All of them, that for the architecture too.
            kind: The form of the result: the name of the function that returns it, without its prefix.
            place: The device, for errors.

        Raises:
            KernelBuildError: It refuses the source or the architecture.
            DeviceUnavailableError: It is not installed.
        """
        program, arguments = c_void_p(), (c_char_p * len(options))(*(each.encode() for each in options))
        self.call("CreateProgram", byref(program), source.encode(), self.file.encode(), 0, None, None, place=place)
        try:
            status = self._function("CompileProgram")(program, len(options), arguments)
            log = self._text(program, "ProgramLog").decode(errors="replace")
            if status:
                raise KernelBuildError(
                    f"{place}: its compiler refuses the source",
                    Fact(
                        "compiler", f"{self.name} {self.version} for {architecture}", log.strip("\0 \n")[-2000:] or None
                    ),
                    hint=f"the source is what `rlx compile --target {self.target} --emit {self.level}` prints",
                )
            return self._text(program, kind), log
        finally:
            self._function("DestroyProgram")(byref(program))

    @cached_property
    def library(self) -> ctypes.CDLL:
        """The first library that loads.

        Raises:
            DeviceUnavailableError: None of them can be loaded.
        """
        missing = f"{self.target}: {self.name}, which compiles {self.language},"
        library = first_that_loads(self.paths(), missing, self.install, self.companions)
        getattr(library, f"{self.prefix}GetErrorString").restype = c_char_p
        getattr(library, f"{self.prefix}DestroyProgram").argtypes = [POINTER(c_void_p)]
        return library

    @cached_property
    def version(self) -> str:
        """Its version: `13.0`."""
        major, minor = c_int(), c_int()
        self.call("Version", byref(major), byref(minor))
        return f"{major.value}.{minor.value}"

    def call(self, name: str, *arguments: object, place: str | None = None) -> None:
        """Call a function that has no reason to fail.

        Raises:
            KernelBuildError: It fails.
        """
        status = self._function(name)(*arguments)
        if status:
            message = self._function("GetErrorString")(status).decode()
            raise KernelBuildError(
                f"{place or self.target}: its compiler does not work", Fact("compiler", message), hint=self.install
            )

    def _text(self, program: c_void_p, what: str) -> bytes:
        size = c_size_t()
        self.call(f"Get{what}Size", program, byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"Get{what}", program, buffer)
        return buffer.raw

    def _function(self, name: str) -> Any:
        return getattr(self.library, f"{self.prefix}{name}")
