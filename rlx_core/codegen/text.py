"""Loop kernels as text, for people and for comparisons in tests; `parse_kernel` reads it back to the same kernel.

    kernel softmax grid [3] row [5]
      operand 0: x0 f32
      result 1: y0 f32
      %0 = load x0[g0*20 + r1*4] : f32[row]
      %1 = max over row of %0 : f32
      store %5 -> y0[g0*20 + r1*4]
      # loop 0: reduce %1

Axes are numbered through grid and row; a place is bytes from the start of the buffer. `[row]` marks a value that varies over
the row. The loops at the end are comments, because they follow from the lines above (`schedule.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlx_core.codegen.loops import Apply, Bound, Const, Index, Kernel, Load, Reduce, Scalar
from rlx_core.codegen.schedule import schedule
from rlx_core.ir.strides import WIDEST
from rlx_core.ir.text import attribute_text, op_title, quote_name


def print_kernel(kernel: Kernel) -> str:
    """The kernel, a buffer, value or store a line, and then its loops."""
    return "\n".join(_lines(kernel)) + "\n"


def _lines(kernel: Kernel) -> Iterator[str]:
    grid, row = list(kernel.extents[: kernel.grid]), list(kernel.extents[kernel.grid :])
    yield f"kernel {quote_name(kernel.name)} grid {grid} row {row}"
    for i, buffer in enumerate(kernel.buffers):
        aligned = "" if buffer.alignment == WIDEST else f" aligned {buffer.alignment}"
        yield f"  {'result' if buffer.is_result else 'operand'} {i}: {quote_name(buffer.name)} {buffer.dtype}{aligned}"
    varies = kernel.varies
    for i, value in enumerate(kernel.values):
        yield f"  %{i} = {_value(kernel, value)} : {value.dtype}{'[row]' if varies[i] else ''}"
    for store in kernel.stores:
        yield f"  store %{store.value} -> {_place(kernel, store.buffer, store.strides, store.offset)}"
    plan = schedule(kernel)
    for i, nest in enumerate(plan.nests):
        parts = [("reduce", nest.reduces), ("keep", nest.keeps), ("store", nest.stores)]
        text = "; ".join(f"{word} {', '.join(_listed(word, numbers))}" for word, numbers in parts if numbers)
        yield f"  # loop {i}: {text or 'nothing'}"
    if plan.finish:
        yield f"  # then: store {', '.join(map(str, plan.finish))}"


def _listed(word: str, numbers: Sequence[int]) -> list[str]:
    return [str(n) if word == "store" else f"%{n}" for n in numbers]


def _value(kernel: Kernel, value: Scalar) -> str:
    if isinstance(value, Load):
        return f"load {_place(kernel, value.buffer, value.strides, value.offset, value.dynamic)}"
    if isinstance(value, Const):
        return f"const {attribute_text(value.number)}"
    if isinstance(value, Index):
        return f"index {_axis(kernel, value.axis)}*{value.scale}{f' + {value.offset}' if value.offset else ''}"
    if isinstance(value, Bound):
        return f"bound %{value.arg} in 0..{value.size - 1}{' checked' if value.is_checked else ''}"
    if isinstance(value, Reduce):
        return f"{value.combine} over row of %{value.arg}"
    assert isinstance(value, Apply), f"{value!r} is no value of the loop language"
    attributes = (f"{name}={attribute_text(v, '  ')}" for name, v in value.op.attributes().items())
    return f"{op_title(value.op)}({', '.join([*(f'%{a}' for a in value.args), *attributes])})"


def _place(
    kernel: Kernel, buffer: int, strides: Sequence[int], offset: int, dynamic: Sequence[tuple[int, int]] = ()
) -> str:
    """`x0[g0*20 + r1*4 + 8 + %3*4]`: axes, then the offset unless it is 0, then indices that are values."""
    terms = [f"{_axis(kernel, a)}*{s}" for a, s in enumerate(strides) if s]
    if offset or not (terms or dynamic):
        terms.append(str(offset))
    terms += [f"%{v}*{stride}" for v, stride in dynamic]
    return f"{quote_name(kernel.buffers[buffer].name)}[{' + '.join(terms)}]"


def _axis(kernel: Kernel, axis: int) -> str:
    return f"{'g' if axis < kernel.grid else 'r'}{axis}"
