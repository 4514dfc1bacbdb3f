"""The peers that are installed here. A module a system: `make(kind, data, threads)` gives its programs for a case by name.

A peer is queried for every case and returns nothing where it has no such program. A missing package is no
error: the peer is left out, and the run reports it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.case import Data, Program

__all__ = ["MODULES", "Peer", "installed"]

MODULES: Mapping[str, str] = {
    "torch": "benchmarks.peers.pytorch",
    "jax": "benchmarks.peers.jax_xla",
    "onnxruntime": "benchmarks.peers.onnx_runtime",
    "openvino": "benchmarks.peers.open_vino",
    "llama_cpp": "benchmarks.peers.llama_cpp",
    "numpy": "benchmarks.peers.plain_numpy",
}
"""Package → the module here that needs it."""


class Peer:
    """One installed system."""

    def __init__(self, package: str, version: str, module: Any) -> None:
        self.package, self.version, self.module = package, version, module

    def make(self, kind: str, data: Data, threads: int) -> Mapping[str, Program]:
        """Its programs for a case, by the name that the table shows."""
        programs: Mapping[str, Program] = self.module.make(kind, data, threads)
        return programs


def installed() -> Iterator[Peer | str]:
    """Every peer that can be imported; for one that cannot, why."""
    for package, module in MODULES.items():
        try:
            version = importlib.import_module(package).__version__
            yield Peer(package, version, importlib.import_module(module))
        except ImportError as error:
            yield f"{package} is left out: {error}"
