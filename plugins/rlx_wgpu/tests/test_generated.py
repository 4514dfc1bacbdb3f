"""Generated programs on a WebGPU device, against float64."""

from __future__ import annotations

import pytest

from rlx_core.plugins import PluginHost
from rlx_core.testing.fuzz import complaint
from rlx_core.testing.generate import generate

REGION_ON_THE_HOST = 12940011  # a region moved before a reshape, of f64, which the device has not

SEEDS = (REGION_ON_THE_HOST, *range(100, 140))


@pytest.mark.parametrize("seed", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in SEEDS)])
def test_a_generated_program_is_computed(host: PluginHost, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setenv("RLX_ALLOW_HOST", "*")
    assert complaint(generate(seed), target="wgpu", host=host) is None
