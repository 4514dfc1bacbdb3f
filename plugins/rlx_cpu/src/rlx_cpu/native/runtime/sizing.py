"""Programs of known sizes from dynamic-shape functions: a template's functions are compiled once, a binding supplies the sizes.

A *form* is the dynamic-shape kernel of a step whose sizes are unknown (`contract.SizedForm`). The form of a step is looked up
for every binding, because the layouts of its operands are known only then; nearly always an existing form matches. A step
without a form is compiled for its sizes, as are all steps of programs without a template.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from attrs import field

from rlx_core.codegen.places import Layout
from rlx_core.codegen.unknown import PREFIX
from rlx_core.ir.dims import Dim, DimBinding, parse_dim
from rlx_core.ir.graph import Node, symbols_inside
from rlx_core.ir.lir import Lir, Step, TemplateOrigin
from rlx_core.ir.types import known_size
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.system.locks import Lock
from rlx_core.system.records import define, evolve, frozen
from rlx_cpu.native import llvm
from rlx_cpu.native.contract import Call, Emitted, SizedForm
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.jit import JitCode
from rlx_cpu.native.llvm.objects import sized_library
from rlx_cpu.native.llvm.optimise import new_module
from rlx_cpu.native.table import sized_in

if TYPE_CHECKING:
    from rlx_cpu.native.llvm import ir

MOST_FORMS = 8
"""Ways in which the operands of one step may lie before it is made for each size: each takes as long as a function to compile."""

CALLED = "workspace", "shared_workspace", "fault", "uses_threads", "parts"
"""The fields of `Emitted` that `Call` has the values of for some sizes."""


@frozen(eq=False)
class Sized:
    """A dynamic-shape function and its call for known sizes.

    Attributes:
        form: The form from which it is compiled.
        words: The values of its run-time arguments.
    """

    form: SizedForm
    emitted: Emitted
    code: JitCode
    words: tuple[int, ...]


@define(eq=False)
class SizedVariant:
    """A form and its function, once that is compiled; without code if the form turned out to have none."""

    form: SizedForm
    is_made: bool = False
    emitted: Emitted | None = None
    code: JitCode | None = None
    words: tuple[Dim, ...] = ()

    def called(self, call: Call, *, is_recorded: bool = False) -> Sized | None:
        """The function as it is called; a recorded call is not kept."""
        if self.emitted is None or self.code is None:
            return None
        if is_recorded:
            emitted = evolve(self.emitted, **{name: getattr(call, name) for name in CALLED})
            return Sized(self.form, emitted, self.code, tuple(map(known_size, map(call.sizes.bind, self.words))))
        changed = {name: value for name in CALLED if (value := getattr(call, name)) != getattr(self.emitted, name)}
        if changed:
            self.emitted = evolve(self.emitted, **changed)  # most sizes are called as the last ones were
        return Sized(
            self.form, self.emitted, self.code, tuple(call.sizes.bind(word).__index__() for word in self.words)
        )


@define(eq=False)
class Forms:
    """The functions of one template. Mutable under its lock.

    Attributes:
        known: The forms, by what their steps compute.
        fixed: See `FixedFunctions`.
        is_fixed: Whether no size of a node is unknown.
    """

    known: dict[Hashable, list[SizedVariant]] = field(factory=dict)
    fixed: FixedFunctions = field(factory=dict)
    is_fixed: dict[Node, bool] = field(factory=dict)
    lock: Lock = field(factory=lambda: Lock("a program's functions for all sizes"))

    def of(
        self, step: Step, node: Node, layout: Layout, sizes: DimBinding, find: FindForm | None
    ) -> tuple[SizedVariant, Call] | None:
        """Return the form of a step and its call, existing or new by `find`; `None` if the step has no form."""
        bound = tuple(None if p is None else (p.is_bound, p.literal) for p in layout.operands)
        known = self.known.setdefault((step.kernel, node.op, node.operand_types, bound), [])
        for variant in known:
            call = variant.form.call(layout, sizes)
            if call is not None:
                return variant, call
        form = find(node, layout, sizes) if find is not None and len(known) < MOST_FORMS else None
        call = None if form is None else form.call(layout, sizes)
        if form is None or call is None:
            return None
        known.append(SizedVariant(form))
        return known[-1], call


FindForm = Callable[[Node, Layout, DimBinding], SizedForm | None]

_forms: WeakKeyDictionary[Lir, dict[Isa, Forms]] = WeakKeyDictionary()


def sized_steps(lir: Lir, layouts: Mapping[int, Layout], kernels: KernelTable, isa: Isa) -> dict[int, Sized]:
    """The steps of a bound template that have functions for all sizes, by number."""
    if lir.origin is None or any(name.name.startswith(PREFIX) for name in lir.origin.sizes.sizes):
        return {}
    sizes, forms, nodes = lir.origin.sizes, _forms_of(lir.origin.template, isa), _template_nodes(lir, lir.origin)
    is_recorded = sizes.is_recorded
    alike: dict[Hashable, list[int]] = {}  # the steps that share a function and how it is called
    matches: list[tuple[list[int], SizedVariant, Call]] = []
    with forms.lock:
        for number, layout in layouts.items():
            step = lir.steps[number]
            node = nodes[step.node.index]
            if step.nested or is_fixed(node, forms.is_fixed):
                continue
            numbers = alike.setdefault((step.kernel, node.op, layout), [])  # the template's op, whose hash is known
            numbers.append(number)
            find = sized_in(kernels, step.kernel) if len(numbers) == 1 else None
            create = None if find is None or is_recorded else partial(find, isa=isa)
            form = None if find is None else forms.of(step, node, layout, sizes, create)
            if form is not None:
                matches.append((numbers, *form))
        missing = [variant for _, variant, _ in matches if not variant.is_made]
        if missing and not is_recorded:
            _make(missing, isa)
    called = {}
    for numbers, variant, call in matches:
        sized = variant.called(call, is_recorded=is_recorded)
        if sized is not None:
            called.update(dict.fromkeys(numbers, sized))
    return called


FixedFunctions = dict[Hashable, tuple[Emitted, JitCode]]
"""Functions of steps in which no size is unknown, by kernel, op and layout."""


def fixed_steps(lir: Lir, layouts: Mapping[int, Layout], isa: Isa) -> tuple[FixedFunctions, dict[int, Hashable]]:
    """The functions that all sizes of a bound template share, and the key of the one that each step in which no size is unknown
    calls, by number; the caller adds missing functions."""
    if lir.origin is None or not layouts:
        return {}, {}
    forms, nodes = _forms_of(lir.origin.template, isa), _template_nodes(lir, lir.origin)
    steps = ((number, lir.steps[number], layout) for number, layout in layouts.items())
    return forms.fixed, {
        number: (step.kernel, step.node.op, layout)
        for number, step, layout in steps
        if is_fixed(nodes[step.node.index], forms.is_fixed)
    }


def is_fixed(node: Node, known: dict[Node, bool]) -> bool:
    """Return whether no size of a node is unknown; `known` has the answers so far."""
    result = known.get(node)
    if result is None:
        types = (*node.types, *(value.type for value in node.present()))
        known[node] = result = all(type.is_static for type in types) and not symbols_inside(node.op)
    return result


def _forms_of(template: Lir, isa: Isa) -> Forms:
    by_isa = _forms.setdefault(template, {})
    return by_isa[isa] if isa in by_isa else by_isa.setdefault(isa, Forms())


def _template_nodes(lir: Lir, origin: TemplateOrigin) -> tuple[Node, ...]:
    """The template's nodes; each has the number of the one that is bound from it."""
    nodes = origin.template.graph.nodes
    assert len(nodes) == len(lir.graph.nodes), "a binding has the nodes of its template"
    return nodes


def module_of(form: SizedForm, name: str) -> tuple[ir.Module, Emitted]:
    """Return the function of a form in a separate module, and its `Emitted`.

    Raises:
        Unsized: The form has no code.
    """
    module = new_module("sizes")
    module.sizes = sizes = llvm.sizes.ModuleSizes()
    emitted = form.emit(module, name)
    return module, evolve(emitted, words=tuple(map(str, sizes.words)))


def _make(forms: Sequence[SizedVariant], isa: Isa) -> None:
    """The functions of some forms, all at once."""

    def emit(number: int) -> tuple[ir.Module, Emitted] | None:
        try:
            return module_of(forms[number].form, f"sized{number}")
        except llvm.sizes.Unsized:
            return None

    library = sized_library([variant.form.key for variant in forms], isa, emit)
    for variant, emitted in zip(forms, library.emitted, strict=True):
        variant.is_made = True
        if emitted is not None:
            variant.emitted, variant.code = emitted, library.code
            variant.words = tuple(map(parse_dim, emitted.words))
