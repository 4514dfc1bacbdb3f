"""The answer of a target for a node, and the report of all answers.

A node runs by a native kernel, as a view of an operand, or (where the configuration allows it) on the host; otherwise it is
rewritten for the target or replaced by its decomposition, and if neither exists it is unsupported. A kernel of negative
priority on a lower tier yields to a decomposition that runs wholly on the best. One function decides (`Dispatcher.answer`), and
selection, reports and `supports` all read its answers.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Literal, TypeVar

from attrs import asdict, field

from rlx_core.errors import ConfigError, Fact
from rlx_core.errors.contained import contained
from rlx_core.ir.graph import Node, probe
from rlx_core.ir.op import Op
from rlx_core.ir.strides import dense_strides, is_dense
from rlx_core.ir.types import TensorType
from rlx_core.passes.engine.splice import draft
from rlx_core.pipeline.backend import Target
from rlx_core.pipeline.config.records import DispatchConfig
from rlx_core.pipeline.kernels import HOST, HOST_KERNEL, Kernel, KernelRefusal, matches
from rlx_core.system.records import frozen

__all__ = [
    "HOST",
    "Answer",
    "Dispatch",
    "DispatchReport",
    "Dispatcher",
    "LegalizationTable",
    "is_view",
    "probe",
    "supports",
]

Means = Literal["native", "view", "rewritten", "common-ir", "host", "unsupported"]

_F = TypeVar("_F", bound=Callable[..., Any])


class LegalizationTable:
    """Target rewrites by op: functions from an op and its operands to equal values in ops that the target runs better.

    A function may return `None` for "not this one". A plugin offers a table through the `rlx_legalizations` hook.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.plugin: str | None = None  # who offers it; set when it is collected for a target
        self._rows: dict[type[Op], Callable[..., Any]] = {}

    def register(self, op: type[Op]) -> Callable[[_F], _F]:
        """Register the decorated function `(op, *operands) -> results | None` for `op`.

        Raises:
            ConfigError: The table has one for this op already.
        """

        def add(rewrite: _F) -> _F:
            first = self._rows.setdefault(op, rewrite)
            if first is not rewrite:
                raise ConfigError(
                    f"{self.name}: two rewrites for {op.name}",
                    Fact("first", f"{first.__module__}.{first.__qualname__}"),
                    Fact("second", f"{rewrite.__module__}.{rewrite.__qualname__}"),
                )
            return rewrite

        return add

    def find(self, op: Op) -> Callable[..., Any] | None:
        return self._rows.get(type(op))

    def rows(self) -> Iterator[tuple[type[Op], Callable[..., Any]]]:
        """Each op with its rewrite, in the order of registration."""
        yield from self._rows.items()

    def __contains__(self, op: type[Op]) -> bool:
        return op in self._rows


@frozen
class Answer:
    """The decision for one node, and the skipped alternatives.

    Attributes:
        means: The kind of answer.
        kernel: The kernel, for `native`; `HOST` for `host`.
        refusals: Kernels of the op that did not take the node, each with its reason.
        reason: The reason why it is not native, or why nothing works, in words.
    """

    means: Means
    kernel: str | None = None
    refusals: tuple[KernelRefusal, ...] = ()
    reason: str = ""
    plugin: str | None = None

    @property
    def is_final(self) -> bool:
        """Whether the node is not rewritten."""
        return self.means in ("native", "view", "host")


