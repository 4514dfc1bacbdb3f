"""`rlx.profile`: times of steps and lines, memory, transfers, the page of a notebook and the trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import ConfigError, FileError, TraceError

X = np.random.default_rng(0).standard_normal((64, 96)).astype(np.float32)


def program(x: Any) -> Any:
    products = x @ x.T  # products
    return rlx.sort(products, axis=-1)  # sorted


def test_steps_and_lines_have_times() -> None:
    profile = rlx.profile(rlx.jit(program))(X)
    np.testing.assert_array_equal(profile.result, rlx.jit(program)(X))
    lines = {source.text.rpartition("# ")[2]: seconds for source, seconds, _ in profile.by_line()}
    assert lines.keys() == {"products", "sorted"}
    assert sum(lines.values()) == pytest.approx(profile.seconds)
    for part in ("GFLOP/s", "test_profiling.py", "arena"):
        assert part in str(profile)


@pytest.mark.parametrize("kind", ["function", "compile", "grad", "train_step", "loop", "executable"])
def test_whatever_is_compiled_can_be_profiled(kind: str) -> None:
    w = np.ones(96, np.float32)

    def loss(w: Any, x: Any) -> Any:
        return rlx.sum(rlx.tanh(x @ w))

    sgd = rlx.optim.sgd(0.1)
    calls: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "function": (loss, (w, X)),
        "compile": (rlx.compile(loss, w, rlx.spec("f32[n, 96]")), (X,)),
        "grad": (rlx.grad(loss), (w, X)),
        "train_step": (rlx.train_step(loss, sgd), (w, sgd.init(w), X)),
        "loop": (lambda c: rlx.scan(lambda c, _: (rlx.cos(c), c), c, None, length=5), (w,)),
        "executable": (rlx.compile(rlx.trace(loss, rlx.spec("f32[96]"), rlx.spec("f32[64, 96]"))), ()),
    }
    function, args = calls[kind]
    if kind == "executable":
        profile = rlx.profile(function.run)({"w": w, "x": X})
    else:
        profile = rlx.profile(function)(*args)
    assert profile.times
    assert all(t.seconds > 0 for t in profile.times)
    assert len(profile.runs) == 1
    assert profile.peak_nbytes >= w.nbytes


def test_memory_is_that_of_the_plan() -> None:
    f = rlx.jit(lambda x: rlx.sort(rlx.sort(x * 2.0, axis=0), axis=-1))
    profile = rlx.profile(f)(X)
    (run,) = profile.runs
    assert run.peak_nbytes == run.lir.arena_nbytes + 2 * X.nbytes
    live = list(run.live_nbytes())
    assert len(live) == len(run.lir.steps)
    assert 0 < max(live) <= run.lir.arena_nbytes
    assert profile.transferred_nbytes == 0


def test_the_trace_is_one_that_viewers_read(tmp_path: Path) -> None:
    profile = rlx.profile(rlx.jit(program), runs=3)(X)
    profile.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    complete = [e for e in events if e["ph"] == "X"]
    assert len(complete) == len(profile.times) + len(profile.runs)
    assert {e["ph"] for e in events} == {"X", "C", "M"}
    for each in complete:
        assert each["ts"] >= 0
        assert each["dur"] > 0
        assert isinstance(each["name"], str)
    runs = [e for e in complete if e["tid"] == 0]
    for step in (e for e in complete if e["tid"] == 1):  # each step lies in a run
        assert any(r["ts"] <= step["ts"] and step["ts"] + step["dur"] <= r["ts"] + r["dur"] for r in runs)
    with pytest.raises(FileError, match="cannot be written"):
        profile.save_trace(tmp_path / "absent" / "trace.json")


def test_a_notebook_shows_lines_steps_and_programs() -> None:
    html = rlx.profile(rlx.jit(program))(X)._repr_html_()
    for part in ("lines", "steps", "programs", "# products", "native_sort"):
        assert part in html


def test_what_was_not_run_is_said() -> None:
    assert str(rlx.profile(rlx.jit(lambda: 3))()) == "no compiled step was run"


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ConfigError, match="runs must be a positive integer"):
        rlx.profile(program, runs=0)
    with pytest.raises((ConfigError, TraceError)):
        rlx.profile(3)  # type: ignore[arg-type]
