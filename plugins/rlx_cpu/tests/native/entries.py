"""Compiled functions and their entries: which program serves, and how a function comes to be called straight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core.plugins import PluginHost
from rlx_core.run.code import Calls
from rlx_core.run.program import PlannedProgram
from rlx_cpu.native.runtime.entry_words import Mode
from rlx_cpu.native.runtime.native_steps import NativeCode

__all__ = ["HOST", "W", "X", "entry_of", "is_open", "jitted", "long_program", "mode_of", "opened", "program", "step"]

HOST = PluginHost([rlx_cpu.plugin])
RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 16)).astype("f4")
W = RNG.standard_normal((16, 16)).astype("f4")


def jitted(function: Callable[..., Any], **more: Any) -> Any:
    return rlx.jit(function, host=HOST, target="cpu", **more)


def program(fast: Any) -> PlannedProgram:
    """The program that served the only size so far."""
    (executable,) = fast.executables
    programs = executable._shared.programs
    (binding,) = programs.keys()
    found = programs.get(binding).program
    assert isinstance(found, PlannedProgram)
    return found


def mode_of(made: PlannedProgram) -> Mode:
    """Who runs a native program."""
    code = made.compiled
    assert isinstance(code, NativeCode)
    return code.mode([code.run_of(part) for part in made.parts if isinstance(part, Calls)])


def entry_of(fast: Any) -> Callable[..., Any]:
    """The entry of a jitted function that was called before."""
    made = program(fast).entry("lambda")
    assert made is not None, program(fast).reason_without_entry
    return made


def is_open(fast: Any) -> bool:
    return fast.executables[-1].entry_cell.entry is not None


def opened(fast: Any, *args: Any) -> Any:
    """`fast`, called until plain calls go straight."""
    for _ in range(2):
        fast(*args)
    assert is_open(fast)
    return fast


def step(p: Any, g: Any) -> Any:
    return p - 0.5 * g


def long_program(x: Any) -> Any:
    for _ in range(6):
        x = rlx.tanh(x @ x)
    return x
