"""The rules of loop kernels. A printer may rely on them; every kernel is checked before one sees it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from rlx_core.codegen.loops import Apply, Bound, Combine, Const, Index, Kernel, Load, Reduce, Scalar, Store, operands_of
from rlx_core.errors import Fact, RlxError, VerifyError
from rlx_core.ir.dtypes import DType, i64
from rlx_core.ir.graph import infer
from rlx_core.ir.types import TensorType


def check_kernel(kernel: Kernel) -> Kernel:
    """The kernel itself, if it obeys the rules.

    Raises:
        VerifyError: It does not; every fault is listed.
    """
    faults = [Fact(where, what) for where, what in _faults(kernel)]
    if faults:
        subject = "1 rule is" if len(faults) == 1 else f"{len(faults)} rules are"
        raise VerifyError(f"kernel {kernel.name}: {subject} broken, the first at {faults[0].label}", *faults)
    return kernel


def _faults(kernel: Kernel) -> Iterator[tuple[str, str]]:
    if not 0 <= kernel.grid <= len(kernel.extents):
        yield "grid", f"{kernel.grid} axes of {len(kernel.extents)}"
        return
    if any(n < 0 for n in kernel.extents):
        yield "extents", f"a size is at least 0, not {min(kernel.extents)}"
    names = [buffer.name for buffer in kernel.buffers]
    yield from ((f"buffer {i}", f"another buffer is called {n}") for i, n in enumerate(names) if n in names[:i])
    is_sound = True
    for i, value in enumerate(kernel.values):
        for what in _value_faults(kernel, i, value):
            is_sound = False
            yield f"%{i}", what
    if not is_sound:
        return  # the rules below follow operands, which may not be there
    yield from ((f"store {i}", what) for i, s in enumerate(kernel.stores) for what in _store_faults(kernel, s))
    stored = {s.buffer for s in kernel.stores}
    for i, buffer in enumerate(kernel.buffers):
        if buffer.is_result and i not in stored:
            yield buffer.name, "a result is never stored"


def _value_faults(kernel: Kernel, number: int, value: Scalar) -> Iterator[str]:
    if any(not 0 <= a < number for a in operands_of(value)):
        yield "an operand does not come before it"
        return
    types = [kernel.values[a].dtype for a in operands_of(value)]
    if isinstance(value, Load):
        yield from _access_faults(kernel, value.buffer, value.strides)
        if 0 <= value.buffer < len(kernel.buffers) and kernel.buffers[value.buffer].accessed is not value.dtype:
            yield f"loads {value.dtype} from a buffer of {kernel.buffers[value.buffer].dtype}"
        if any(not isinstance(kernel.values[v], Bound) for v, _ in value.dynamic):
            yield "an index is not held inside its axis"
    elif isinstance(value, Index):
        if not 0 <= value.axis < len(kernel.extents) or value.dtype is not i64:
            yield f"axis {value.axis} as {value.dtype}"
    elif isinstance(value, Bound):
        if value.size < 1 or types[0] is not i64:
            yield f"an index of {types[0]} in an axis of {value.size}"
        if value.dtype is not i64:
            yield f"an index of i64 as {value.dtype}"
    elif isinstance(value, Reduce):
        if types[0] is not value.dtype or not kernel.row_axes:
            yield f"reduces {types[0]} to {value.dtype} over {len(kernel.row_axes)} row axes"
        if value.combine not in get_args(Combine):
            yield f"combines with {value.combine}, not with sum, prod, max or min"
    elif isinstance(value, Const):
        if not _is_number_of(value.number, value.dtype):
            yield f"{value.number!r} is no number of {value.dtype}"
    elif isinstance(value, Apply):
        yield from _apply_faults(value, tuple(TensorType(t) for t in types))


def _is_number_of(number: object, dtype: DType) -> bool:
    if dtype.kind == "bool":
        return isinstance(number, bool)
    return isinstance(number, int if dtype.is_integer else int | float) and not isinstance(number, bool)


def _apply_faults(value: Apply, types: tuple[TensorType, ...]) -> Iterator[str]:
    if value.op.reference is None:
        yield f"{value.op.name} is not a primitive"
        return
    try:
        inferred = infer(value.op, types)
    except RlxError as error:
        yield error.message
        return
    if inferred != (TensorType(value.dtype),):
        yield f"{value.op.name} gives {', '.join(map(str, inferred))}, not {value.dtype}"


def _access_faults(kernel: Kernel, buffer: int, strides: tuple[int, ...]) -> Iterator[str]:
    if not 0 <= buffer < len(kernel.buffers):
        yield f"there is no buffer {buffer}"
    if len(strides) != len(kernel.extents):
        yield f"has {len(strides)} strides, the space has {len(kernel.extents)} axes"


def _store_faults(kernel: Kernel, store: Store) -> Iterator[str]:
    yield from _access_faults(kernel, store.buffer, store.strides)
    if not 0 <= store.value < len(kernel.values):
        yield f"there is no value {store.value}"
        return
    if not 0 <= store.buffer < len(kernel.buffers):
        return  # reported above
    if len(store.strides) == len(kernel.extents) and 0 not in kernel.extents:
        # Threads that write parts of one word flip its bits: none may do so for another.
        axes = range(len(kernel.extents)) if kernel.is_along_rows(store) else kernel.grid_axes
        yield from (
            f"stores {kernel.extents[a]} times at one place, along axis {a}"
            for a in axes
            if kernel.extents[a] > 1 and not store.strides[a]
        )
    buffer = kernel.buffers[store.buffer]
    if not buffer.is_result:
        yield f"{buffer.name} is an operand"
    if buffer.accessed is not kernel.values[store.value].dtype:
        yield f"stores {kernel.values[store.value].dtype} into a buffer of {buffer.dtype}"
