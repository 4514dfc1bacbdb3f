"""Tapes: the evaluation of an op on operands of given types, computed once and played on arrays with NumPy.

Evaluating an op by its decomposition means building a graph of it and walking that graph. The references and their operands
depend on the op and on the types of its operands alone, so this is stored once as a list of steps over slots; the reference
interpreter plays it for each node that decomposes, and so does an op that is applied to arrays at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any, TypeAlias

import numpy as np
from attrs import evolve

from rlx_core.errors import MissingRuleError
from rlx_core.ir.array import read_only_view
from rlx_core.ir.dtypes import DType
from rlx_core.ir.element_functions import ElementFunctions, is_inexact
from rlx_core.ir.graph import Graph, GraphArgument, Node, Value, decomposition
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.system.records import frozen

Arrays: TypeAlias = "Sequence[np.ndarray | None]"

MAX_TAPES = 2048
"""Maximum number of cached tapes, one per combination of an op and operand types."""


@frozen(eq=False)
class TapeStep:
    """One op: the slots that it reads (`None`: an absent operand) and writes, and those that no later step reads.

    Attributes:
        reference: The NumPy reference, or the tape of the decomposition of an element-wise op.
        element: The op and the dtypes of its operands, if a target's function may be used in place of `reference`.
    """

    reference: Callable[..., Any] | Tape
    reads: tuple[int | None, ...]
    narrow: bool  # whether an operand is declared f16 or bf16
    writes: tuple[int, ...]
    types: tuple[DType, ...]
    frees: tuple[int, ...]
    element: tuple[Op, tuple[DType, ...]] | None = None


@frozen(eq=False)
class Tape:
    """Steps over slots, of which the first hold the operands that are present."""

    operands: tuple[DType, ...]
    steps: tuple[TapeStep, ...]
    results: tuple[int, ...]
    slots: int

    @cached_property
    def is_inexact(self) -> bool:
        """Return whether a target's functions may be used for some step."""
        return any(step.element is not None for step in self.steps)

    def play(
        self, arrays: Sequence[np.ndarray], *, is_wide: bool = False, functions: ElementFunctions | None = None
    ) -> tuple[np.ndarray, ...]:
        """The results on operands in the order of their places, absent ones left out.

        Args:
            is_wide: Whether floats are stored in f64 and complex numbers in c128, whatever was declared.
            functions: The functions of a target for inexact element-wise ops, which are not used if `is_wide`.
        """
        slots: list[Any] = [held(a, d, is_wide) for a, d in zip(arrays, self.operands, strict=True)]
        slots += [None] * (self.slots - len(slots))
        # The operands determine which results are NaN or infinite, and what rounds to one; NumPy's warnings would be noise.
        with np.errstate(all="ignore"):
            for step in self.steps:
                operands: list[Any] = [None if i is None else slots[i] for i in step.reads]
                function = None
                if functions is not None and step.element is not None and not is_wide:
                    function = functions(*step.element)
                if function is not None:
                    returned: Any = function(*operands)
                elif isinstance(step.reference, Tape):
                    returned = step.reference.play(operands, is_wide=is_wide, functions=functions)
                else:
                    if step.narrow:
                        operands = [None if a is None else widened(a) for a in operands]
                    returned = step.reference(*operands)
                if len(step.writes) == 1 and not isinstance(returned, tuple | list):
                    slots[step.writes[0]] = held(returned, step.types[0], is_wide)
                else:
                    results = returned if isinstance(returned, tuple | list) else (returned,)
                    for slot, type, result in zip(step.writes, step.types, results, strict=True):
                        slots[slot] = held(result, type, is_wide)
                for slot in step.frees:
                    slots[slot] = None
        return tuple([slots[i] for i in self.results])


def held(array: Any, dtype: DType, is_wide: bool) -> np.ndarray:
    """Return an array, or the result of a reference, in the dtype in which values declared `dtype` are stored."""
    target = (dtype.wide if is_wide else dtype).numpy
    if type(array) is np.ndarray and array.dtype is target:
        return array
    return np.asarray(array).astype(target, copy=False)


