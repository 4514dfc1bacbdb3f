"""The plan of a graph inside a step, as code: the table of addresses that its functions read, and the calls in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import field

from rlx_core.codegen.movement.boxes import Axis, Box
from rlx_core.codegen.places import Fault
from rlx_core.ir.graph import Value
from rlx_core.ir.lir import Alias, Lir, Step, placement
from rlx_core.ir.strides import dense_strides
from rlx_core.system.records import define, frozen
from rlx_cpu.native.contract import NO_NUMBER, STATUS_ASK, STATUS_RECORD, BufferPositions, Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I64, POINTER, address
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import index
from rlx_cpu.native.llvm.team import SHARE, SHARED
from rlx_cpu.native.movement.boxes import emit_boxes


@frozen(eq=False)
class BodyStep:
    """A step of a body.

    Attributes:
        positions: Positions of its function's addresses in the table of the body.
        packs: For each pack of the step, the index of the outer step's pack that contains it, and its stride in bytes per
            iteration.
        hoisted: Offset of each hoisted pack in the memory for them.
    """

    step: Step
    emitted: Emitted
    positions: BufferPositions
    packs: tuple[tuple[int, int], ...]
    hoisted: tuple[int, ...]


@frozen(eq=False)
class BodyMemory:
    """Memory that is passed to a body's calls, and the calling thread.

    Attributes:
        arena: Arena of the plan.
        scratch: Start of the per-thread memory; the shared memory precedes it.
        hoisted: Memory of packed operands.
        packs: Addresses of the outer step's packs.
        thread, team: The last two arguments of the step's function.
        status: The step's status words, if it has any.
    """

    arena: ir.LlvmValue
    scratch: ir.LlvmValue
    hoisted: ir.LlvmValue
    packs: Sequence[ir.LlvmValue]
    thread: ir.LlvmValue
    team: ir.LlvmValue
    status: ir.LlvmValue | None


@define(eq=False)
class Body:
    """A graph's plan in a function under construction.

    Attributes:
        lir: The plan.
        steps: Its steps with elements, in order.
        words: Number of addresses.
        table: The table of addresses, once there is a function for them.
        statuses: The status words of steps, and what these report.
    """

    lir: Lir
    steps: tuple[BodyStep, ...]
    words: int
    constants: dict[Value, ir.LlvmValue]
    table: ir.LlvmValue | None = None
    memory: BodyMemory | None = None
    statuses: list[tuple[ir.LlvmValue, Fault | None]] = field(factory=list)

    @property
    def workspace(self) -> int:
        """Bytes per thread that the functions need in addition to the plan's workspace."""
        return max((s.emitted.workspace_stride for s in self.steps), default=0)

    @property
    def shared(self) -> int:
        """Bytes that they need for all threads together."""
        return max((s.emitted.shared_stride for s in self.steps), default=0)

    @property
    def shares(self) -> bool:
        """Whether threads can share a step."""
        return any(s.emitted.uses_threads or s.emitted.shares for s in self.steps)

    @property
    def faults(self) -> list[Fault]:
        return [s.emitted.fault for s in self.steps if s.emitted.fault is not None]

    @property
    def polls(self) -> bool:
        """Whether a step may be left."""
        return any(s.emitted.polls for s in self.steps)

    def begin(self, b: ir.IRBuilder, memory: BodyMemory, inputs: Sequence[ir.LlvmValue]) -> None:
        """Fill the table from the addresses of the graph's inputs, and pack the hoisted operands."""
        self.memory = memory
        with b.goto_entry_block():
            self.table = b.alloca(I64, max(self.words, 1))
            self.table.align = 8
        known = dict(zip(self.lir.graph.inputs, inputs, strict=True))
        for value, alias in self._addresses():
            base = self._base(b, alias, memory, known)
            b.store(base, self._word(b, value), align=8)
        for inside in self.steps:
            positions = inside.positions
            if positions.workspace is not None:
                workspace = address(b, memory.scratch, -inside.emitted.shared_stride)
                b.store(workspace, self._word(b, positions.workspace), align=8)
            packs = len(inside.packs)
            for word, (pack, _) in zip(positions.packs[:packs], inside.packs, strict=True):
                b.store(memory.packs[pack], self._word(b, word), align=8)
            for word, offset in zip(positions.packs[packs:], inside.hoisted, strict=True):
                b.store(address(b, memory.hoisted, offset), self._word(b, word), align=8)
            if positions.arena is not None:
                assert inside.step.workspace is not None, "the arenas of its graphs are in its workspace"
                b.store(address(b, memory.arena, inside.step.workspace.offset), self._word(b, positions.arena), align=8)
            if positions.status is not None:
                b.store(self._begin_status(b, inside, memory), self._word(b, positions.status), align=8)
        for inside in self.steps:
            for hoisted_pack in inside.emitted.held:
                self._call(b, inside, hoisted_pack.function, is_shared=True)

    def _begin_status(self, b: ir.IRBuilder, inside: BodyStep, memory: BodyMemory) -> ir.LlvmValue:
        """Return the address of a step's status words, which are set once: the outer step takes over a report at once."""
        with b.goto_entry_block():
            words = b.alloca(I64, 4)
            words.align = 8
            b.store(index(0), words, align=8)
            b.store(index(NO_NUMBER), address(b, words, 8), align=8)
        if inside.emitted.polls:
            assert memory.status is not None, "who holds a loop that asks can ask"
            for offset in (STATUS_ASK, STATUS_RECORD):
                b.store(b.load(address(b, memory.status, offset), typ=I64, align=8), address(b, words, offset), align=8)
        self.statuses.append((words, inside.emitted.fault))
        return words

    def place(self, b: ir.IRBuilder, number: int, pointer: ir.LlvmValue) -> None:
        """Have an input lie elsewhere from now on."""
        root = self.lir.graph.inputs[number]
        for word, alias in self._addresses():
            if alias.root is root:
                b.store(address(b, pointer, alias.byte_offset), self._word(b, word), align=8)

    def turn(self, b: ir.IRBuilder, turn: ir.LlvmValue) -> None:
        """Have packs that each round has its own of lie where this round's are."""
        assert self.memory is not None, "begin comes first"
        for inside in self.steps:
            for word, (pack, stride) in zip(inside.positions.packs, inside.packs, strict=False):  # hoisted ones follow
                if stride:
                    place = address(b, self.memory.packs[pack], b.mul(turn, index(stride)))
                    b.store(place, self._word(b, word), align=8)

    def run(self, b: ir.IRBuilder) -> None:
        """Call all functions in order."""
        for inside in self.steps:
            for name in (inside.emitted.prologue, inside.emitted.function):
                if name is not None:
                    self._call(b, inside, name, is_shared=inside.emitted.uses_threads)

    def _call(self, b: ir.IRBuilder, inside: BodyStep, name: str, *, is_shared: bool) -> None:
        """Call a function of a step; with the threads that wait, if there are any and it can be shared."""
        assert self.table is not None, "begin comes first"
        assert self.memory is not None, "begin comes first"
        function, team, thread = b.module.globals[name], self.memory.team, self.memory.thread
        buffers = address(b, self.table, 8 * inside.positions.first)
        alone = [buffers, index(0), index(1), thread, team][: len(function.args)]
        if not is_shared:
            b.call(function, alone)
            return
        with b.if_else(b.icmp_signed("!=", team, index(0))) as (together, otherwise):
            with together:
                share = b.load(address(b, b.inttoptr(team, POINTER), SHARE), typ=POINTER, align=8)
                words = (b.ptrtoint(function, I64), b.ptrtoint(buffers, I64), index(inside.emitted.parts), thread)
                b.call(share, [team, *words], SHARED)
            with otherwise:
                b.call(function, alone)

    def output(self, b: ir.IRBuilder, number: int, memory: BodyMemory, inputs: Sequence[ir.LlvmValue]) -> ir.LlvmValue:
        """The address of an output's first element."""
        alias = self.placed(number)
        return self._base(b, alias, memory, dict(zip(self.lir.graph.inputs, inputs, strict=True)))

    def placed(self, number: int) -> Alias:
        """Return the location of an output."""
        return placement(self.lir.graph.outputs[number], self.lir.aliases)

    def is_input(self, number: int, source: int) -> bool:
        """Return whether an output is nothing but an input as it is."""
        value, alias = self.lir.graph.outputs[number], self.placed(number)
        root = self.lir.graph.inputs[source]
        return (
            alias.root is root
            and value.type == root.type
            and alias.byte_offset == 0
            and alias.strides == dense_strides(root.type)
        )

    def _base(
        self, b: ir.IRBuilder, alias: Alias, memory: BodyMemory, inputs: dict[Value, ir.LlvmValue]
    ) -> ir.LlvmValue:
        if alias.root in inputs:
            return address(b, inputs[alias.root], alias.byte_offset)
        if alias.root in self.constants:
            return address(b, self.constants[alias.root], alias.byte_offset)
        slot = self.lir.slots.get(alias.root)  # `None` for a value without elements
        return memory.arena if slot is None else address(b, memory.arena, slot.offset + alias.byte_offset)

    def _addresses(self) -> Iterator[tuple[int, Alias]]:
        """Each word that is the address of an operand or a result, and where that lies."""
        for inside in self.steps:
            node = inside.step.node
            for i, value in enumerate((*node.operands, *node.results)):
                if value is not None:
                    yield inside.positions.first + i, placement(value, self.lir.aliases)

    def _word(self, b: ir.IRBuilder, number: int) -> ir.LlvmValue:
        assert self.table is not None, "begin comes first"
        return address(b, self.table, 8 * number)


def whole(value: Value) -> Alias:
    """A value that lies densely by itself."""
    return Alias(value, 0, dense_strides(value.type))


def move(b: ir.IRBuilder, isa: Isa, value: Value, alias: Alias, source: ir.LlvmValue, to: ir.LlvmValue) -> None:
    """Copy a value to where it lies densely."""
    if not value.type.size:
        return
    itemsize, shape = value.dtype.itemsize, value.type.static_shape
    dense = dense_strides(value.type)
    axes = tuple(Axis(n, t, s) for n, t, s in zip(shape, dense, alias.strides, strict=True))
    emit_boxes(b, isa, [(Box(axes or (Axis(1, itemsize, itemsize),)), itemsize, to, source)], index(0), index(1))
