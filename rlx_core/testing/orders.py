"""Determinism of compilation: a plugin's programs must not depend on the order of installation and activation, or on hash seeds.

    python -m rlx_core.testing.orders PLUGIN TURN       prints, as JSON, the result of each program in a few orders

A process has one hash seed, so the caller that compares (`rlx check`) starts several, each with another turn.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Iterator
from typing import Any, Final

from attrs import asdict

import rlx_core as rlx
from rlx_core.contributions import BackendSpec, KernelSpec, LegalizationSpec, PassSpec, RuleSetSpec
from rlx_core.contributions.records import STAGES
from rlx_core.errors import LegalizeError, RlxError
from rlx_core.ir.graph import Graph
from rlx_core.ir.text_lir import print_lir
from rlx_core.pipeline.compile import compile_graph
from rlx_core.pipeline.targets import preferred_target
from rlx_core.plugins import Claim, PluginEntry, PluginHost, Registry, default_host, set_default_host
from rlx_core.system.records import frozen
from rlx_core.testing.cases import programs
from rlx_core.testing.subjects import Subjects, entry_of, host_with_module, subjects_of_entry
from rlx_core.testing.targets import reason_declined

ORDERS: Final = 3
"""Number of orders that are tried in a process."""
MAX_PLANS: Final = 12
"""Maximum number of a plugin's programs that are compiled."""


@frozen
class Became:
    """The result of compiling a program; all of it is text, so that processes can compare it.

    Attributes:
        plan: The hash of the resolved pipeline.
        program: The digest of the planned program's text.
        error: The error of the compilation, if any.
        declined: The reasons of its kernels, if the target declines the program without a fault.
    """

    plan: str = ""
    program: str = ""
    error: str = ""
    declined: str = ""


def in_some_orders(word: str, turn: str) -> dict[str, list[Became]]:
    """Return the compilation results of each program for each target, one per order.

    Args:
        word: The plugin: its name, its distribution, its module or its file.
        turn: The seed of the orders.
    """
    base = host_with_module(word) or default_host()
    groups: dict[str, list[Became]] = {}
    for number in range(ORDERS):
        order = random.Random(f"{turn}.{number}")
        entries = list(base.entries)
        order.shuffle(entries)
        host = PluginHost(entries, policy=base.policy)
        for entry in order.sample(entries, len(entries)):  # activation has a separate order
            host.activate_for(f"domain.{entry.name}")
        before = set_default_host(host)
        try:
            for name, became in compiled(host, word):
                groups.setdefault(name, []).append(became)
        finally:
            set_default_host(before)
    return groups


def compiled(host: PluginHost, word: str) -> Iterator[tuple[str, Became]]:
    """Each program of a plugin, compiled for each target that it is about."""
    entry = entry_of(host, word)
    assert entry is not None, "whoever asks has found the plugin"
    registry = host.activate_all()
    graphs = list(programs_of(subjects_of_entry(host, entry)))
    config = pipeline_of(registry, entry)
    for target in targets_of(host, entry):
        for name, graph in graphs:
            yield f"{name} on {target}", became(host, graph, target, config)


def became(host: PluginHost, graph: Graph, target: str, config: dict[str, Any]) -> Became:
    try:
        compiled = compile_graph(graph, target=target, config=config, host=host)
    except RlxError as error:
        reason = reason_declined(error) if isinstance(error, LegalizeError) else None
        return Became(error=f"{type(error).__name__}: {error.message}", declined=reason or "")
    text = print_lir(compiled.lir)
    return Became(compiled.report.plan_hash, hashlib.sha256(text.encode()).hexdigest())


def programs_of(subjects: Subjects) -> Iterator[tuple[str, Graph]]:
    """A sample of each op that is contributed or that a contributed rule or kernel is for, and a program of standard ops."""
    ops = [*subjects.ops, *(op for _, op in subjects.rules), *(row.kernel.op for row in subjects.kernels)]
    named = tuple(dict.fromkeys(op for op in ops if op.name))
    first: dict[str, Graph] = {}
    for program in programs(named):
        if program.is_static and program.failure is None:
            first.setdefault(program.op.name, program.graph)
    yield from list(first.items())[:MAX_PLANS]
    yield "a layer", layer()


def layer() -> Graph:
    """A few standard ops, for passes and for targets."""

    def program(x: Any, w: Any) -> Any:
        return rlx.softmax(rlx.exp(x @ w) * 0.5 + 1.0)

    return rlx.trace(program, rlx.spec("f32[2, 8]"), rlx.spec("f32[8, 4]"))


def claims_of(registry: Registry, entry: PluginEntry) -> list[Claim]:
    """Return the contributions of a plugin."""
    return [claim for claim in registry.claims.values() if claim.entry.key == entry.key]


def targets_of(host: PluginHost, entry: PluginEntry) -> tuple[str, ...]:
    """The targets that a plugin provides or extends, and the default one, as far as they are here."""
    registry = host.registry()
    records = [claim.record for claim in claims_of(registry, entry)]
    declared = [each.name for each in records if isinstance(each, BackendSpec)]
    extended = [each.target for each in records if isinstance(each, KernelSpec | LegalizationSpec)]
    preferred = [preferred_target(host)[0]] if registry.backends else []
    return tuple(dict.fromkeys(name for name in [*declared, *extended, *preferred] if name in registry.backends))


def pipeline_of(registry: Registry, entry: PluginEntry) -> dict[str, Any]:
    """A configuration that runs every pass and rule set of a plugin: in the default pipeline where they say their place."""
    records = [c.record for c in claims_of(registry, entry) if isinstance(c.record, PassSpec | RuleSetSpec)]
    placed = [each.name for each in records if each.before or each.after]
    loose = {
        stage: [each.name for each in records if each.name not in placed and stage_of(each) == stage]
        for stage in STAGES
    }
    if not any(loose.values()):
        return {"include": placed}
    stages = {
        "hir": [*loose["hir"], "lower-hir"],
        "mir": ["canonicalize", *loose["mir"], "algebra", "cse", "dead-code", "legalize"],
        "lir": loose["lir"],
    }
    return {"use": "checked", "pipeline": {"checked": stages}, "include": placed}


def stage_of(record: PassSpec | RuleSetSpec) -> str:
    return (record.stage if isinstance(record, PassSpec) else None) or "mir"


if __name__ == "__main__":
    answers = in_some_orders(sys.argv[1], sys.argv[2])
    print(json.dumps({name: [asdict(each) for each in those] for name, those in answers.items()}))
