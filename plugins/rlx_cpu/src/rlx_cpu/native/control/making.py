"""From the plan of a nested graph to its functions and their packed operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve

from rlx_core.codegen.places import Layout, Place, layout_of, place_of
from rlx_core.ir.graph import Constant, Value
from rlx_core.ir.lir import Lir, Step, placement
from rlx_core.system.records import frozen
from rlx_cpu.native.contract import BufferPositions, EmitStep, Emitted, OperandView, Pack, aligned
from rlx_cpu.native.control.bodies import Body, BodyStep
from rlx_cpu.native.llvm import ir


@frozen
class InputOrigin:
    """The origin of an input of a graph.

    Attributes:
        operand: Operand of the outer step; `None` for a carry.
        rounds: For an input that is indexed by the iteration, the number of iterations.
        is_bound: Whether the operand is the same in every run.
        is_held: Whether packing it before the first iteration is worthwhile.
    """

    operand: int | None = None
    rounds: int | None = None
    is_bound: bool = False
    is_held: bool = False


class Bodies:
    """Creates the bodies of one step; equal steps in them share a function.

    Args:
        module: The module to add functions to.
        name: Prefix of their names.
        emit: Emits the function of a step.

    Attributes:
        packs: Packs of the outer step: every operand that a nested step requires to be packed.
        hoisted_nbytes: Bytes of the operands that are packed before the first iteration.
    """

    def __init__(self, module: ir.Module, name: str, emit: EmitStep) -> None:
        self._module, self._name, self._emit = module, name, emit
        self._known: dict[object, Emitted] = {}
        self._data = 0
        self.packs: dict[Pack, int] = {}
        self.hoisted_nbytes = 0

    def of(self, lir: Lir, origins: Sequence[InputOrigin]) -> Body:
        """The body of a plan, its functions in the module.

        Args:
            origins: Origins of its graph's inputs.
        """
        sources = dict(zip(lir.graph.inputs, origins, strict=True))
        steps: list[BodyStep] = []
        words = 0
        for step in lir.steps:
            if all(t.size == 0 for t in step.node.types):
                continue
            emitted = self._function(step, inner_layout(step, lir, sources))
            positions = BufferPositions.of_step(step, emitted, words)
            words = positions.end
            packs = tuple(self._pack(each, step, lir, sources) for each in emitted.packs)
            hoisted = tuple(self._hold(each.nbytes) for each in emitted.held)
            steps.append(BodyStep(step, emitted, positions, packs, hoisted))
        constants = {
            n.result: self._constant(n.op.value.array.tobytes()) for n in lir.graph.nodes if isinstance(n.op, Constant)
        }
        return Body(lir, tuple(steps), words, constants)

    def _pack(self, pack: Pack, step: Step, lir: Lir, sources: Mapping[Value, InputOrigin]) -> tuple[int, int]:
        """Return the outer step's pack that contains a step's pack, and the latter's stride in bytes per iteration."""
        value = step.node.operands[pack.operand]
        assert value is not None, "a pack is of an operand that is there"
        alias = placement(value, lir.aliases)
        origin = sources[alias.root]
        assert origin.operand is not None, "what is carried is not bound"
        seen = pack.view or OperandView(value.type.static_shape, alias.strides, 0)
        seen = evolve(seen, offset=seen.offset + alias.byte_offset)
        if origin.rounds is not None:
            shape, strides = (origin.rounds, *seen.shape), (alias.root.type.static_nbytes, *seen.strides)
            seen = evolve(seen, shape=shape, strides=strides, rounds=seen.rounds + 1)
        outer = evolve(pack, operand=origin.operand, view=seen, replaces=False)  # other steps may read the operand
        return self.packs.setdefault(outer, len(self.packs)), 0 if origin.rounds is None else pack.capacity

    def _hold(self, nbytes: int) -> int:
        start, self.hoisted_nbytes = self.hoisted_nbytes, self.hoisted_nbytes + aligned(nbytes)
        return start

    def _function(self, step: Step, layout: Layout) -> Emitted:
        key = (step.kernel, step.node.op, layout)
        if key not in self._known:
            title = step.node.op.name.rpartition(".")[2]
            emitted = self._known[key] = self._emit(f"{self._name}_{len(self._known)}_{title}", step, layout)
            for name in filter(None, (emitted.function, emitted.prologue, *(each.function for each in emitted.held))):
                self._module.globals[name].linkage = "internal"  # so that LLVM may put it where it is called
        return self._known[key]

    def _constant(self, data: bytes) -> ir.LlvmValue:
        self._data += 1
        return self._module.data(f"{self._name}_data{self._data}", data)


def inner_layout(step: Step, lir: Lir, sources: Mapping[Value, InputOrigin]) -> Layout:
    """Return the layout of a body's step, with the operands that are invariant or indexed in the loop, or bound."""

    def known(value: Value | None) -> Place | None:
        if value is None:
            return None
        origin = sources.get(lir.root_of(value), InputOrigin())
        is_fresh = origin.rounds is not None
        return evolve(place_of(value, lir), is_bound=origin.is_bound, is_held=origin.is_held, is_fresh=is_fresh)

    return evolve(layout_of(step, lir), operands=tuple(map(known, step.node.operands)))
