"""Oracle mode: a LIR run by the reference interpreter with every float in f64, rounded once at the end.

It is slow and allocates memory while it runs; its result is the reference with which every kernel of every tier is compared,
through the same compile path, plan and manifest as a real run (`[options] "cpu.oracle" = true`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rlx_core.ir.interpret import interpret
from rlx_core.ir.lir import Lir
from rlx_core.pipeline.backend import Program


class OracleProgram(Program):
    """A LIR evaluated in double precision, node by node."""

    def __init__(self, lir: Lir, params: Mapping[str, np.ndarray] | None = None) -> None:
        self._lir = lir
        self._params = dict(params or {})

    def bind(self, params: Mapping[str, np.ndarray]) -> None:
        self._params = {**self._params, **params}

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs in their declared dtypes; donated arrays get theirs in place, as in any run."""
        fed = {e.name: array for e, array in zip(self._lir.manifest.inputs, inputs, strict=True)}
        wide = interpret(self._lir.graph, fed, self._params, mode="wide")
        results = [np.array(w, v.dtype.numpy) for w, v in zip(wide, self._lir.graph.outputs, strict=True)]
        donors = {e.value: array for e, array in zip(self._lir.manifest.inputs, inputs, strict=True)}
        for i, delivery in enumerate(self._lir.deliveries):
            if delivery.kind == "donor" and delivery.donor in donors:
                np.copyto(donors[delivery.donor], results[i])
                results[i] = donors[delivery.donor]
        return results

    def clone(self) -> OracleProgram:
        return OracleProgram(self._lir, self._params)
