"""The target processor for LLVM, and compilation of a module's text to an object file or assembly."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from rlx_cpu.native import llvm
from rlx_cpu.native.llvm.isa import Host, Isa, facts, this_host

if TYPE_CHECKING:
    from rlx_cpu.native.llvm import ir
    from rlx_cpu.native.llvm.boundary import Processor

__all__ = ["assembly", "generate", "machine_words", "new_module", "processor", "triple", "triple_for"]

VERSION: Final = "3"
"""Raised when the same text would have to give other code."""


def triple() -> str:
    """Return LLVM's triple of this machine."""
    return facts().triple


def new_module(name: str, isa: Isa | None = None) -> ir.Module:
    """Return an empty module for this machine, or for the targets of portable code."""
    return llvm.ir.Module(name, triple() if isa is None or isa.cpu is None else triple_for(isa))


@cache
def features(isa: Isa, host: Host) -> str:
    """The feature string of an instruction set on a processor; every program that is linked needs it."""
    return isa.features(host)


def machine_words(isa: Isa) -> str:
    """Return all properties of the machine and the compiler that affect the code of a text."""
    return _words(isa, this_host())


@cache
def _words(isa: Isa, host: Host) -> str:
    return repr(
        (VERSION, isa.name, isa.machine, features(isa, host), isa.cpu or host.cpu, facts().llvm, facts().llvmlite)
    )


def triple_for(isa: Isa) -> str:
    """Return LLVM's triple of the targets of an instruction set's portable code."""
    return f"{isa.arch}-unknown-linux-gnu"


def processor(isa: Isa) -> Processor:
    """Return the target of an instruction set's code: this machine, or every machine that has the set."""
    host = this_host()
    if isa.cpu is None:
        return llvm.boundary.Processor(features(isa, host), host.cpu)
    return llvm.boundary.Processor(features(isa, host), isa.cpu, triple_for(isa))


def generate(text: str, isa: Isa) -> bytes:
    """The object file of a module.

    Raises:
        RuntimeError: LLVM does not take it.
        OutOfMemoryError: LLVM may need more memory than is available.
    """
    return llvm.boundary.object_file(text, processor(isa), outer=llvm.build.OUTER)


def assembly(module: ir.Module, isa: Isa) -> str:
    """The machine code as text, for people."""
    return llvm.boundary.assembly(str(module), processor(isa), outer=llvm.build.OUTER)
