"""LIR: a legal MIR graph plus how to run it: schedule, arena offsets, view aliases, phases, manifest, prepare program.

A backend runs a `Lir` as it stands, without the optimiser or the planner. This module holds the records; the pipeline
(`rlx_core.pipeline`) fills them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import cached_property
from typing import Literal

from attrs import field

from rlx_core.ir.dims import DimBinding, SizeGuard
from rlx_core.ir.graph import Graph, Node, Value, leaf_name
from rlx_core.ir.protocols import Travels
from rlx_core.ir.strides import Strides, dense_strides, is_dense
from rlx_core.ir.types import TensorType
from rlx_core.system.records import frozen


class IrStage(Enum):
    """The stage of a program: blocks, tensor ops, or ops with a plan."""

    HIR = "hir"
    MIR = "mir"
    LIR = "lir"

    def __repr__(self) -> str:
        return self.name


Phase = Literal["prologue", "steady-state", "epilogue"]


@frozen
class Slot:
    """A range of arena bytes."""

    offset: int
    nbytes: int

    @property
    def end(self) -> int:
        return self.offset + self.nbytes


@frozen
class Alias:
    """A value that lives inside another's bytes: `strides` and `byte_offset` are bytes from the start of `root`.

    A view of its operand is one; so is an operand that was computed inside the result of a later concatenation, and a value
    whose bytes an output takes over.
    """

    root: Value = field(eq=id)  # `==` on values is element-wise
    byte_offset: int
    strides: Strides


@frozen
class OutputDelivery:
    """How one output is delivered to the caller, who may keep it and write to it.

    Attributes:
        kind: `own`: the output's root is a buffer that the program allocates for each run and hands over, with nothing else of
            the caller's in it. `copy`: the bytes are copied into a new buffer when the run ends. `donor`: the caller gets back
            the buffer of a donated input or param; if the output is not that leaf as it lies, its elements are copied there
            at the very end, after everything else (the sources of other such copies too) was read.
        donor: The input or param whose buffer comes back.
    """

    kind: Literal["own", "copy", "donor"]
    donor: Value | None = field(default=None, eq=False)


@frozen(eq=False)
class Step:
    """One node to run, by which kernel, with which scratch memory.

    Attributes:
        node: The node to compute. Its results have slots, aliases, or are outputs.
        kernel: The name of the kernel in the target's table that legalisation chose.
        workspace: Scratch bytes in the arena, alive during this step only.
        in_place: Result index → operand index whose bytes the result takes over.
        phase: Where in the run the step belongs; informative.
        nested: Attribute name → plan, for the graphs among the op's attributes that the kernel runs as separate programs.
            Only one runs at a time: their arenas all start at `nested_offset` in `workspace`.
        nested_offset: Bytes of the workspace that are the kernel's own.
    """

    node: Node
    kernel: str
    workspace: Slot | None = None
    in_place: Mapping[int, int] = field(factory=dict)
    phase: Phase = "steady-state"
    nested: Mapping[str, Lir] = field(factory=dict)
    nested_offset: int = 0


@frozen
class Entry:
    """One input, param or output as the caller sees it."""

    name: str
    type: TensorType
    value: Value = field(eq=False)
    is_donated: bool = False


@frozen
class CallManifest:
    """The interface of a call, in calling order. Unused inputs are listed too: feeding them is not an error."""

    inputs: tuple[Entry, ...]
    params: tuple[Entry, ...]
    outputs: tuple[Entry, ...]


@frozen(eq=False)
class TemplateOrigin:
    """The template of which a plan is a binding: nodes of its graph correspond to those of the template's, one by one."""

    template: Lir
    sizes: DimBinding


