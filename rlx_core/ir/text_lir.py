"""The text form of execution plans: the graph, then how to run it; `parse_lir` reads it back.

    lir cpu {
      arena 512 alignment 64
      fingerprint "9f2c…"
      graph main { … }
      input %x "x"
      output %4 "out0" own
      slot %3 = 0 + 256
      alias %4 = %3 + 0 (16, 4)
      step %3 "add" steady-state
    }

Options that are not empty stand after the fingerprint. A slot is an offset and a number of bytes of the arena, an alias a
root, a byte offset in it and strides in bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from attrs import field

from rlx_core.errors import RlxError
from rlx_core.ir.attributes import Decoder, Encoder, OpTable
from rlx_core.ir.dims import SizeGuard
from rlx_core.ir.graph import Graph, Node, Value
from rlx_core.ir.lir import Alias, CallManifest, Entry, Lir, OutputDelivery, Slot, Step
from rlx_core.ir.parse import Parser
from rlx_core.ir.plan_form import option_form, option_from
from rlx_core.ir.scanner import INT, VALUE
from rlx_core.ir.text import guard_text, print_graph, print_node, value_names
from rlx_core.system.records import define

_PHASE = re.compile(r"prologue|steady-state|epilogue")


def print_lir(lir: Lir) -> str:
    """The plan as text: slots by offset, steps in the order in which they run."""
    return "\n".join(_lines(lir)) + "\n"


def print_step(lir: Lir, number: int) -> str:
    """One step as text: its node, where its operands and results lie, and how it runs; values are called as in `print_lir`."""
    step, names = lir.steps[number], value_names(lir.graph)
    lines = [print_node(step.node, names)]
    for value in dict.fromkeys((*step.node.present(), *step.node.results)):
        alias, root = lir.aliases.get(value), lir.root_of(value)
        if root in lir.slots:
            lines.append(f"slot {names[root]} = {lir.slots[root].offset} + {lir.slots[root].nbytes}")
        if alias is not None:
            lines.append(_alias_line(value, alias, names))
    return "\n".join([*dict.fromkeys(lines), *_step_lines(step, names, "")]) + "\n"


def _lines(lir: Lir, indent: str = "") -> Iterator[str]:
    names = value_names(lir.graph)
    prepare_names = names if lir.prepare is None else value_names(lir.prepare)
    inner = indent + "  "
    yield f"{indent}lir {json.dumps(lir.target)} {{"
    for line in (
        f"arena {lir.arena_nbytes} alignment {lir.alignment}",
        f"fingerprint {json.dumps(lir.fingerprint)}",
        *([f"options {json.dumps(json.dumps(option_form(lir.options, Encoder())))}"] if lir.options else []),
        *(f"guard {guard_text(g)}" for g in lir.guards),
        *print_graph(lir.graph).splitlines(),
        *([] if lir.prepare is None else f"prepare {print_graph(lir.prepare)}".splitlines()),
        *(_entry_line("input", e, names) for e in lir.manifest.inputs),
        *(_entry_line("param", e, prepare_names) for e in lir.manifest.params),
        *_output_lines(lir, names),
        *(f"slot {names[v]} = {slot.offset} + {slot.nbytes}" for v, slot in _by_offset(lir)),
        *(_alias_line(v, a, names) for v, a in _in_order(lir)),
    ):
        yield f"{inner}{line}"
    for step in lir.steps:
        yield from _step_lines(step, names, inner)
    yield f"{indent}}}"


def _entry_line(kind: str, entry: Entry, names: dict[Value, str]) -> str:
    donated = " donated" if entry.is_donated else ""
    return f"{kind} {names[entry.value]} {json.dumps(entry.name)}{donated}"


def _output_lines(lir: Lir, names: dict[Value, str]) -> Iterator[str]:
    for entry, delivery in zip(lir.manifest.outputs, lir.deliveries, strict=True):
        donor = "" if delivery.donor is None else f" {names[delivery.donor]}"
        yield f"{_entry_line('output', entry, names)} {delivery.kind}{donor}"


def _by_offset(lir: Lir) -> list[tuple[Value, Slot]]:
    return sorted(lir.slots.items(), key=lambda item: (item[1].offset, item[0].node.index, item[0].index))


def _in_order(lir: Lir) -> list[tuple[Value, Alias]]:
    return sorted(lir.aliases.items(), key=lambda item: (item[0].node.index, item[0].index))


def _alias_line(value: Value, alias: Alias, names: dict[Value, str]) -> str:
    strides = ", ".join(map(str, alias.strides))
    return f"alias {names[value]} = {names[alias.root]} + {alias.byte_offset} ({strides})"


def _step_lines(step: Step, names: dict[Value, str], indent: str) -> Iterator[str]:
    line = f"{indent}step {_called(step.node, names)} {json.dumps(step.kernel)} {step.phase}"
    if step.workspace is not None:
        line += f" workspace {step.workspace.offset} + {step.workspace.nbytes}"
    if step.in_place:
        line += f" in-place {', '.join(f'{r}: {o}' for r, o in sorted(step.in_place.items()))}"
    if not step.nested and not step.nested_offset:
        yield line
        return
    yield f"{line} nested {step.nested_offset} {{"
    for name, body in sorted(step.nested.items()):
        yield f"{indent}  {json.dumps(name)}"
        yield from _lines(body, indent + "  ")
    yield f"{indent}}}"


def _called(node: Node, names: dict[Value, str]) -> str:
    return names[node.results[0]] if node.results else f"%{node.index}"


# --------------------------------------------------------------------------------------------- parsing


def parse_lir(text: str, ops: OpTable) -> Lir:
    """Return the plan that `print_lir` printed; `verify_lir` checks its consistency.

    Raises:
        FormatError: The text has another form; with the position.
    """
    parser = _LirParser(text, ops)
    lir = parser.lir()
    parser.end()
    return lir


@define
class _Parts:
    """The parts of a plan read so far."""

    guards: list[SizeGuard] = field(factory=list)
    inputs: list[Entry] = field(factory=list)
    params: list[Entry] = field(factory=list)
    outputs: list[Entry] = field(factory=list)
    deliveries: list[OutputDelivery] = field(factory=list)
    slots: dict[Value, Slot] = field(factory=dict)
    aliases: dict[Value, Alias] = field(factory=dict)
    steps: list[Step] = field(factory=list)


class _LirParser(Parser):
    def lir(self) -> Lir:
        self.expect("lir")
        target = self.string("the target's name")
        self.expect("{")
        self.expect("arena")
        arena = self.integer()
        self.expect("alignment")
        alignment = self.integer()
        self.expect("fingerprint")
        fingerprint = self.string()
        options = self.options() if self.accept("options") else {}
        parts = _Parts()
        while self.accept("guard"):
            parts.guards.append(self.guard())
        graph, names = self.graph_and_names()
        prepare, prepare_names = self.graph_and_names() if self.accept("prepare") else (None, names)
        while not self.accept("}"):
            self.fact(parts, graph, names, prepare_names)
        manifest = CallManifest(tuple(parts.inputs), tuple(parts.params), tuple(parts.outputs))
        return Lir(
            graph,
            target,
            tuple(parts.steps),
            parts.slots,
            parts.aliases,
            tuple(parts.deliveries),
            manifest,
            prepare,
            arena,
            alignment,
            tuple(parts.guards),
            fingerprint,
            options,
        )

    def integer(self) -> int:
        return int(self.need(INT, "a number"))

    def options(self) -> dict[str, object]:
        position = self.position
        try:
            form = json.loads(self.string("options"))
        except (ValueError, RecursionError) as error:
            if isinstance(error, RlxError):
                raise
            self.fail("options are not JSON", position=position)
        read = self.guarded(lambda: option_from(form, Decoder(self.ops)), position)
        if not isinstance(read, dict):
            self.fail("options are a mapping", position=position)
        return read

    def fact(self, parts: _Parts, graph: Graph, names: dict[str, Value], prepare_names: dict[str, Value]) -> None:
        """One line about the plan."""
        if self.accept("input"):
            parts.inputs.append(self.entry(names))
        elif self.accept("param"):
            parts.params.append(self.entry(prepare_names))
        elif self.accept("output"):
            parts.outputs.append(self.entry(names))
            parts.deliveries.append(self.delivery(names))
        elif self.accept("slot"):
            value = self.value(names)
            self.expect("=")
            parts.slots[value] = self.slot()
        elif self.accept("alias"):
            self.alias_of(parts, names)
        elif self.accept("step"):
            parts.steps.append(self.step(graph, names))
        else:
            self.fail("expected `input`, `param`, `output`, `slot`, `alias`, `step` or `}`")

    def slot(self) -> Slot:
        offset = self.integer()
        self.expect("+")
        return Slot(offset, self.integer())

    def entry(self, names: dict[str, Value]) -> Entry:
        value = self.value(names)
        name = self.string("a name")
        return Entry(name, value.type, value, self.accept("donated"))

    def delivery(self, names: dict[str, Value]) -> OutputDelivery:
        if self.accept("own"):
            return OutputDelivery("own")
        if self.accept("copy"):
            return OutputDelivery("copy")
        self.expect("donor")
        return OutputDelivery("donor", self.value(names) if self.looks_at("%") else None)

    def alias_of(self, parts: _Parts, names: dict[str, Value]) -> None:
        value = self.value(names)
        self.expect("=")
        root = self.value(names)
        self.expect("+")
        offset = self.integer()
        self.expect("(")
        parts.aliases[value] = Alias(root, offset, tuple(self.separated(")", self.integer)))

    def step(self, graph: Graph, names: dict[str, Value]) -> Step:
        position = self.position
        called = self.need(VALUE, "the first result of a node")
        number = called[1:]
        if called in names:
            node = names[called].node
        elif number.isdigit() and int(number) < len(graph.nodes):
            node = graph.nodes[int(number)]
        else:
            self.fail(f"{called} is not a value of the graph", position=position)
        kernel = self.string("a kernel's name")
        phase = self.need(_PHASE, "a phase")
        workspace = self.slot() if self.accept("workspace") else None
        in_place: dict[int, int] = {}
        if self.accept("in-place"):
            more = True
            while more:
                result = self.integer()
                self.expect(":")
                in_place[result] = self.integer()
                more = self.accept(",")
        offset, nested = self.nested() if self.accept("nested") else (0, {})
        return Step(node, kernel, workspace, in_place, phase, nested, offset)  # type: ignore[arg-type]

    def nested(self) -> tuple[int, dict[str, Lir]]:
        offset = self.integer()
        self.expect("{")
        bodies: dict[str, Lir] = {}
        while not self.accept("}"):
            name = self.string("an attribute")
            bodies[name] = self.lir()
        return offset, bodies
