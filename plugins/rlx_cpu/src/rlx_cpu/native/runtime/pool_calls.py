"""The functions of a pool's native half, callable from Python."""

from __future__ import annotations

import ctypes
import time
from functools import cache

from rlx_cpu.native.runtime.code import STEPS, ProgramCode
from rlx_cpu.native.runtime.linked import code_of

__all__ = ["Runtime", "runtime"]


class Runtime:
    """The functions of the module, callable; the interpreter's lock is released while they run."""

    def __init__(self, code: ProgramCode) -> None:
        word = ctypes.c_int64
        self._code = code
        self.address = code.address
        self.drive = ctypes.CFUNCTYPE(None, *[word] * 7)(code.address("drive"))
        self.work = ctypes.CFUNCTYPE(word, *[word] * 5)(code.address("work"))
        self.start = ctypes.CFUNCTYPE(word, *[word] * 7)(code.address("start"))
        self.finish = ctypes.CFUNCTYPE(None, *[word] * 6)(code.address("finish"))
        self.take = ctypes.PYFUNCTYPE(word, word)(code.address("take"))
        self.leave = ctypes.PYFUNCTYPE(None, word)(code.address("leave"))
        self.unpark = ctypes.CFUNCTYPE(word, word, word)(code.address("unpark"))
        pauses = ctypes.CFUNCTYPE(None, word)(code.address("pauses"))
        pauses(1000)
        begun = time.perf_counter()
        pauses(10_000)
        self.pauses_per_us = 10_000 / max((time.perf_counter() - begun) * 1e6, 1.0)


@cache
def runtime() -> Runtime:
    """The module of this process."""
    return Runtime(code_of(STEPS))
