"""`rlx why kernel`: a program of one op, and everything the target answers about it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import evolve

from rlx_core.cli.op_rows import full_name, required_row
from rlx_core.cli.plan import configuration_of, target_of
from rlx_core.cli.session import CliSession
from rlx_core.errors import ConfigError, DeviceUnavailableError, Fact, RlxError, nearest
from rlx_core.ir.graph import Builder, Graph, Node, building
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType, spec
from rlx_core.ops.samples import Sample
from rlx_core.pipeline.backend import ABSENT as ABSENT_DEVICE
from rlx_core.pipeline.backend import Target
from rlx_core.pipeline.config.records import Configuration
from rlx_core.pipeline.contributed import legalization_tables
from rlx_core.pipeline.dispatch import Answer, Dispatch, Dispatcher, is_view
from rlx_core.pipeline.kernels import Kernel
from rlx_core.pipeline.legalize import rewrite
from rlx_core.pipeline.tiers import why_not_best
from rlx_core.plugins import Registry
from rlx_core.system.records import frozen

ABSENT = "_"
"""How an optional operand that is not there is written among types."""


@frozen
class KernelChoice:
    """How a target runs one op.

    Args:
        call: The op with its attributes, on its operand types.
        less_preferred: Kernels of the op that come after the chosen one.
        becomes: If no kernel takes it, the nodes that replace it, each with its selection.
        tier: The tier of the kernel, on a target with tiers.
        below: The reason if it is not the best tier.
        is_view: Whether it is a view of its operand, so that no kernel runs unless the operand must be copied.
        is_sample: Whether types or attributes come from a sample of the op, because none were given.
        left_out: Tables for the target that cannot be used, each with the reason.
    """

    target: str
    op: str
    call: str
    answer: Answer
    kernel: Kernel | None
    less_preferred: tuple[Kernel, ...]
    becomes: tuple[Dispatch, ...]
    tier: str | None
    below: str | None
    is_sample: bool
    left_out: tuple[str, ...] = ()
    is_view: bool = False

    @property
    def can_run(self) -> bool:
        """Whether it can run; an op that becomes one of its operands runs without a kernel."""
        if self.answer.is_final:
            return True
        return self.answer.means != "unsupported" and all(row.means != "unsupported" for row in self.becomes)


def choose(session: CliSession, word: str, target: str | None, types: str | None, attrs: Sequence[str]) -> KernelChoice:
    """The answer that a compilation would get, with the configuration's policies; without the target's device, for what such
    devices mostly are.

    Raises:
        ConfigError: Types or attributes are missing, or are no types or attributes of the op.
    """
    name = full_name(session.host, word)
    op = required_row(session.host, name).op
    assert op is not None, "an op that cannot be imported is refused"
    configuration = configuration_of(session, target)
    try:
        device, registry = target_of(session, configuration)
    except DeviceUnavailableError:
        if target is None or ":" in target:
            raise
        configuration = configuration_of(session, f"{target}:{ABSENT_DEVICE}")
        device, registry = target_of(session, configuration)
    dispatcher = asked(configuration, device, registry)

    sample = first_sample(op)
    attributes = {**(dict(sample.attributes) if sample else {}), **given_attributes(op, attrs)}
    operands = listed_types(types) if types is not None else list(sample.types) if sample else None
    if operands is None:
        raise ConfigError(f"{name}: it has no sample to take types from", hint='say them: --types "f32[4, 8], f32[8]"')
    choice = decided(dispatcher, op, attributes, operands)
    left_out = tuple(
        str(fault) for (kind, _), fault in registry.left_out.items() if kind in ("kernels", "legalizations")
    )
    return evolve(choice, is_sample=types is None or (not attrs and bool(attributes)), left_out=left_out)


def asked(configuration: Configuration, device: Target, registry: Registry) -> Dispatcher:
    """The kernel selection of a target, under the configuration's policies."""
    return Dispatcher(device, configuration.dispatch, legalization_tables(registry, device.name))


def decided(
    dispatcher: Dispatcher, op: type[Op], attributes: dict[str, Any], operands: Sequence[TensorType | None]
) -> KernelChoice:
    """How a target runs an op with these attributes on operands of these types.

    Raises:
        RlxError: The op does not take them.
    """
    device = dispatcher.target
    graph, node = program(op, attributes, operands)
    answer = dispatcher.answer(node)
    candidates = device.kernels.candidates(op)
    chosen = dispatcher.kernel_for(node)
    subsequent = candidates[candidates.index(chosen) + 1 :] if chosen in candidates else []
    becomes: tuple[Dispatch, ...] = ()
    if not answer.is_final:
        result, report, _ = rewrite(graph, dispatcher)
        left = {each.label for each in result.graph.nodes}
        becomes = tuple(row for row in report.rows if row.node in left and row.means not in ("rewritten", "common-ir"))
    call = (
        f"{node.op!r} on {', '.join('nothing' if v is None else str(v.type) for v in node.operands) or 'no operands'}"
    )
    tier = device.tier(chosen) if chosen is not None else None
    below = why_not_best(node, chosen.name, device) if chosen is not None and device.falls_back(tier) else None
    return KernelChoice(
        device.name,
        op.name,
        call,
        answer,
        chosen,
        tuple(subsequent),
        becomes,
        tier,
        below,
        is_sample=True,
        is_view=is_view(node),
    )


