"""Profiles: every step of every run, on either tier, and nothing where nobody asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core.pipeline.profile import active, profiled
from rlx_core.plugins import PluginHost

HOST = PluginHost([rlx_cpu.plugin])
X = np.random.default_rng(0).standard_normal((64, 96)).astype("f4")


def program(x: Any) -> Any:
    return rlx.sort(rlx.exp(x @ x.T), axis=-1)  # a product, a loop, and a step that no tier has as a kernel of its own


@pytest.fixture(params=["native", "numpy"])
def fast(request: pytest.FixtureRequest) -> Any:
    options = {"cpu.tier": request.param, "cpu.threads": 2}
    return rlx.compile(program, rlx.spec("f32[64, 96]"), host=HOST, target="cpu", config={"options": options})


def test_every_step_is_timed_in_every_run(fast: Any) -> None:
    steps = [step.node for step in fast.executable.lir.steps]
    with profiled() as profile:
        fast(X)
        fast(X)

    assert [t.step.node for t in profile.times] == [*steps, *steps]
    assert all(t.seconds > 0 and t.idle >= 0 for t in profile.times)
    assert [(t.step.node, n) for t, n in profile.fastest()] == [(node, 2) for node in steps]


def test_runs_outside_are_not_timed(fast: Any) -> None:
    with profiled() as profile:
        assert active() is profile
    fast(X)

    assert active() is None
    assert profile.times == []


def test_the_table_names_kernels_and_speeds(fast: Any) -> None:
    with profiled() as profile:
        fast(X)
    product = next(t for t in profile.times if "matmul" in t.step.kernel or "mat_mul" in t.step.kernel)

    exponentials = 64 * 64 if "epilogue" in product.step.kernel else 0
    assert product.flops == 2 * 64 * 64 * 96 + exponentials
    assert product.nbytes >= X.nbytes + 64 * 64 * 4
    lines = profile.table(groups=False).splitlines()
    assert len(lines) == len(profile.times) + 2
    assert lines[0].split()[0] == "share"
    assert lines[-1].endswith("in all")
    assert all(any(t.step.kernel in line for line in lines) for t in profile.times)
