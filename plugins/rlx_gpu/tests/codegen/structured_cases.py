"""Orders, scans and attention to execute and to compile: every stage and walk, every kind of element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from plugins.rlx_gpu.tests.codegen.structured import SMALL, USUAL, Case
from rlx_core.codegen.attention_scores import PlacedAttention
from rlx_core.codegen.linear_systems import LinearSystems
from rlx_core.codegen.ordering import Extreme, Keys, Search, Sorting
from rlx_core.codegen.places import Layout, Place
from rlx_core.codegen.scalars.numpy_assembler import NumpyAssembler
from rlx_core.codegen.scans import ScanProblem
from rlx_core.ir.dtypes import DType, bf16, bool_, f16, f32, f64, i32, i64, u8, u64
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.ops.attention import Attention, AttentionBackward
from rlx_core.ops.cumulative import CumLogSumExp, Cummax, Cummin, Cumprod, Cumsum, LinearRecurrence
from rlx_core.ops.samples import Sample
from rlx_gpu.codegen.attention.backward import print_attention_backward
from rlx_gpu.codegen.attention.forward import print_attention
from rlx_gpu.codegen.linear_systems import print_systems
from rlx_gpu.codegen.lines.extremes import print_extreme
from rlx_gpu.codegen.lines.scans import print_scan
from rlx_gpu.codegen.lines.searching import print_search
from rlx_gpu.codegen.lines.sorting import print_sorting
from rlx_gpu.codegen.walks import Machine

__all__ = [
    "ATTENTIONS",
    "ATTENTIONS_SMALL",
    "BACKWARDS",
    "BACKWARDS_SMALL",
    "BACKWARDS_SMALLEST",
    "LITTLE",
    "ORDERS",
    "ORDERS_SMALL",
    "OVER_VALID_KEYS",
    "ROOMY",
    "SCANS",
    "SCANS_SMALL",
    "SYSTEMS",
    "SYSTEMS_SMALL",
    "UNIT_ATTENTIONS",
    "UNIT_ATTENTIONS_OF_F32",
    "UNIT_ATTENTIONS_SMALL",
    "UNIT_BACKWARDS",
    "UNIT_BACKWARDS_SMALL",
    "attention",
    "attention_of",
    "edges",
    "extreme",
    "order_of",
    "scan",
    "scan_of",
    "sorting",
]  # fmt: skip

Shape = tuple[int, int, int]

NARROW = Machine(group=16, most_groups=3)

LITTLE = Machine(shared_nbytes=4096)
"""Tiles of 16, of which each thread has one element: what PoCL compiles soonest."""

# ---------------------------------------------------------------------------------------- systems


def system(dtype: DType, stack: int, n: int, k: int, machine: Machine) -> Case:
    """Systems whose first pivots are 0 or small, and of a stack one that is singular."""
    rng, numpy = np.random.default_rng(7), dtype.numpy
    a = rng.uniform(-1, 1, (stack, n, n)) + 2 * np.roll(np.eye(n), 1, axis=0)
    a[:, 0, 0] = 0
    if stack > 1:
        a[1, -1] = a[1, 0]  # exactly: what is subtracted is what is there
    a, b = a.astype(numpy), rng.uniform(-1, 1, (stack, n, k)).astype(numpy)
    problem = LinearSystems(dtype, stack, n, k)
    expected = problem.run(a.astype(np.float64), b.astype(np.float64)).astype(numpy)
    if stack > 1:
        expected[1] = np.nan
    return Case(problem, print_systems, machine, (a, b), (expected,), 2e-5 if dtype is f32 else 1e-13)


SYSTEMS_SMALL = [system(f32, 2, 5, 2, SMALL), system(f32, 1, 1, 1, SMALL)]

SYSTEMS = [
    *(system(dtype, *sizes, SMALL) for dtype in (f32, f64) for sizes in ((5, 3, 2), (1, 19, 1), (2, 2, 9))),
    *(system(dtype, 3, 24, 5, USUAL) for dtype in (f32, f64)),
]

# ------------------------------------------------------------------------------------------ order


def tied(dtype: DType, shape: Shape) -> np.ndarray:
    """Few different numbers, so that many are tied; NaN, infinities and zeros of both signs among floats."""
    rng = np.random.default_rng(5)
    if dtype is bool_:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if not dtype.is_float:
        span = np.iinfo(dtype.numpy)
        return rng.choice(np.array([span.min, 0, 1, 2, 77, span.max - 1, span.max], dtype.numpy), shape)
    numbers = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -1.5, 3e-5, -3e-5], np.float64)
    return rng.choice(numbers, shape).astype(dtype.numpy)


def order_of(problem: Sorting | Extreme, machine: Machine) -> Case:
    x = tied(problem.keys.dtype, (problem.outer, problem.n, problem.inner))
    print_it = print_sorting if isinstance(problem, Sorting) else print_extreme
    return Case(problem, print_it, machine, (x,), problem.run(NumpyAssembler(), x))


def sorting(dtype: DType, shape: Shape, machine: Machine, *, kept: int | None = None, **facts: Any) -> Case:
    keys = Keys(dtype, facts.get("is_descending", False))
    index, has_values = facts.get("index", i64), facts.get("has_values", True)
    return order_of(Sorting(keys, *shape, shape[1] if kept is None else kept, index, has_values), machine)


def extreme(dtype: DType, shape: Shape, machine: Machine, *, is_max: bool = True, index: DType = i64) -> Case:
    return order_of(Extreme(Keys(dtype, is_max, nan_is_first=True), *shape, index), machine)


def search(dtype: DType, lines: int, n: int, count: int, *, is_right: bool = False) -> Case:
    problem = Search(Keys(dtype), lines, n, count, is_right, i64)
    x = np.sort(tied(dtype, (lines, n, 1)), axis=1)
    v = tied(dtype, (lines, count, 1))
    return Case(problem, print_search, USUAL, (x, v), problem.run(NumpyAssembler(), x, v))


ORDERS_SMALL = [
    sorting(f32, (3, 70, 1), SMALL),  # tiles, and merges by both pairs of workspaces
    sorting(f32, (2, 70, 2), SMALL, kept=3, is_descending=True, index=i32),  # the leading few of every tile
    extreme(f32, (3, 70, 1), SMALL),  # parts
]

ORDERS = [
    *(sorting(d, (2, 40, 1), SMALL, is_descending=d.itemsize % 4 == 0) for d in (bool_, u8, f16, bf16, f64, u64)),
    *(extreme(d, (2, 40, 1), SMALL, is_max=d.itemsize % 4 == 0) for d in (bool_, u8, f16, bf16, f64, u64, i64)),
    sorting(f32, (2, 70, 1), SMALL, kept=20, is_descending=True, has_values=False),  # more than half a tile
    sorting(f32, (2, 300, 1), SMALL, kept=2),
    sorting(f32, (40, 3, 1), USUAL),  # many lines in a group
    sorting(f32, (2, 1500, 1), USUAL),  # several elements a thread
    sorting(f32, (1, 5000, 1), USUAL, kept=10, is_descending=True),
    extreme(f32, (2, 7, 3), USUAL, is_max=False),  # a thread a line
    extreme(f32, (2, 700, 1), USUAL, is_max=False, index=i32),
    extreme(f64, (2, 60, 3), SMALL, is_max=False),
    search(f32, 1, 70, 300),
    search(f64, 3, 9, 4, is_right=True),
    search(i64, 2, 0, 4),
]

# ------------------------------------------------------------------------------------------ scans

_SCANNED = {f32: 4e-6, f64: 1e-13, f16: 2e-3, bf16: 1.6e-2}
"""Against f64: sums of 70 numbers of either sign in another order; narrow floats by one rounding."""


def scan_of(problem: ScanProblem, x: Sequence[np.ndarray], machine: Machine) -> Case:
    """A scan of `[outer, n, inner]` arrays, whose meaning is the op's, of floats in f64."""
    exclusive = {} if problem.op is LinearRecurrence else {"exclusive": problem.is_exclusive}
    op: Any = problem.op(axis=1, reverse=problem.is_reversed, **exclusive)
    shape = (problem.outer, problem.n, problem.inner)
    wide = [np.reshape(a, shape).astype(np.float64) if problem.dtype.is_float else np.reshape(a, shape) for a in x]
    with np.errstate(all="ignore"):
        expected = np.asarray(op.reference(*wide)).astype(problem.dtype.numpy)
    return Case(problem, print_scan, machine, x, (expected,), _SCANNED.get(problem.dtype))