@frozen
class Dispatcher:
    """Asks a target about nodes, under a policy.

    Attributes:
        target: Its kernel table is the only source of claims.
        config: The policy, the overrides, and the ops that may run on the host.
        tables: Target rewrites, most preferred first.
        plugin_of: Op name → the plugin it comes from, for overrides per plugin (`acme.*` matches the op's domain anyway).
    """

    target: Target
    config: DispatchConfig = field(factory=DispatchConfig)
    tables: tuple[LegalizationTable, ...] = ()
    _known: dict[object, bool] = field(factory=dict, init=False, eq=False, repr=False)

    def answer(self, node: Node) -> Answer:
        """Return the decision for `node`."""
        op = node.op
        selection = self.target.kernels.choose(node)
        has_body = op.decompose is not None
        policy = self.policy_of(op)
        kernel = selection.kernel
        if kernel is not None and policy == "prefer-native" and self.runs_better_decomposed(node, kernel):
            reason = f"all of its decomposition has {self.target.tiers[0]} kernels, {kernel.name} is {self.target.tier(kernel)}"
            return Answer("common-ir", None, selection.refusals, reason)
        if kernel is not None and not (policy == "force-common" and has_body):
            return Answer("native", kernel.name, selection.refusals, plugin=kernel.plugin)
        if kernel is None and is_view(node):
            return Answer("view", None, selection.refusals)
        if kernel is None and policy == "force-native" and has_body and self.wants_kernel(op):
            return Answer("unsupported", None, selection.refusals, "the policy for it is force-native")
        forced = f"{op.name} is forced to common IR" if kernel is not None else ""
        table = next((t for t in self.tables if t.find(op) is not None), None)
        if table is not None:
            return Answer("rewritten", None, selection.refusals, forced or f"by {table.name}")
        return self.without_kernel(node, selection.refusals, forced)

    def without_kernel(self, node: Node, refusals: tuple[KernelRefusal, ...], forced: str = "") -> Answer:
        """Return the answer if neither kernels nor target rewrites take the node."""
        op = node.op
        if op.decompose is not None:
            return Answer("common-ir", None, refusals, forced or f"{op.name} has no kernel that takes it")
        if op.calls_host:
            return Answer("host", HOST, refusals, "it calls a Python function")
        if matches(op, self.config.allow_host):
            return Answer("host", HOST, refusals, "allowed by dispatch.allow-host")
        if self.runs_loop_form(node):
            return Answer("common-ir", None, refusals, f"no kernel takes it, and {op.name} has a form in loops")
        return Answer("unsupported", None, refusals, "it has no decomposition")

    def runs_loop_form(self, node: Node) -> bool:
        """Return whether a primitive has a form in element-wise ops and reductions of which the target runs everything."""
        return node.op.loop_form is not None and self._runs_form("loop_form", node, on_best=False)

    def runs_better_decomposed(self, node: Node, kernel: Kernel) -> bool:
        """Return whether `kernel` has negative priority on a lower tier, and the best tier runs the whole decomposition.

        One op of it on a lower tier is enough to keep the kernel: two steps there, and the transfer between, are no gain.
        """
        return kernel.stands_back and not self.is_best(kernel) and self._runs_form("decompose", node, on_best=True)

    def _runs_form(self, form: str, node: Node, *, on_best: bool) -> bool:
        """Look up the answer of `runs_all_of` for a form of a node by its name; nodes of equal ops and types share it."""
        key = (form, node.op, node.operand_types)
        if key not in self._known:
            self._known[key] = self.runs_all_of(getattr(node.op, form), node, self.config.rounds, on_best=on_best)
        return self._known[key]

    def runs_all_of(self, form: Callable[..., Any] | None, node: Node, rounds: int, *, on_best: bool) -> bool:
        """Return whether the target runs every op that a form of a node consists of, as `runs` has it; false without a form."""
        if form is None or not rounds:
            return False
        with contained("ops", node.op.name, "its decomposition"):
            drafted = draft(partial(form, *node.operands), node.op.name)
        return drafted is not None and all(
            n.is_leaf or self.runs(n, rounds - 1, on_best=on_best) for n in drafted.needed()
        )

    def runs(self, node: Node, rounds: int, *, on_best: bool) -> bool:
        """Return whether a node is a view or has a kernel, or runs as all that it decomposes to within some rounds.

        Args:
            on_best: Whether the kernels must be of the best tier.
        """
        kernel = self.target.kernels.choose(node).kernel
        if kernel is not None and (self.is_best(kernel) or not on_best):
            return True
        if kernel is None and is_view(node):
            return True
        is_open = kernel is None or kernel.stands_back
        return is_open and self.runs_all_of(node.op.decompose, node, rounds, on_best=on_best)

    def is_best(self, kernel: Kernel) -> bool:
        """Return whether it is no fallback."""
        return not self.target.falls_back(self.target.tier(kernel))

    def kernel_for(self, node: Node) -> Kernel | None:
        """Return the kernel that runs a node; `None` for one that needs none or has none."""
        answer = self.answer(node)
        if answer.means == "host":
            return HOST_KERNEL
        return self.target.kernels.get(answer.kernel) if answer.means == "native" and answer.kernel else None

    def policy_of(self, op: Op) -> str:
        """Return the policy for an op: its override, then its plugin's; `force-native` wins over `force-common`."""
        if matches(op, self.config.force_native):
            return "force-native"
        if matches(op, self.config.force_common):
            return "force-common"
        return self.config.policy

    def wants_kernel(self, op: Op) -> bool:
        """Return whether force-native is about this op: it was named, or the target claims it."""
        return matches(op, self.config.force_native) or bool(self.target.kernels.candidates(type(op)))


