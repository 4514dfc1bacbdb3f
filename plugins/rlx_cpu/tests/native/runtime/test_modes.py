"""Results do not depend on how the caller's thread rounds, nor on whether it flushes subnormals; and it stays as it was."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.system.floating import are_standard

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.libc_ver()[0] != "glibc",
    reason="how a test changes the modes is written for glibc on x86-64",
)

X = np.linspace(-3, 3, 999, dtype=np.float32)
W = np.linspace(-1, 1, 999 * 33, dtype=np.float32).reshape(999, 33)
SUBNORMAL = np.float32([1e-40, -3e-39, 2e-38])

FLUSH, DENORMALS_ARE_ZERO = 1 << 15, 1 << 6
MODES = {"down": 0x2000, "up": 0x4000, "toward zero": 0x6000, "flush": FLUSH, "zero": DENORMALS_ARE_ZERO}


@contextmanager
def modes(bits: int) -> Iterator[None]:
    """Change SSE's control word, which C's environment has at byte 28."""
    library, before, changed = ctypes.CDLL("libm.so.6"), (ctypes.c_uint32 * 8)(), (ctypes.c_uint32 * 8)()
    library.fegetenv(before)
    library.fegetenv(changed)
    changed[7] |= bits
    library.fesetenv(changed)
    try:
        yield
    finally:
        library.fesetenv(before)


PROGRAMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "exp": lambda x, w, s: rlx.exp(x) / 3,
    "softmax": lambda x, w, s: rlx.softmax(x),
    "product": lambda x, w, s: x @ w,
    "round": lambda x, w, s: rlx.round(x * 3),
    "sum": lambda x, w, s: rlx.sum(x * x),
    "subnormals": lambda x, w, s: s * 0.5 + s,
    "sort": lambda x, w, s: rlx.sort(x * 1.1),
}


@pytest.mark.parametrize("tier", ["native", pytest.param("numpy", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "mode", ["up", "flush", *(pytest.param(m, marks=pytest.mark.slow) for m in ("down", "toward zero", "zero"))]
)
def test_no_bit_depends_on_the_modes_of_the_caller(mode: str, tier: str) -> None:
    """Neither of a program compiled before nor of one that is compiled, and folds constants, meanwhile."""
    for name, function in PROGRAMS.items():

        def compiled(function: Any = function) -> Any:
            return rlx.jit(function, config={"options": {"cpu.tier": tier}, "cache": {"disk": False}})

        ready = compiled()
        expected = [np.asarray(ready(X, W, SUBNORMAL)).tobytes() for _ in range(4)][-1]
        with modes(MODES[mode]):
            fresh = compiled()
            found = [np.asarray(program(X, W, SUBNORMAL)).tobytes() for program in (ready, fresh) for _ in range(4)]
            assert not are_standard(), "the caller's modes are as they were"
        assert set(found) == {expected}, name
        assert np.asarray(ready(X, W, SUBNORMAL)).tobytes() == expected


def test_operations_at_once_do_not_depend_on_them_either() -> None:
    expected = np.asarray(rlx.divide(X, np.float32(3))).tobytes()
    with modes(MODES["up"]):
        assert np.asarray(rlx.divide(X, np.float32(3))).tobytes() == expected


@pytest.mark.parametrize("mode", MODES)
def test_other_modes_than_the_standard_ones_are_noticed(mode: str) -> None:
    assert are_standard()
    with modes(MODES[mode]):
        assert not are_standard()
    assert are_standard()