@frozen(eq=False)
class Lir(Travels):
    """An optimised graph and its execution plan.

    Attributes:
        graph: Legal MIR for `target`; its params include the results of the prepare program.
        target: The name of the target it was made for.
        steps: The schedule. View steps (aliases) are not in it.
        slots: Value → arena range; equal for a result and the operand it took over in place. Views have none, nor do values
            without elements, roots of `own` outputs, and leaves unless the plan was made to hold them.
        aliases: Value → the root whose bytes it lives in. Roots are never aliases themselves.
        deliveries: How each output of the graph reaches the caller.
        manifest: Inputs, params as the *user* binds them, outputs.
        prepare: Work on params and constants only, run when params are bound: a graph from the user's params to the
            values that `graph` takes as params, or `None` if they are the same.
        arena_nbytes: Bytes that one run needs.
        alignment: Every slot's offset is a multiple of this many bytes.
        guards: Relations that sizes must satisfy when symbols are bound.
        fingerprint: Hex digest of everything that can change a result; the same in every process.
        options: The resolved plan this was compiled with, as printed by `rlx plan`.
        origin: The template that this is a binding of, where that is known; a file does not hold it.
    """

    graph: Graph
    target: str
    steps: tuple[Step, ...]
    slots: Mapping[Value, Slot]
    aliases: Mapping[Value, Alias]
    deliveries: tuple[OutputDelivery, ...]
    manifest: CallManifest
    prepare: Graph | None
    arena_nbytes: int
    alignment: int
    guards: tuple[SizeGuard, ...] = ()
    fingerprint: str = ""
    options: Mapping[str, object] = field(factory=dict)
    origin: TemplateOrigin | None = None

    @property
    def is_planned(self) -> bool:
        """Whether all sizes are known; a template with symbols has a schedule but no offsets."""
        return not self.graph.symbols

    @cached_property
    def unshared_nbytes(self) -> int:
        """Size of the arena if no two values shared bytes; each starts at a multiple of the alignment, as in the arena."""
        workspaces = (step.workspace for step in self.steps if step.workspace)
        return sum(-(-slot.nbytes // self.alignment) * self.alignment for slot in (*self.slots.values(), *workspaces))

    @property
    def saved_nbytes(self) -> int:
        """Number of bytes that sharing saves."""
        return self.unshared_nbytes - self.arena_nbytes

    @cached_property
    def own_roots(self) -> tuple[Value, ...]:
        """The values whose buffers are allocated for each run and handed to the caller, in output order."""
        pairs = zip(self.graph.outputs, self.deliveries, strict=True)
        return tuple(self.root_of(v) for v, delivery in pairs if delivery.kind == "own")

    @cached_property
    def donated(self) -> frozenset[Value]:
        """The inputs and params of the graph that were given away: runs may overwrite their bytes.

        They are matched by name, because the manifest's params are those of the prepare program if the plan has one.
        """
        names = {e.name for e in (*self.manifest.inputs, *self.manifest.params) if e.is_donated}
        return frozenset(v for v in (*self.graph.inputs, *self.graph.params) if leaf_name(v) in names)

    def root_of(self, value: Value) -> Value:
        """The value whose bytes hold `value`."""
        return root_of(value, self.aliases)

    def parts_in(self, node: Node) -> tuple[int, ...]:
        """The operands of a node that lie in its result; a step of it writes the rest."""
        if node.op.parts is None:
            return ()
        root = self.root_of(node.result)
        return tuple(i for i, v in enumerate(node.operands) if v is not None and self.root_of(v) is root)


def root_of(value: Value, aliases: Mapping[Value, Alias]) -> Value:
    """The value whose bytes hold `value`."""
    alias = aliases.get(value)
    return value if alias is None else alias.root


def placement(value: Value, aliases: Mapping[Value, Alias]) -> Alias:
    """Return the location of the elements of `value`: its alias, or its whole storage."""
    return aliases.get(value) or Alias(value, 0, dense_strides(value.type))


def covers_root(value: Value, aliases: Mapping[Value, Alias]) -> bool:
    """Return whether `value` is all of its root's bytes in row-major order, so that they may be donated, moved or taken over."""
    place = aliases.get(value)
    if place is None:
        return True
    same_bytes = value.type.nbytes == place.root.type.nbytes and place.byte_offset == 0
    return same_bytes and is_dense(value.type, place.strides)


def parts_of(node: Node) -> list[tuple[Value, tuple[int, Strides]]]:
    """The operands that may lie in a node's result, with offset and strides there, as `Op.parts` has them; none of other ops."""
    places = () if node.op.parts is None else node.op.parts(*node.operand_types) or ()
    pairs = zip(node.operands, places, strict=False)
    return [(value, place) for value, place in pairs if value is not None and place is not None]


def is_made_of_parts(node: Node) -> bool:
    """Return whether the operands that may lie in a node's result cover all of it, so that the node has nothing to write."""
    parts = parts_of(node)
    return bool(parts) and sum(v.type.static_nbytes for v, _ in parts) == node.type.static_nbytes
