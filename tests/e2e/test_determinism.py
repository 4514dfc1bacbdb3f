"""One configuration and one set of packages give one plan: whatever was installed or activated first, in every process."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SEEDS = (0, 1, 2, 3, 4)
ORDERS = 4  # for each seed, so that twenty are tried in all

PROGRAM = """
import hashlib, json, random, sys

import numpy as np

import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core import nn
from rlx_core.contributions import *
from rlx_core.hooks import hookimpl
from rlx_core.ir.text_lir import print_lir
from rlx_core.ops import define_op, Op
from rlx_core.ops.activation import exp, softplus
from rlx_core.passes.engine.base import Pass, Result, define_pass
from rlx_core.passes.engine.rules import rewrite, ruleset
from rlx_core.pipeline.compile import compile_graph
from rlx_core.pipeline.dispatch import LegalizationTable
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.pipeline.plan import resolve_plan
from rlx_core.plugins import PluginEntry, PluginHost, PluginPolicy

NAMES = ["alder", "beech", "cedar", "dogwood", "elm", "fir", "gorse"]


@define_op(domain="shared")
class Halve(Op):
    def decompose(self, x):
        return x - x * 0.5


def plugin(domain):
    '''One of several that all want to serve the same ops of the same target, none with a higher priority.'''

    @define_op(domain=domain)
    class Shift(Op):
        by: float = 1.0

        def decompose(self, x):
            return x + self.by

    @define_pass("look", domain=domain)
    class Look(Pass):
        depth: int = 1

        def run(self, graph, context):
            return Result.unchanged(graph)

    kernels = KernelTable("cpu", plugin=domain)

    @kernels.register(exp.op, softplus.op, Shift, dtypes="f32", priority=1, name=f"{domain}_kernel")
    def run(op, x, *, out, workspace):
        op_value = op.reference(x) if op.reference is not None else x + op.by
        np.copyto(out, op_value)

    table = LegalizationTable(f"{domain}.table")

    @table.register(Halve)
    def by_product(op, x):
        return x * 0.5 if NAMES.index(domain) % 2 else x / 2.0

    class Plugin:
        @hookimpl
        def rlx_ops(self):
            return [Shift]

        @hookimpl
        def rlx_passes(self):
            return [PassSpec(f"{domain}.look", Look)]

        @hookimpl
        def rlx_kernels(self):
            return [KernelSpec("cpu", kernels)]

        @hookimpl
        def rlx_legalizations(self):
            return [LegalizationSpec("cpu", f"{domain}.table", table)]

    return PluginEntry(domain, plugin=Plugin(), distribution=f"{domain}-rlx", version="1.0"), Shift


def compiled(order):
    made = {name: plugin(name) for name in NAMES}
    entries = [made[name][0] for name in NAMES]
    entries.append(PluginEntry("cpu", plugin=rlx_cpu.plugin, distribution="rlx-cpu", version="0.1.0", when=("target",)))
    order.shuffle(entries)
    host = PluginHost(entries, policy=PluginPolicy())
    for name in order.sample(NAMES, len(NAMES)):  # activation has an order of its own
        host.activate_for(f"domain.{name}")
    shift = made["elm"][1](2.0)

    def model(params, x):
        h = nn.linear(x, params["w"], params["b"], activation="silu")
        return rlx.softmax(rlx.exp(shift(h)) + rlx.softplus(h) * Halve()(h))

    x, params = np.ones((2, 8), np.float32), {"w": np.ones((8, 4), np.float32), "b": np.zeros(4, np.float32)}
    config = {
        "use": "mine",
        "pipeline": {"mine": {"hir": ["lower-hir"], "mir": [*(f"{n}.look" for n in NAMES), "algebra", "legalize", "cse"]}},
        "fusion": {"policy": "fusable"},
    }
    found = compile_graph(rlx.trace(model, params, x), config=config, host=host)
    report = found.report
    return {
        "hash": report.plan_hash,
        "fingerprint": found.lir.fingerprint,
        "kernels": sorted(map(list, report.kernels)),
        "lir": hashlib.sha256(print_lir(found.lir).encode()).hexdigest(),
        "report": str(report.dispatch),
        "plan": str(resolve_plan_of(host, config, found.target)),
    }


def resolve_plan_of(host, config, target):
    from rlx_core.pipeline.config.reading import read_table

    return resolve_plan(read_table(config), host.registry(), target)


print(json.dumps([compiled(random.Random(f"{sys.argv[1]}.{n}")) for n in range(int(sys.argv[2]))]))
"""


@pytest.fixture(scope="module")
def compilations() -> list[dict[str, object]]:
    """What came of twenty random orders in five processes, each with its own hash seed."""
    found: list[dict[str, object]] = []
    for seed in SEEDS:
        environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(seed), str(ORDERS)], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        found += json.loads(done.stdout)
    return found


@pytest.mark.medium
@pytest.mark.parametrize("what", ["hash", "plan", "fingerprint", "lir", "kernels", "report"])
def test_no_order_of_installation_and_no_hash_seed_changes(compilations: list[dict[str, object]], what: str) -> None:
    first, *others = [each[what] for each in compilations]
    assert len(others) == len(SEEDS) * ORDERS - 1
    assert all(other == first for other in others)


@pytest.mark.medium
def test_among_equal_claims_the_name_decides(compilations: list[dict[str, object]]) -> None:
    """Otherwise the test above would compare programs in which no plugin had anything to decide."""
    served = {op: plugin for op, _, plugin in compilations[0]["kernels"]}  # type: ignore[attr-defined]
    assert served["rlx.exp"] == served["rlx.softplus"] == "alder"
    assert served["elm.shift"] == "elm"
    assert "alder.table" in str(compilations[0]["report"])
