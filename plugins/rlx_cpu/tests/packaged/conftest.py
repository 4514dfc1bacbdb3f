"""A function with what packages are made of: packed and plain weights, a constant, several outputs, sizes that are open."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core import nn
from rlx_core.plugins import PluginHost

HOST = PluginHost([rlx_cpu.plugin])
_RNG = np.random.default_rng(0)
WEIGHTS = {
    "w": _RNG.standard_normal((48, 64)).astype("f4") / 7,
    "b": _RNG.standard_normal(64).astype("f4"),
    "table": _RNG.standard_normal((16, 64)).astype("f4"),
}
X = _RNG.standard_normal((8, 48)).astype("f4")
N = np.arange(8) % 16


def model(p: Any, x: Any, n: Any) -> Any:
    h = nn.gelu(nn.linear(x, p["w"], p["b"])) + rlx.take(p["table"], n, axis=0)
    wide = rlx.sin(h.astype("f64"))  # in f64 some functions are the C library's
    return {"h": rlx.softmax(h), "sorted": rlx.sort(h)}, (wide, x, p["b"], h[::2, ::-1])


def compiled(**options: Any) -> Any:
    return rlx.compile(
        model, WEIGHTS, rlx.spec("f32[rows, 48]"), rlx.spec("i64[rows]"), target="cpu", host=HOST, **options
    )


def leaves(found: Any) -> list[np.ndarray]:
    return [found[0]["h"], found[0]["sorted"], *found[1]]


if sys.platform != "linux":
    collect_ignore_glob = ["test_*.py"]  # code for packages is made, and run, on Linux


@pytest.fixture(autouse=True)
def without_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poison mode looks at every step, and so takes no code from a package."""
    monkeypatch.delenv("RLX_CPU_POISON", raising=False)


@pytest.fixture(scope="session")
def wanted() -> list[np.ndarray]:
    return leaves(compiled()(X, N))


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package with code for this machine, for one row and for eight."""
    path = tmp_path_factory.mktemp("package") / "m.rlxpack"
    rlx.package(compiled(), path, sizes=[{"rows": 1}, {"rows": 8}])
    return path