def scan(op: type[Op], dtype: DType, shape: Shape, machine: Machine, **facts: bool) -> Case:
    problem = ScanProblem(op, dtype, *shape, facts.get("is_reversed", False), facts.get("is_exclusive", False))
    rng = np.random.default_rng(3)

    def numbers() -> np.ndarray:
        if not dtype.is_float:
            return rng.integers(0, 100, shape).astype(dtype.numpy)
        spread = rng.standard_normal(shape)
        return (np.sign(spread) * (0.8 + 0.3 * abs(spread)) if op is Cumprod else spread).astype(dtype.numpy)

    x = [numbers() for _ in range(2 if op is LinearRecurrence else 1)]
    if op is LinearRecurrence and dtype.is_float:
        x[0] = np.tanh(x[0])
        x[0][:, -1 if problem.is_reversed else 0] = np.nan  # the first factor is not read
    return scan_of(problem, x, machine)


SCANS_SMALL = [
    scan(Cumsum, f32, (3, 70, 1), SMALL, is_exclusive=True),  # parts, tiles, shares
    scan(CumLogSumExp, f32, (2, 70, 2), SMALL, is_reversed=True),
    scan(LinearRecurrence, f32, (2, 70, 1), SMALL),
]

SCANS = [
    *(scan(Cumsum, d, (2, 40, 1), SMALL, is_exclusive=d.itemsize == 4) for d in (u8, i32, i64, f16, bf16, f64)),
    *(scan(op, f32, (2, 70, 1), SMALL, is_exclusive=True, is_reversed=True) for op in (Cumprod, Cummax, Cummin)),
    *(scan(op, i64, (2, 70, 1), SMALL) for op in (Cumprod, Cummax, Cummin, LinearRecurrence)),
    scan(CumLogSumExp, f32, (2, 70, 1), SMALL, is_exclusive=True),
    scan(Cummax, u8, (2, 70, 1), SMALL, is_exclusive=True),
    scan(LinearRecurrence, f64, (1, 300, 1), SMALL, is_reversed=True),
    scan(LinearRecurrence, f32, (1, 300, 9), SMALL),  # a thread a line, in parts
    scan(Cumsum, f32, (2, 20, 3), USUAL),
    scan(Cumsum, f32, (2, 3000, 1), USUAL),  # several tiles
    scan(Cumsum, f32, (1, 20000, 1), USUAL),  # parts of them
]

