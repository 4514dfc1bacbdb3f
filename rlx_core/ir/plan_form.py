"""Execution plans in canonical form: the content of a stored LIR, and the input of its fingerprint.

Values are [node, result] in the graph they belong to. The graph of a plan, its prepare program and the plans of nested
graphs all go through the same encoder, so that constants are stored once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from rlx_core.errors import FormatError
from rlx_core.ir.decoding import Decoder
from rlx_core.ir.encoding import Encoder
from rlx_core.ir.fingerprint import FINGERPRINT_VERSION, canonical, digest_of, literal_digest
from rlx_core.ir.forms import Json, items, need, optional
from rlx_core.ir.graph import Graph, Value
from rlx_core.ir.lir import Alias, CallManifest, Entry, Lir, OutputDelivery, Phase, Slot, Step

_PHASES = get_args(Phase)
_DELIVERIES = ("own", "copy", "donor")
_MAX_DEPTH = 16


def fingerprint_lir(lir: Lir, *, context: Mapping[str, object] | None = None) -> str:
    """The hex digest of a plan: its graph and all that `fingerprint` covers, schedule, kernels, offsets, manifest, options."""
    form = encode_lir(lir, Encoder(literal_digest, keeps_names=False))
    del form["fingerprint"]
    return digest_of({"version": FINGERPRINT_VERSION, "lir": form, "context": canonical(context or {})})


# -------------------------------------------------------------------------------------------- encoding


def encode_lir(lir: Lir, encoder: Encoder) -> dict[str, Json]:
    """The plan in canonical form."""
    ref = encoder.ref
    return {
        "graph": encoder.graph(lir.graph),
        "target": lir.target,
        "steps": [_step_form(step, encoder) for step in lir.steps],
        "slots": sorted([ref(v), slot.offset, slot.nbytes] for v, slot in lir.slots.items()),
        "aliases": sorted([ref(v), ref(a.root), a.byte_offset, list(a.strides)] for v, a in lir.aliases.items()),
        "deliveries": [[d.kind, None if d.donor is None else ref(d.donor)] for d in lir.deliveries],
        "manifest": [
            [[e.name, repr(e.type), ref(e.value), e.is_donated] for e in entries]
            for entries in (lir.manifest.inputs, lir.manifest.params, lir.manifest.outputs)
        ],
        "prepare": None if lir.prepare is None else encoder.graph(lir.prepare),
        "arena": lir.arena_nbytes,
        "alignment": lir.alignment,
        "guards": [encoder.guard(g) for g in lir.guards],
        "fingerprint": lir.fingerprint,
        "options": option_form(lir.options, encoder),
    }


def _step_form(step: Step, encoder: Encoder) -> Json:
    return [
        step.node.index,
        step.kernel,
        None if step.workspace is None else [step.workspace.offset, step.workspace.nbytes],
        sorted([result, operand] for result, operand in step.in_place.items()),
        step.phase,
        {name: encode_lir(body, encoder) for name, body in sorted(step.nested.items())},
        step.nested_offset,
    ]


def option_form(value: object, encoder: Encoder) -> Json:
    if isinstance(value, Mapping):
        return {"map": {str(k): option_form(v, encoder) for k, v in value.items()}}
    if isinstance(value, list | tuple):
        return [option_form(v, encoder) for v in value]
    if isinstance(value, set | frozenset):
        return [option_form(v, encoder) for v in sorted(value, key=str)]
    return encoder.value(value)


# -------------------------------------------------------------------------------------------- decoding


def decode_lir(form: Json, decoder: Decoder, depth: int = 0) -> Lir:
    """The plan that `encode_lir` wrote; sequences among its options come back as tuples.

    Raises:
        FormatError: The form is another. The consistency of the plan is checked by `verify_lir`.
    """
    if depth >= _MAX_DEPTH:
        raise FormatError(f"plan: plans are nested more than {_MAX_DEPTH} deep")
    fields = need(form, dict, "a plan")
    graph = decoder.graph(fields.get("graph"))
    prepare = None if fields.get("prepare") is None else decoder.graph(fields["prepare"])
    inputs, params, outputs = items(fields.get("manifest"), 3, "a manifest")
    return Lir(
        graph=graph,
        target=need(fields.get("target"), str, "a target"),
        steps=tuple(_step(row, graph, decoder, depth) for row in need(fields.get("steps"), list, "steps")),
        slots=dict(_slot(row, graph) for row in need(fields.get("slots"), list, "slots")),
        aliases=dict(_alias(row, graph) for row in need(fields.get("aliases"), list, "aliases")),
        deliveries=tuple(_delivery(row, graph) for row in need(fields.get("deliveries"), list, "deliveries")),
        manifest=CallManifest(
            _entries(inputs, graph, decoder),
            _entries(params, prepare or graph, decoder),
            _entries(outputs, graph, decoder),
        ),
        prepare=prepare,
        arena_nbytes=_size(fields.get("arena"), "the arena"),
        alignment=_size(fields.get("alignment"), "the alignment"),
        guards=tuple(decoder.guard(g) for g in need(fields.get("guards"), list, "guards")),
        fingerprint=need(fields.get("fingerprint"), str, "a fingerprint"),
        options=need(option_from(fields.get("options"), decoder), dict, "options"),
    )


def _size(form: Json, what: str) -> int:
    size: int = need(form, int, what)
    if not 0 <= size < 2**63:
        raise FormatError(f"plan: {what} is {size}, and must be from 0 to 2**63 - 1")
    return size


def _ref(form: Json, graph: Graph) -> Value:
    return Decoder.ref(graph.nodes, form)


def _bytes(offset: Json, nbytes: Json) -> Slot:
    return Slot(_size(offset, "an offset"), _size(nbytes, "a number of bytes"))


def _slot(form: Json, graph: Graph) -> tuple[Value, Slot]:
    value, offset, nbytes = items(form, 3, "a slot")
    return _ref(value, graph), _bytes(offset, nbytes)


def _alias(form: Json, graph: Graph) -> tuple[Value, Alias]:
    value, root, offset, strides = items(form, 4, "an alias")
    steps = tuple(need(s, int, "a stride") for s in need(strides, list, "strides"))
    if any(not -(2**63) <= s < 2**63 for s in steps):
        raise FormatError(f"plan: strides {list(steps)} do not fit 64 bits")
    return _ref(value, graph), Alias(_ref(root, graph), _size(offset, "an offset"), steps)


def _delivery(form: Json, graph: Graph) -> OutputDelivery:
    kind, donor = items(form, 2, "a delivery")
    if kind not in _DELIVERIES:
        raise FormatError(f"plan: there is no delivery {kind!r} (known: {' '.join(_DELIVERIES)})")
    return OutputDelivery(kind, None if donor is None else _ref(donor, graph))


def _entries(form: Json, graph: Graph, decoder: Decoder) -> tuple[Entry, ...]:
    entries = []
    for row in need(form, list, "entries"):
        name, type, value, is_donated = items(row, 4, "an entry")
        donated = need(is_donated, bool, "a donation")
        entries.append(Entry(need(name, str, "a name"), decoder.type(type), _ref(value, graph), donated))
    return tuple(entries)


def _step(form: Json, graph: Graph, decoder: Decoder, depth: int) -> Step:
    index, kernel, workspace, in_place, phase, nested, nested_offset = items(form, 7, "a step")
    if not 0 <= need(index, int, "a step's node") < len(graph.nodes):
        raise FormatError(f"plan: a step runs node {index}, and there are {len(graph.nodes)}")
    if phase not in _PHASES:
        raise FormatError(f"plan: there is no phase {phase!r} (known: {' '.join(_PHASES)})")
    pairs = [items(row, 2, "an in-place pair") for row in need(in_place, list, "in-place pairs")]
    scratch = optional(workspace, list, "a workspace")
    return Step(
        node=graph.nodes[index],
        kernel=need(kernel, str, "a kernel"),
        workspace=None if scratch is None else _bytes(*items(scratch, 2, "a workspace")),
        in_place={need(r, int, "a result"): need(o, int, "an operand") for r, o in pairs},
        phase=phase,
        nested={k: decode_lir(v, decoder, depth + 1) for k, v in need(nested, dict, "nested plans").items()},
        nested_offset=_size(nested_offset, "an offset"),
    )


def option_from(form: Json, decoder: Decoder, depth: int = 0) -> Any:
    if isinstance(form, str):  # most of them, in hundreds
        return form
    if depth >= _MAX_DEPTH:
        raise FormatError(f"plan: options are nested more than {_MAX_DEPTH} deep")
    if isinstance(form, dict) and form.keys() == {"map"}:
        return {k: option_from(v, decoder, depth + 1) for k, v in need(form["map"], dict, "options").items()}
    if isinstance(form, list):
        return tuple(option_from(v, decoder, depth + 1) for v in form)
    return decoder.value(form)
