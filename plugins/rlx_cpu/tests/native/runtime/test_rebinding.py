"""Parameters that are bound anew while a run with the old ones has begun."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core.plugins import PluginHost
from rlx_cpu.native.contract import Pack
from rlx_cpu.native.runtime.native_steps import NativeCode

HOST = PluginHost([rlx_cpu.plugin])
X = np.random.default_rng(0).standard_normal((40, 96)).astype("f4")
OLD, NEW = (np.random.default_rng(n).standard_normal((96, 64)).astype("f4") for n in (1, 2))


def test_packed_weights_are_those_of_the_runs_own_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that packs late, after others have bound anew, must not leave old panels to those who come next."""
    fast: Any = rlx.compile(lambda w, x: x @ w, OLD, rlx.spec("f32[40, 96]"), host=HOST, target="cpu")
    first, late = NativeCode.prepare, []

    def bind_in_between(code: NativeCode, frame: Any) -> Any:
        if not late:
            late.append(fast.rebind(w=NEW))
            fast(X)  # by another thread: it has its own frame
        return first(code, frame)

    monkeypatch.setattr(NativeCode, "prepare", bind_in_between)
    began_with_old = fast(X)

    np.testing.assert_allclose(began_with_old, X @ OLD, atol=1e-4)
    for _ in range(4):
        np.testing.assert_allclose(fast(X), X @ NEW, atol=1e-4)


def test_a_run_keeps_its_packed_weights_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    fast: Any = rlx.compile(lambda w, x: x @ w, OLD, rlx.spec("f32[40, 96]"), host=HOST, target="cpu")
    steps, late, rubbish = NativeCode._call, [], []

    def bind_in_between(code: NativeCode, *rest: Any) -> None:
        if not late:
            late.append(fast.rebind(w=NEW))
            fast(X)
            rubbish.extend(np.full(OLD.nbytes + 64, 255, np.uint8) for _ in range(64))  # where freed panels were
        steps(code, *rest)

    monkeypatch.setattr(NativeCode, "_call", bind_in_between)

    np.testing.assert_allclose(fast(X), X @ OLD, atol=1e-4)
    np.testing.assert_allclose(fast(X), X @ NEW, atol=1e-4)


def test_weights_are_packed_once_for_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program for one more size takes the panels that another one made; other weights, or changed ones, are packed anew."""
    fast: Any = rlx.compile(lambda w, x: x @ w, OLD.copy(), rlx.spec("f32[n, 96]"), host=HOST, target="cpu")
    pack, packed = Pack.pack, []
    monkeypatch.setattr(Pack, "pack", lambda *given: packed.append(pack(*given)) or packed[-1])
    for size in (40, 41, 42, 40):
        np.testing.assert_allclose(fast(X[:1].repeat(size, 0)), X[:1].repeat(size, 0) @ OLD, atol=1e-4)
    assert len(packed) == 1

    w = NEW.copy()
    for factor in (1, 2):
        w *= factor
        fast.rebind(w=w)  # the same array the second time, with other numbers
        for size in (40, 41):
            np.testing.assert_allclose(fast(X[:1].repeat(size, 0)), X[:1].repeat(size, 0) @ w, atol=1e-4)
    assert len(packed) == 3