# -------------------------------------------------------------------------------------- attention

_ATTENDED = {f32: 3e-6, f64: 1e-13, f16: 2e-3, bf16: 1.6e-2}
"""Against f64: sums of some 70 products of numbers near 1; narrow floats by one rounding."""


def attention_of(op: Any, sample: Sample, machine: Machine) -> Case:
    """Attention or its cotangents on the data of a sample, against their meaning in f64."""
    results = op.infer(*sample.types)
    places = [Place.dense(r) for r in ((results,) if isinstance(results, TensorType) else results)]
    operands = tuple(None if t is None else Place.dense(t) for t in sample.types)
    problem, x = PlacedAttention.of(op, Layout(operands, tuple(places))), sample.arrays(type(op))
    print_it = print_attention_backward if problem.is_backward else print_attention
    return Case(problem, print_it, machine, x, problem.run(*x), _ATTENDED[problem.problem.stored])


def attention(
    op: type[Op], machine: Machine, *types: str | None, ranges: dict[str, Any] | None = None, **attributes: Any
) -> Case:
    given = list(types)
    attributes = {"num_heads": 2, "head_dim": 20, **attributes}
    if op is AttentionBackward:
        given.insert(3, str(Attention(**attributes).infer(*Sample(*types).types)))  # type: ignore[arg-type]
    sample = Sample(*given, ranges=ranges, **attributes)
    return attention_of(op(**attributes), sample, machine)