def widened(array: np.ndarray) -> np.ndarray:
    """`array` as references take it: f16 and bf16 in f32, everything else as it is."""
    # Accumulation in f32 and one rounding: references never see a 2-byte float (ml_dtypes' bfloat16 has kind "V").
    is_narrow = array.dtype.itemsize == 2 and array.dtype.kind in "fV"
    return array.astype(np.float32) if is_narrow else array


@lru_cache(MAX_TAPES)
def tape_of_op(op: Op, types: tuple[TensorType | None, ...]) -> Tape:
    """The tape of an op's decomposition on operands of these static types.

    Raises:
        MissingRuleError: An op on the way has neither a reference nor a decomposition.
    """
    if op.decompose is None:
        raise MissingRuleError(
            f"{op.name}: it has neither a reference nor a decomposition, so it has no meaning yet",
            hint=f"write `def decompose(self, ...)` or `def reference(self, ...)` in class {type(op).__name__}",
        )
    return tape_of_graph(decomposition(op, types))


def tape_of_graph(graph: Graph) -> Tape:
    """The tape of a graph without symbols, its inputs as the operands."""
    slots: dict[Value, int] = {}
    operands = [node for node in graph.nodes if isinstance(node.op, GraphArgument)]
    slots.update((node.result, i) for i, node in enumerate(operands))
    count, steps = len(operands), []
    for node in graph.nodes:
        if isinstance(node.op, GraphArgument):
            continue
        node_steps, count, results = steps_of(node, slots, count)
        steps += node_steps
        slots.update(zip(node.results, results, strict=True))
    outputs = tuple(slots[v] for v in graph.outputs)
    return Tape(tuple(n.type.dtype for n in operands), freeing(steps, {*outputs}), outputs, count)


def with_read_only_operands(reference: Callable[..., Any], *operands: np.ndarray | None) -> Any:
    """The result of a contributed reference, which is given views that it cannot write to: the arrays are the caller's."""
    return reference(*(None if each is None else read_only_view(each) for each in operands))


def steps_of(node: Node, slots: dict[Value, int], count: int) -> tuple[list[TapeStep], int, tuple[int, ...]]:
    """The steps of one node, how many slots there are after it, and those of its results.

    A node that decomposes becomes the steps of its tape, moved to slots of this one, unless it is an element-wise op for
    which a target may have a function.
    """
    op, reads = node.op, tuple(None if v is None else slots[v] for v in node.operands)
    dtypes = tuple(v.dtype for v in node.operands if v is not None)
    element = (op, dtypes) if is_inexact(op, [None if v is None else v.dtype for v in node.operands]) else None
    if op.reference is not None or (element is not None and len(node.types) == 1):
        reference = tape_of_op(op, node.operand_types) if op.reference is None else op.reference
        narrow = any(d.is_narrow for d in dtypes)
        writes = tuple(range(count, count + len(node.types)))
        types = tuple(t.dtype for t in node.types)
        if op.reference is not None and not op.name.startswith("rlx."):
            reference = partial(with_read_only_operands, op.reference)
        return [TapeStep(reference, reads, narrow, writes, types, (), element)], count + len(writes), writes
    body = tape_of_op(op, node.operand_types)
    present = [slot for slot in reads if slot is not None]
    moved = [*present, *range(count, count + body.slots - len(present))]
    steps = [
        evolve(
            step,
            reads=tuple(None if i is None else moved[i] for i in step.reads),
            writes=tuple(moved[i] for i in step.writes),
            frees=(),
        )
        for step in body.steps
    ]
    return steps, count + body.slots - len(present), tuple(moved[i] for i in body.results)


def freeing(steps: Sequence[TapeStep], retained: set[int]) -> tuple[TapeStep, ...]:
    """The steps, each with the slots that are read or written last by it: a run does not hold the whole program."""
    last = {
        i: n for n, step in enumerate(steps) for i in (*step.reads, *step.writes) if i is not None and i not in retained
    }
    frees: dict[int, list[int]] = {}
    for slot, number in last.items():
        frees.setdefault(number, []).append(slot)
    return tuple(evolve(step, frees=tuple(frees.get(n, ()))) for n, step in enumerate(steps))
