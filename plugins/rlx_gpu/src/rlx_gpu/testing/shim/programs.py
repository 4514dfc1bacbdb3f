"""Whole programs on a stand-in, for the laws of backends: `--rlx-backend=rlx_gpu.testing.shim.programs:run_cuda`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from rlx_core.contributions import BackendSpec, OptionSpec
from rlx_core.device.device import Device
from rlx_core.hooks import hookimpl
from rlx_core.ir.graph import Graph
from rlx_core.pipeline.backend import Level
from rlx_core.pipeline.compile import compile_graph
from rlx_core.plugins import PluginHost, default_host
from rlx_core.plugins.entry import given_entry
from rlx_core.runtime.executable import Executable
from rlx_gpu.backend import GpuBackend
from rlx_gpu.testing.shim.dialects import DIALECTS
from rlx_gpu.testing.shim.driver import stand_in


class ShimBackend(GpuBackend):
    """The target `shim`, with the one device that `shim_host` made."""

    name = "shim"
    present: Sequence[Device] = ()

    def found(self, options: Mapping[str, Any]) -> Sequence[Device]:
        return self.present


@cache
def shim_host(language: str) -> PluginHost:
    """Return a host with the target `shim` in addition to everything installed, whose device takes CUDA C, HIP or MSL.

    Args:
        language: `cuda`, `hip` or `metal`.

    Raises:
        DeviceUnavailableError: There is no C++ compiler.
    """
    dialect = DIALECTS[language]
    members = {
        "present": [stand_in(dialect, "shim:0")],
        "dialect": dialect.language,
        "level": Level(language, dialect.language.name, comment="//"),
    }
    backend = type("ShimBackend", (ShimBackend,), members)

    class Shim:
        @hookimpl
        def rlx_backends(self) -> list[BackendSpec]:
            return [BackendSpec("shim", backend, summary="A GPU language on this processor.")]

        @hookimpl
        def rlx_options(self) -> list[OptionSpec]:
            return [OptionSpec("shim.poison", bool, False, doc="Whether memory nobody may read is full of NaN.")]

    return PluginHost([*default_host().entries, given_entry(Shim())])


def run_cuda(graph: Graph, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """Run a graph in CUDA C, with poisoned memory; ops without a kernel run on the host."""
    return _run("cuda", graph, arrays)


def run_hip(graph: Graph, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """The same in HIP."""
    return _run("hip", graph, arrays)


def run_metal(graph: Graph, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """The same in the Metal Shading Language."""
    return _run("metal", graph, arrays)


def _run(language: str, graph: Graph, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    config = {"dispatch.allow-host": ["*"], "options": {"shim.poison": True}}
    executable = Executable(compile_graph(graph, target="shim", host=shim_host(language), config=config))
    return executable.run(dict(zip(graph.input_types, arrays, strict=True)))