def _small(op: type[Op], machine: Machine) -> list[Case]:
    """Grouped heads, a cap, and tiles of which some are not visited."""
    types = ("f32[1, 40, 40]", "f32[1, 45, 20]", "f32[1, 45, 18]")
    return [attention(op, machine, *types, num_kv_heads=1, mask_kind="causal", attn_logit_softcap=1.5)]


def edges(op: type[Op]) -> list[Case]:
    """Sizes of 0, and a bias that is one number."""
    return [
        attention(op, LITTLE, "f32[1, 3, 40]", "f32[1, 0, 40]", "f32[1, 0, 40]", mask_kind="causal"),
        attention(op, LITTLE, "f32[1, 3, 40]", "f32[1, 3, 40]", "f32[1, 3, 0]"),
        attention(op, LITTLE, *["f32[1, 3, 40]"] * 3, None, "f32[1]", mask_kind="bias"),
    ]


def _every(op: type[Op]) -> list[Case]:
    halves, shorts = ["f16[2, 2, 35, 20]"] * 3, ["bf16[2, 35, 2, 20]"] * 3
    return [
        *_small(op, USUAL),
        # More queries than keys: the first see none.
        attention(op, NARROW, "f32[1, 70, 40]", "f32[1, 40, 40]", "f32[1, 40, 40]", mask_kind="causal"),
        attention(op, NARROW, "f32[1, 70, 40]", *["f32[1, 40, 40]"] * 2, mask_kind="causal", empty_row="nan"),
        attention(op, NARROW, *["f32[1, 70, 40]"] * 3, mask_kind="sliding_window", window=9),
        attention(op, USUAL, *halves, "bool[2, 1, 1, 35]", layout="bhsd", mask_kind="custom"),
        attention(op, USUAL, *shorts, None, "bf16[2, 35, 35]", layout="bshd", mask_kind="bias"),
        attention(op, USUAL, *["f64[1, 35, 40]"] * 3, "f64[1, 35]", mask_kind="causal", empty_row="uniform"),
    ]  # fmt: skip


ATTENTIONS_SMALL, BACKWARDS_SMALL = (_small(op, LITTLE) for op in (Attention, AttentionBackward))
BACKWARDS_SMALLEST = [
    attention(
        AttentionBackward,
        LITTLE,
        "f32[1, 20, 8]",
        *["f32[1, 20, 4]"] * 2,
        head_dim=4,
        num_kv_heads=1,
        mask_kind="causal",
    )
]
"""Two heads on one of keys, a tile and a part of one: what PoCL compiles in three seconds."""


ROOMY = Machine(shared_nbytes=48 << 10)


def _on_units_small(op: type[Op]) -> list[Case]:
    """Heads that share keys, a cap, tiles that are not visited, copies of 16 bytes; then elements one by one, and a mask."""
    shared = ("bf16[1, 70, 64]", "bf16[1, 90, 32]", "bf16[1, 90, 32]")
    return [
        attention(op, ROOMY, *shared, num_kv_heads=1, head_dim=32, mask_kind="causal", attn_logit_softcap=1.5),
        attention(op, ROOMY, *["f16[2, 2, 35, 20]"] * 3, "bool[2, 1, 1, 35]", layout="bhsd", mask_kind="custom"),
    ]


