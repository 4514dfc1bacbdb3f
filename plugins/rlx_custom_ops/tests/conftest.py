"""Random matrices, and a host with the CPU backend. The laws' options come with rlx-core, as a pytest plugin."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import rlx_custom_ops.plugin
import rlx_custom_ops.sparse.plugin
import rlx_custom_ops.splat.plugin
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
    """A host with this package and the CPU backend, as the default.

    Without that backend there is no target that our kernels are for, and the ops still work: tests of kernels are skipped.
    """
    backend = pytest.importorskip("rlx_cpu.plugin", reason="target cpu comes with rlx-cpu, which is not installed")
    own = {
        "linalg": rlx_custom_ops.plugin,
        "sparse": rlx_custom_ops.sparse.plugin,
        "splat": rlx_custom_ops.splat.plugin,
    }
    host = PluginHost([PluginEntry(name, plugin=door) for name, door in {"cpu": backend, **own}.items()])
    before = set_default_host(host)
    yield host
    set_default_host(before)
