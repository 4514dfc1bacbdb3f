"""Every contribution that cannot be used, for the commands that look at all: each is imported to find out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from rlx_core.contributions import KINDS, Contribution, KernelSpec, PassSpec, RuleSpec
from rlx_core.errors import RlxError, nearest
from rlx_core.pipeline.contributed import EXPECTED, expectation
from rlx_core.plugins import ContributionFault, PluginHost, Registry
from rlx_core.plugins.faults import fault_of


def contribution_faults(host: PluginHost) -> list[ContributionFault]:
    """Every contribution of every active plugin that cannot be used, or not as it was meant; all are imported to find out."""
    registry = host.activate_all()
    faults = list(registry.faults)
    for kind in KINDS:
        for name, spec in registry.table(kind).items():
            faults += faults_of_one(registry, kind, name, spec)
    return [*faults, *(each for each in registry.left_out.values() if each not in faults)]


def faults_of_one(registry: Registry, kind: str, name: str, spec: Contribution) -> Iterator[ContributionFault]:
    claim = registry.claims[kind, name]
    note = partial(ContributionFault, kind, name, claim.provenance, is_wrong=False)
    if kind in EXPECTED:
        try:
            registry.load(kind, name, expectation(kind, spec, registry))
        except RlxError as error:
            yield fault_of(claim, error)
    if isinstance(spec, RuleSpec) and spec.op not in registry.ops:
        hint = nearest(spec.op, registry.ops)
        reason = f"no plugin provides the op {spec.op}" + (f"; {hint}" if hint else "")
        yield ContributionFault(
            kind, name, claim.provenance, reason, claim.provenance.place, f"correct {claim.provenance.place}"
        )
    if isinstance(spec, PassSpec):
        passes = {*registry.passes, *registry.rulesets}
        for word in sorted({*spec.before, *spec.after} - passes):
            hint = nearest(word, passes)
            yield note(f"its place is said by {word}, which no plugin provides" + (f"; {hint}" if hint else ""))
    targets = {*registry.backends, *(each for its, each in registry.refused if its == "backends")}
    if isinstance(spec, KernelSpec) and spec.target not in targets:
        yield note(f"no plugin provides the target {spec.target}")
