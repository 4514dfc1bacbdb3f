"""A reduced result is not stored over an operand that another result of the kernel still reads."""

from __future__ import annotations

import numpy as np
import pytest

from rlx_core.ir.graph import Builder, building
from rlx_core.ir.interpret import interpret
from rlx_core.ir.types import spec
from rlx_core.ops.batch_norm import BatchNorm
from rlx_core.pipeline.compile import compile_graph
from rlx_core.runtime.executable import Executable


@pytest.mark.parametrize("tier", ["native", "numpy"])
def test_a_variance_is_not_stored_over_the_running_variance_that_is_still_read(tier: str) -> None:
    # Found by fuzzing: one fused kernel had the batch's variance and the new running variance as results.
    builder = Builder("batch_norm")
    with building(builder):
        x = builder.input("x", spec("f32[2, 5, 4]"))
        values = [builder.input(f"v{i}", spec("f32[5]")) for i in range(4)]
        results = BatchNorm(axis=1, eps=1e-5, momentum=0.1)(x, *values)
    graph = builder.finish([results[2], results[4]])
    rng = np.random.default_rng(0)
    fed = {name: rng.uniform(0.5, 1.5, type.static_shape).astype("f4") for name, type in graph.input_types.items()}
    exact = interpret(graph, fed, mode="wide")
    config = {"options": {"cpu.tier": tier}}
    compiled = compile_graph(graph, target="cpu", donations={"v1": None, "v3": 0}, config=config, cache=None)
    for found, wanted in zip(Executable(compiled).run({n: a.copy() for n, a in fed.items()}), exact, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)  # sums of eight f32 numbers near one
