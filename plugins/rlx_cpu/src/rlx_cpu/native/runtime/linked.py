"""The run-time's modules in this process, wherever they come from."""

from __future__ import annotations

from rlx_cpu.native.runtime.code import ProgramCode, codes


def code_of(name: str) -> ProgramCode:
    """A module's code. Where it has to be made that begins in the background, so this may be called long before it is needed."""
    if name not in codes:
        from rlx_cpu.native.runtime.own_code import compiled  # here, because LLVM is not everywhere

        codes.setdefault(name, compiled(name))
    return codes[name]
