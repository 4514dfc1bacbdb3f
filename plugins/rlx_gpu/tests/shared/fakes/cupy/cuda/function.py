"""Modules."""

from __future__ import annotations

from cupy.cuda import driver


class Function:
    def __init__(self, ptr: int) -> None:
        self.ptr = ptr


class Module:
    def load(self, cubin: bytes) -> None:
        self._functions = driver.load(cubin)

    def get_function(self, name: str) -> Function:
        return Function(self._functions[name])
