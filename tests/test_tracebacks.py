"""Tracebacks of users' errors: the users' frames and one of rlx's."""

from __future__ import annotations

import traceback
from pathlib import Path

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import RlxError
from rlx_core.errors.base import TRACEBACK_VARIABLE as VARIABLE

OWN = str(Path(rlx.__file__).parent)
X = np.ones(3, np.float32)


def wrong(x):
    return rlx.sum(x @ np.ones((4, 4), np.float32))


def raises(x):
    raise KeyError("the user's own")


CALLS = {
    "jit": lambda f: rlx.jit(f)(X),
    "grad": lambda f: rlx.grad(f)(X),
    "vmap": lambda f: rlx.vmap(f, in_axes=None, axis_size=2)(X),
    "jvp": lambda f: rlx.jvp(f, (X,), (X,)),
    "compile": lambda f: rlx.compile(f, rlx.spec("f32[3]")),
    "scan": lambda f: rlx.scan(lambda c, x: (c, f(x)), np.float32(0), np.ones((2, 3), np.float32)),
    "fori_loop": lambda f: rlx.fori_loop(0, 3, lambda i, x: f(x) + x, X),
}


def caught(call, function):
    with pytest.raises((RlxError, KeyError)) as error:
        call(function)
    frames = traceback.extract_tb(error.value.__traceback__)
    return frames, [frame for frame in frames if frame.filename.startswith(OWN)]


@pytest.mark.parametrize("function", [wrong, raises], ids=lambda f: f.__name__)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_traceback_has_the_users_frames_and_one_of_rlx(call, function, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    frames, own = caught(call, function)
    assert len(own) == 1
    assert frames[-1].name == function.__name__


def test_all_frames_are_there_for_whoever_asks(monkeypatch):
    monkeypatch.setenv(VARIABLE, "full")
    _, own = caught(CALLS["grad"], wrong)
    assert len(own) > 5


def test_another_value_is_named_and_shows_everything(monkeypatch):
    monkeypatch.setenv(VARIABLE, "long")
    with pytest.warns(RuntimeWarning, match="RLX_TRACEBACK='long' is neither short nor full"):
        _, own = caught(CALLS["jit"], wrong)
    assert len(own) > 5


def test_a_fault_of_rlx_itself_keeps_all_frames(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr("rlx_core.transforms.trace.bind_arguments", None)
    with pytest.raises(TypeError) as error:
        rlx.jit(wrong)(X)
    assert len(traceback.extract_tb(error.value.__traceback__)) > 3