def is_view(node: Node) -> bool:
    """Return whether the result is nothing but its dense operand read again, so that no kernel is needed."""
    op = node.op
    if op.view is None or not node.operands or node.operands[0] is None or not node.operands[0].type.is_static:
        return False
    viewed = op.view(node.operands[0].type, dense_strides(node.operands[0].type), 0)
    if viewed is None:
        return False
    places = (viewed,) if len(node.types) == 1 else viewed
    return all(is_dense(t, tuple(strides)) for t, (_, strides) in zip(node.types, places, strict=True))


def supports(
    target: Target, op: Op, types: Iterable[TensorType | None], config: DispatchConfig | None = None
) -> Answer:
    """Return the decision of `target` for `op` on operands of `types`; the same answer that a compilation gets."""
    return Dispatcher(target, config or DispatchConfig()).answer(probe(op, types))


# ---------------------------------------------------------------------------------------------- report


@frozen
class Dispatch:
    """The answer for one node of the user's program; a decomposed node is followed by the nodes of its decomposition."""

    node: str
    op: str
    types: tuple[str, ...]
    means: Means
    kernel: str | None
    plugin: str | None
    reason: str
    refusals: tuple[KernelRefusal, ...]
    source: str | None


@frozen
class DispatchReport:
    """Every answer that legalisation gave.

    Attributes:
        target: The target of the answers.
        rows: One per node in program order, nodes that were replaced included.
        rounds: Rounds of rewriting that were needed.
        is_bounded: Whether rewriting stopped at the bound of rounds instead of at a fixed point.
    """

    target: str
    rows: tuple[Dispatch, ...]
    rounds: int = 0
    is_bounded: bool = False

    @property
    def compile_ready(self) -> bool:
        """Whether every remaining node can run."""
        return not any(r.means == "unsupported" for r in self.rows)

    @property
    def by_op(self) -> Mapping[str, Counter[str]]:
        """Op → the number of its nodes by answer."""
        counts: dict[str, Counter[str]] = {}
        for row in self.rows:
            counts.setdefault(row.op, Counter())[row.means] += 1
        return dict(sorted(counts.items()))

    @property
    def host(self) -> tuple[Dispatch, ...]:
        """Nodes that run on the host."""
        return tuple(r for r in self.rows if r.means == "host")

    def to_json(self) -> str:
        """The whole report, with sorted keys."""
        content = {
            "target": self.target,
            "compile_ready": self.compile_ready,
            "rounds": self.rounds,
            "is_bounded": self.is_bounded,
            "ops": {op: dict(sorted(counts.items())) for op, counts in self.by_op.items()},
            "nodes": [asdict(r) for r in self.rows],
        }
        return json.dumps(content, indent=2, sort_keys=True)

    def __str__(self) -> str:
        state = "ready" if self.compile_ready else "not ready"
        bound = " (stopped at the bound)" if self.is_bounded else ""
        lines = [f"dispatch on {self.target}: {state}, {self.rounds} rounds of rewriting{bound}"]
        width = max([len(op) for op in self.by_op] + [4])
        for op, counts in self.by_op.items():
            kernels = sorted({r.kernel for r in self.rows if r.op == op and r.kernel and r.means == "native"})
            answers = ", ".join(f"{n} {means}" for means, n in sorted(counts.items()))
            lines.append(f"  {op:<{width}}  {answers}" + (f"  by {', '.join(kernels)}" if kernels else ""))
            reasons = dict.fromkeys(r for row in self.rows if row.op == op for r in passed_over(row))
            lines += [f"  {'':<{width}}    {reason}" for reason in reasons]
        return "\n".join(lines)


def passed_over(row: Dispatch) -> list[str]:
    """Return the reason why a node did not get the first kernel of its op: rejected candidates, then the answer's own reason."""
    reasons = [f"{r.kernel} {r.reason}" for r in row.refusals]
    if row.reason and row.means != "native":
        reasons.append(f"{row.means}: {row.reason}")
    return reasons


def row_of(node: Node, answer: Answer) -> Dispatch:
    source = node.origin.source
    return Dispatch(
        node.label,
        node.op.name,
        tuple(map(str, node.types)),
        answer.means,
        answer.kernel,
        answer.plugin,
        answer.reason,
        answer.refusals,
        None if source is None else f"{source.file}:{source.line}",
    )
