"""Table of the native kernels of primitive ops by dtype, with the reason where there is none.

python -m rlx_cpu.native.coverage
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlx_core.ir.dtypes import ALL, DType
from rlx_core.ir.op import Op
from rlx_core.ops import standard_ops
from rlx_core.system.records import frozen
from rlx_core.testing.cases import programs
from rlx_cpu.native.table import native

__all__ = ["Coverage", "coverage", "print_coverage"]


@frozen
class Coverage:
    """One primitive op.

    Attributes:
        op: Its name.
        native: Dtypes of the first operand (or of the result, without operands) for which some sample runs natively.
        missing: The other dtypes of its samples.
        reason: Why the first of those has no native code.
    """

    op: str
    native: tuple[DType, ...]
    missing: tuple[DType, ...]
    reason: str


def coverage(ops: Sequence[type[Op]]) -> Iterator[Coverage]:
    """Yield which samples of every primitive the native table accepts, in the order of `ops`."""
    by_op: dict[str, tuple[set[DType], dict[DType, str]]] = {}
    for program in programs(tuple(ops)):
        node = program.node
        if not program.is_static or node.op.decompose is not None:
            continue
        has, unsupported = by_op.setdefault(node.op.name, (set(), {}))
        dtype = next((v.dtype for v in node.present()), node.types[0].dtype)
        refusals = [k.refusal(node) for k in native.rows(type(node.op))]
        if any(r is None for r in refusals):
            has.add(dtype)
        else:
            unsupported.setdefault(dtype, str(refusals[0]) if refusals else "has no native kernel")
    for name, (has, unsupported) in by_op.items():
        missing = tuple(d for d in ALL if d in unsupported and d not in has)
        yield Coverage(name, tuple(d for d in ALL if d in has), missing, unsupported[missing[0]] if missing else "")


def print_coverage(rows: Sequence[Coverage]) -> str:
    """The table as text: a line an op."""
    lines = []
    for row in rows:
        native_dtypes = " ".join(d.name for d in row.native) or "none"
        line = f"{row.op.removeprefix('rlx.'):22} native: {native_dtypes}"
        if row.missing:
            line += f"; NumPy: {' '.join(d.name for d in row.missing)} ({row.reason})"
        lines.append(line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(print_coverage(list(coverage(standard_ops()))), end="")
