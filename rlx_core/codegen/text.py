"""Loop kernels as text for people: the space, the buffers, one line a value, and the loops that the schedule makes of them."""

from __future__ import annotations

from collections.abc import Iterator

from rlx_core.codegen.loops import Apply, Bound, Const, Index, Kernel, Load, Reduce, Scalar
from rlx_core.codegen.schedule import schedule

__all__ = ["print_kernel"]


def print_kernel(kernel: Kernel) -> str:
    """The kernel, a value a line, and then its loops."""
    return "\n".join(_lines(kernel)) + "\n"


def _lines(kernel: Kernel) -> Iterator[str]:
    grid, row = list(kernel.extents[: kernel.grid]), list(kernel.extents[kernel.grid :])
    yield f"kernel {kernel.name} grid {grid} row {row}"
    for i, buffer in enumerate(kernel.buffers):
        yield f"  {'result' if buffer.is_result else 'operand'} {i}: {buffer.name} {buffer.dtype}"
    varies = kernel.varies
    for i, value in enumerate(kernel.values):
        yield f"  %{i} = {_value(kernel, value)} : {value.dtype}{'[row]' if varies[i] else ''}"
    for store in kernel.stores:
        at = _place(kernel, store.strides, store.offset)
        yield f"  store %{store.value} -> {kernel.buffers[store.buffer].name}{at}"
    plan = schedule(kernel)
    for i, nest in enumerate(plan.nests):
        parts = [("reduce", nest.reduces), ("keep", nest.keeps), ("store", nest.stores)]
        said = "; ".join(f"{word} {', '.join(_listed(word, numbers))}" for word, numbers in parts if numbers)
        yield f"  loop {i}: {said or 'nothing'}"
    if plan.finish:
        yield f"  then: store {', '.join(map(str, plan.finish))}"


def _listed(word: str, numbers: tuple[int, ...]) -> list[str]:
    return [str(n) if word == "store" else f"%{n}" for n in numbers]


def _value(kernel: Kernel, value: Scalar) -> str:
    if isinstance(value, Load):
        dynamic = "".join(f" + %{v}*{stride}" for v, stride in value.dynamic)
        return f"load {kernel.buffers[value.buffer].name}{_place(kernel, value.strides, value.offset, dynamic)}"
    if isinstance(value, Const):
        return f"const {value.number!r}"
    if isinstance(value, Index):
        return f"index axis {value.axis}, offset {value.offset}, scale {value.scale}"
    if isinstance(value, Bound):
        return f"bound %{value.arg} in 0..{value.size - 1}{' checked' if value.is_checked else ''}"
    if isinstance(value, Reduce):
        return f"{value.combine} over row of %{value.arg}"
    assert isinstance(value, Apply), f"{value!r} is no value of the loop language"
    attributes = ", ".join(f"{k}={v!r}" for k, v in value.op.attributes().items())
    name = value.op.name.removeprefix("rlx.") + (f"<{attributes}>" if attributes else "")
    return f"{name}({', '.join(f'%{a}' for a in value.args)})"


def _place(kernel: Kernel, strides: tuple[int, ...], offset: int, dynamic: str = "") -> str:
    axes = [f"{'g' if a < kernel.grid else 'r'}{a}*{s}" for a, s in enumerate(strides) if s]
    return f"[{' + '.join(axes + ([str(offset)] if offset or not axes else []))}{dynamic}]"
