"""Hashes of the code that every native kernel emits, as a regression check for changes that must not change the code.

    python -m rlx_cpu.native.replay [--update]

compares with the stored table in the tests, or writes it. The hashed text is the unoptimised LLVM IR, for instruction sets of
this machine and of others: for each kernel all samples of its op that it accepts, and some larger problems, which are blocked
and unrolled in ways for which samples are too small. A new sample changes the hash too.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from rlx_core.codegen.places import Layout, Place
from rlx_core.codegen.scalars.idioms import gelu_slope
from rlx_core.codegen.scalars.long import LONG
from rlx_core.codegen.scalars.standard import IDIOMS
from rlx_core.ir.dtypes import f32, i8, i32
from rlx_core.ir.graph import Node
from rlx_core.ir.op import Op
from rlx_core.ops import (
    activation,
    arithmetic,
    attention,
    conversion,
    cumulative,
    fused,
    fused_matmul_epilogue,
    indexing,
    linalg,
    normalization,
    piecewise,
    reduction,
    scatter,
    selection,
    softmax,
    sorting,
    standard_ops,
    structural,
)
from rlx_core.ops.fourier.fourier import Fft
from rlx_core.ops.region import ElementwiseRegion, RegionStep
from rlx_core.ops.samples import Case, Sample
from rlx_core.pipeline.kernels import emitter_of
from rlx_core.system.records import frozen
from rlx_core.testing.cases import OpProgram, programs
from rlx_cpu.native.contract import Emit
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import ISAS, Isa
from rlx_cpu.native.table import native

TABLE: Final = Path(__file__).parents[3] / "tests" / "native" / "replay.txt"
DIGITS = 12


@frozen
class Problem:
    """An op on operands of some types, of which a few are bound and may be packed ahead."""

    op: type[Op]
    sample: Sample
    bound: tuple[int, ...] = ()


def larger_problems() -> Iterator[Problem]:
    """Yield problems for which samples are too small: vectors unrolled, panels packed, sums in blocks, work in parts."""
    for op in (*LONG, *IDIOMS):
        for dtype in ("f32", "f64", "bf16"):
            two = op in (arithmetic.hypot.op, arithmetic.atan2.op, arithmetic.logaddexp.op)
            if op is not gelu_slope.op:
                yield Problem(op, Sample(*[f"{dtype}[1000]"] * (1 + two)))
    yield from products()
    yield from attentions()
    yield from rows_and_moves()
    for dtype in ("c64", "c128"):
        for n in (8, 64, 2048):
            yield Problem(Fft, Sample(f"{dtype}[3, {n}]"))


def products() -> Iterator[Problem]:
    product, biased = linalg.mat_mul.op, fused.FusedMatMulBiasAct
    followed = fused_matmul_epilogue.FusedMatMulEpilogue
    for dtype in ("f32", "f64", "f16", "bf16", "i8", "i32"):
        for m, k, n in ((128, 384, 384), (1, 700, 500), (17, 1300, 33)):
            for bound in ((), (1,)):
                yield Problem(product, Sample(f"{dtype}[{m}, {k}]", f"{dtype}[{k}, {n}]"), bound)
    yield Problem(product, Sample("f32[8, 12, 128, 32]", "f32[8, 12, 32, 128]"))
    yield Problem(product, Sample("f32[512, 96]", "f32[96, 2048]"))
    for activation_name in (None, "gelu", "silu", "relu"):
        types = ("f32[128, 384]", "f32[384, 1536]", "f32[1536]")
        yield Problem(biased, Sample(*types, activation=activation_name), (1, 2))
    full, row = (384, 1), (0, 1)
    add = arithmetic.add.op
    for function in (activation.relu.op, *IDIOMS):
        region = ElementwiseRegion(
            shape=(1024, 384), access=(full, row, full), results=(2, 1),
            steps=(RegionStep(add(), (0, 1)), RegionStep(function(), (3,)), RegionStep(add(), (4, 2))),
        )  # fmt: skip
        yield Problem(
            followed, Sample("f32[1024, 64]", "f32[64, 384]", "f32[384]", "f32[1024, 384]", region=region), (1, 2)
        )
    cast, multiply = conversion.Cast, arithmetic.multiply.op
    scaled = (RegionStep(cast(f32), (0,)), RegionStep(multiply(), (3, 1)), RegionStep(multiply(), (4, 2)))
    rounded = (*scaled, RegionStep(piecewise.Round(), (5,)), RegionStep(cast(i8), (6,)))
    for steps, results in ((scaled, (2,)), (rounded, (4, 2))):
        region = ElementwiseRegion(shape=(1024, 384), steps=steps, access=(full, (1, 0), row), results=results)
        sample = Sample("i8[1024, 700]", "i8[700, 384]", "f32[1024, 1]", "f32[384]", region=region, acc_dtype=i32)
        yield Problem(followed, sample, (1, 3))


def attentions() -> Iterator[Problem]:
    forward, backward = attention.Attention, attention.AttentionBackward
    masks: tuple[dict[str, Any], ...] = (
        {},
        {"mask_kind": "causal", "attn_logit_softcap": 30.0},
        {"mask_kind": "sliding_window", "window": 20, "num_kv_heads": 2},
    )
    for dtype in ("f32", "f64", "bf16"):
        for more in masks:
            heads = {"num_heads": 4, "head_dim": 64, **more}
            q = f"{dtype}[2, 128, 256]"
            k = f"{dtype}[2, 128, {64 * heads.get('num_kv_heads', 4)}]"
            yield Problem(forward, Sample(q, k, k, **heads))
            yield Problem(backward, Sample(q, k, k, q, **heads))


def rows_and_moves() -> Iterator[Problem]:
    for dtype in ("f32", "bf16"):
        rows, vector = f"{dtype}[1024, 384]", f"{dtype}[384]"
        for op in (softmax.Softmax, softmax.LogSoftmax):
            yield Problem(op, Sample(rows))
        yield Problem(normalization.LayerNorm, Sample(rows, vector, vector))
        yield Problem(fused.FusedResidualLN, Sample(rows, rows, vector, vector))
        for axes in ((0,), (1,), (0, 1)):
            yield Problem(structural.Sum, Sample(f"{dtype}[3000, 700]", axes=axes))
            yield Problem(reduction.Max, Sample(f"{dtype}[3000, 700]", axes=axes))
        yield Problem(structural.Transpose, Sample(f"{dtype}[8, 128, 12, 32]", perm=(0, 2, 1, 3)))
        yield Problem(structural.Transpose, Sample(f"{dtype}[1000, 3000]", perm=(1, 0)))
        yield Problem(selection.Where, Sample("bool[1000, 100]", f"{dtype}[1000, 100]", f"{dtype}[100]"))
        yield Problem(cumulative.Cumsum, Sample(f"{dtype}[5000, 40]", axis=0))
        yield Problem(cumulative.Cumsum, Sample(f"{dtype}[40, 5000]", axis=1))
        yield Problem(indexing.Gather, Sample(f"{dtype}[30000, 384]", "i32[2048]", axis=0))
        yield Problem(
            scatter.Scatter, Sample(f"{dtype}[3000, 384]", f"{dtype}[2048, 384]", "i32[2048]", mode="add", axis=0)
        )
        yield Problem(sorting.Sort, Sample(f"{dtype}[20, 5000]"))
        yield Problem(sorting.TopK, Sample(f"{dtype}[4, 60000]", k=50))


@cache
def problems() -> tuple[tuple[str, Emit, Node, tuple[int, ...]], ...]:
    """Return (kernel, its emitter, its node, the operands that are bound) of everything that is hashed."""
    hashed = []
    sample_programs = ((p, ()) for p in programs(tuple(standard_ops())))
    larger_programs = ((OpProgram(Case(p.op, p.sample)), p.bound) for p in larger_problems())
    for program, bound in (*sample_programs, *larger_programs):
        if not program.is_static:
            continue
        for row in native.candidates(type(program.node.op)):
            emit = emitter_of(row.run)
            # Kernels with nested graphs consist of the code of other kernels.
            if emit is not None and not row.runs_nested and row.refusal(program.node) is None:
                hashed.append((row.name, emit, program.node, bound))
    return tuple(hashed)


def layout_of(node: Node, bound: Sequence[int]) -> Layout:
    """Return a layout with separate memory for each operand and result of a node."""
    places = (None if v is None else Place.dense(v.type) for v in node.operands)
    operands = (p and Place(p.type, p.strides, is_bound=i in bound) for i, p in enumerate(places))
    return Layout(tuple(operands), tuple(Place.dense(t) for t in node.types))


def hashes(isa: Isa) -> dict[str, str]:
    """Return kernel → hash of all code that it emits for an instruction set."""
    digests: dict[str, Any] = {}
    for kernel, emit, node, bound in problems():
        module = ir.Module("replay")
        emitted = emit(module, node, layout_of(node, bound), isa, "kernel")
        digests.setdefault(kernel, hashlib.sha256()).update(f"{module}\n{emitted!r}\n".encode())
    return {kernel: digest.hexdigest()[:DIGITS] for kernel, digest in digests.items()}


# ---------------------------------------------------------------------------------------- the table


def print_table(columns: Mapping[str, Mapping[str, str]]) -> str:
    """A line a kernel, a column an instruction set."""
    kernels = sorted(next(iter(columns.values())))
    wide = max(map(len, kernels))
    head = f"{'kernel':{wide}}  " + "  ".join(f"{name:{DIGITS}}" for name in columns)
    rows = (f"{kernel:{wide}}  " + "  ".join(column[kernel] for column in columns.values()) for kernel in kernels)
    return "\n".join(line.rstrip() for line in (head, *rows)) + "\n"


def read_table(text: str) -> dict[str, dict[str, str]]:
    """Return instruction set → kernel → printed hash."""
    (_, *names), *rows = (line.split() for line in text.splitlines())
    return {name: {kernel: digests[i] for kernel, *digests in rows} for i, name in enumerate(names)}


def differences(stored: Mapping[str, str], current: Mapping[str, str]) -> list[str]:
    """Return the kernels whose code has changed, or which have been added or removed."""
    return sorted(kernel for kernel in {*stored, *current} if stored.get(kernel) != current.get(kernel))


def main(arguments: Sequence[str]) -> int:
    """Write the table or compare with it."""
    if "--update" in arguments:
        TABLE.write_text(print_table({isa.name: hashes(isa) for isa in ISAS}), encoding="utf-8")
        return 0
    stored = read_table(TABLE.read_text(encoding="utf-8"))
    differing = [f"{kernel} for {isa.name}" for isa in ISAS for kernel in differences(stored[isa.name], hashes(isa))]
    print("\n".join(f"other code: {each}" for each in differing) or "the code is what it was")
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
