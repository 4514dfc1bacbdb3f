"""Random matrices, and a host with the CPU backend. The laws' options come with rlx-core, as a pytest plugin."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import rlx_custom_ops.plugin
from rlx_core.plugins import PluginEntry, PluginHost, set_default_host

Draw = Callable[..., np.ndarray]


@pytest.fixture
def draw() -> Draw:
    """`draw(4, 3, dtype)`: elements between -1 and 1, the same in every run."""
    rng = np.random.default_rng(7)

    def drawn(*shape: int, dtype: str = "f8") -> np.ndarray:
        parts = rng.uniform(-1, 1, shape) + 1j * rng.uniform(-1, 1, shape)
        return parts.astype(dtype) if np.dtype(dtype).kind == "c" else parts.real.astype(dtype)

    return drawn


@pytest.fixture
def cpu() -> Iterator[PluginHost]:
    """A host with this package and the CPU backend, as the default; tests that need it are skipped without one."""
    if importlib.util.find_spec("rlx_cpu") is None:
        pytest.skip("rlx-cpu is not there")
    backend = importlib.import_module("rlx_cpu.plugin")
    host = PluginHost([PluginEntry("cpu", plugin=backend), PluginEntry("linalg", plugin=rlx_custom_ops.plugin)])
    before = set_default_host(host)
    yield host
    set_default_host(before)