def first_sample(op: type[Op]) -> Sample | None:
    """The first call that the op's author promises to work, in f32 if there is one, because that is what most ask about."""
    return next(iter(working_samples(op)), None)


def working_samples(op: type[Op]) -> list[Sample]:
    """The calls that the op's author promises to work, those with an operand in f32 first."""
    cases = [each for each in (op.samples() if op.samples is not None else ()) if isinstance(each, Sample)]
    return sorted(cases, key=lambda each: not any(t is not None and t.dtype.name == "f32" for t in each.types))


def listed_types(text: str) -> list[TensorType | None]:
    """`"f32[4, 8], _, f32[8]"` as types, with or without the commas; inside brackets a comma separates dims.

    Raises:
        RlxError: One is no type.
    """
    words = re.split(r"[,\s]+(?![^\[]*\])", text)
    return [None if word == ABSENT else spec(word) for word in words if word]


def given_attributes(op: type[Op], words: Sequence[str]) -> dict[str, Any]:
    """Attributes from the command line: `name=value`, the value as a Python literal, or else a word.

    Raises:
        ConfigError: One has no value, or is not an attribute of the op.
    """
    import attrs

    known = [each.name for each in attrs.fields(op)]
    attributes: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or name not in known:
            raise ConfigError(
                f"--attr {word}: wanted NAME=VALUE with an attribute of {op.name}",
                Fact("attributes", ", ".join(known) or "none"),
                hint=f"--attr {name}=VALUE" if name in known else nearest(name, known),
            )
        try:
            attributes[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            attributes[name] = text  # a word such as `causal`
    return attributes


def program(
    op: type[Op], attributes: dict[str, Any], types: Sequence[TensorType | None], name: str = "why"
) -> tuple[Graph, Node]:
    """The graph of a call of the op on inputs of these types, and the node.

    Raises:
        RlxError: The op refuses them; the message is the op's.
    """
    builder = Builder(name)
    names = [f"x{i}" for i in range(len(types))]
    operands = [None if t is None else builder.input(n, t) for n, t in zip(names, types, strict=True)]
    with building(builder):
        try:
            instance = op(**attributes)
        except TypeError as error:
            if isinstance(error, RlxError):
                raise
            raise ConfigError(f"{op.name}: {error}", hint="give attributes with --attr NAME=VALUE") from None
        results = instance(*operands)
    graph = builder.finish(results if isinstance(results, tuple) else [results])
    node = next(each for each in reversed(graph.nodes) if type(each.op) is op)
    return graph, node


# --------------------------------------------------------------------------------------------------- output


def choice_json(choice: KernelChoice) -> dict[str, Any]:
    """The choice with stable keys."""
    return {
        "op": choice.op,
        "target": choice.target,
        "call": choice.call,
        "from_sample": choice.is_sample,
        "answer": choice.answer.means,
        "reason": choice.answer.reason,
        "kernel": choice.kernel.name if choice.kernel else None,
        "plugin": choice.kernel.plugin if choice.kernel else None,
        "tier": choice.tier,
        "not_better_because": choice.below,
        "rejected": [{"kernel": each.kernel, "reason": each.reason} for each in choice.answer.refusals],
        "less_preferred": [each.name for each in choice.less_preferred],
        "can_run": choice.can_run,
        "left_out": list(choice.left_out),
        "becomes": [
            {"node": row.node, "op": row.op, "answer": row.means, "kernel": row.kernel, "reason": row.reason}
            for row in choice.becomes
        ],
    }


def layout(choice: KernelChoice) -> Iterator[Any]:
    """The selected kernel, the rejected candidates, and the replacement of an op without a kernel."""
    from rlx_core.cli.tables import facts, heading, listing

    yield heading(verdict(choice))
    rows: list[tuple[str, object]] = [("call", choice.call + ("  (from the op's samples)" if choice.is_sample else ""))]
    if choice.kernel is not None:
        rows += [("does", choice.kernel.doc), ("plugin", choice.kernel.plugin)]
        rows += [("tier", f"{choice.tier}: {choice.below}" if choice.below else choice.tier)]
    rows += [("rejected", f"{each.kernel}: {each.reason}") for each in choice.answer.refusals]
    rows += [("less preferred", ", ".join(each.name for each in choice.less_preferred))]
    rows += [("because", choice.answer.reason)]
    rows += [("left out", each) for each in choice.left_out]
    yield facts(rows)
    if choice.becomes:
        yield ""
        lines = [(row.node, row.op, row.means, row.kernel or "—") for row in choice.becomes]
        yield listing(("node", "op", "answer", "kernel"), lines, title="it becomes", unwrapped_columns=2)


def verdict(choice: KernelChoice) -> str:
    """The answer in one line."""
    if choice.kernel is not None:
        return f"{choice.op} on {choice.target}: {choice.kernel.name}"
    words = {
        "view": "a view of its operand; nothing runs",
        "host": "the host's reference",
        "rewritten": "no kernel, but a rewrite of the target",
        "common-ir": "no kernel; its decomposition runs instead",
    }
    answer = words.get(choice.answer.means, "nothing runs it") if choice.can_run else "nothing runs it"
    return f"{choice.op} on {choice.target}: {answer}"