def _on_units(op: type[Op]) -> list[Case]:
    """Every mask, layout and answer to a query that sees nothing; features and values of other sizes than a unit's."""
    wide, shorts = ("bf16[1, 130, 256]", "bf16[1, 150, 128]", "bf16[1, 150, 128]"), ["bf16[2, 35, 2, 20]"] * 3
    return [
        attention(op, ROOMY, *wide, head_dim=128, num_kv_heads=1, mask_kind="causal", attn_logit_softcap=20.0),
        attention(op, ROOMY, *["bf16[1, 70, 128]"] * 3, head_dim=64, mask_kind="causal", attn_logit_softcap=20.0),
        attention(op, ROOMY, *["f16[1, 80, 64]"] * 3, num_heads=1, head_dim=64, mask_kind="sliding_window", window=9),
        attention(op, ROOMY, *shorts, None, "bf16[2, 35, 35]", layout="bshd", mask_kind="bias"),
        attention(op, ROOMY, *["bf16[1, 35, 40]"] * 3, "bf16[1, 35]", mask_kind="causal", empty_row="uniform"),
        attention(op, ROOMY, "f16[1, 70, 40]", *["f16[1, 40, 40]"] * 2, mask_kind="causal", empty_row="nan"),
        attention(op, ROOMY, "bf16[1, 70, 40]", "bf16[1, 40, 40]", "bf16[1, 40, 36]", mask_kind="causal"),
    ]


UNIT_ATTENTIONS_SMALL, UNIT_BACKWARDS_SMALL = (_on_units_small(op) for op in (Attention, AttentionBackward))
UNIT_ATTENTIONS, UNIT_BACKWARDS = (_on_units(op) for op in (Attention, AttentionBackward))


def _on_units_of_f32(op: type[Op]) -> list[Case]:
    """The same where units multiply f32, too: so wide that a tile has few keys, and fewer queries than a group has."""
    return [
        attention(
            op, ROOMY, "f32[1, 35, 40]", "f32[1, 70, 40]", "f32[1, 70, 36]", mask_kind="causal", attn_logit_softcap=1.5
        ),
        attention(op, ROOMY, *["f32[2, 9, 2, 20]"] * 3, None, "f32[2, 9, 9]", layout="bshd", mask_kind="bias"),
        attention(
            op,
            ROOMY,
            *["f32[1, 35, 48]"] * 3,
            "f32[1, 35]",
            num_heads=1,
            head_dim=48,
            mask_kind="causal",
            empty_row="uniform",
        ),
        attention(
            op, ROOMY, "f32[1, 40, 256]", *["f32[1, 50, 128]"] * 2, head_dim=128, num_kv_heads=1, mask_kind="causal"
        ),
    ]


UNIT_ATTENTIONS_OF_F32, UNIT_BACKWARDS_OF_F32 = (_on_units_of_f32(op) for op in (Attention, AttentionBackward))

OVER_VALID_KEYS = [
    attention(Attention, USUAL, *types, length, ranges={"lengths": between}, **more)
    for types in (("f32[3, 5, 40]", "f32[3, 45, 40]", "f32[3, 45, 40]", None, None),)
    for length, between, more in (
        ("i64[3]", (-3, 50), {"mask_kind": "causal"}),
        ("i64[]", (9, 40), {}),
        ("i64[3]", (2, 45), {"mask_kind": "sliding_window", "window": 7}),
        ("i64[3]", (-30, 9), {"empty_row": "uniform"}),
    )
]
"""Numbers of valid keys that are read at run time, for each entry of the batch and for all."""

ATTENTIONS, BACKWARDS = (_every(op) for op in (Attention, AttentionBackward))
