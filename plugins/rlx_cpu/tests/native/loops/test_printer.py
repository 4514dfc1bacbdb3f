"""Loop kernels by dtype and form, on every instruction set: narrow floats, integers, transposes, cut reductions, NEON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from harness import WIDTHS, kernel
from llvmlite import binding as llvm

import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core.codegen.places import Layout, Place
from rlx_core.ir.dtypes import ALL, INTEGERS, DType, bool_, dtype
from rlx_core.ir.graph import Builder
from rlx_core.ir.interpret import interpret
from rlx_core.ops import activation, arithmetic, bitwise, reduction, standard_ops, trigonometry
from rlx_core.ops.conversion import Cast, cast
from rlx_core.ops.normalization import LayerNorm
from rlx_core.ops.softmax import Softmax
from rlx_core.ops.structural import Sum, Transpose
from rlx_core.plugins import PluginHost
from rlx_core.testing.cases import programs
from rlx_cpu.native.llvm.isa import ISAS
from rlx_cpu.native.llvm.optimise import new_module
from rlx_cpu.native.loops.rows import emit_loop
from rlx_cpu.native.table import native

HOST = PluginHost([rlx_cpu.plugin])
SETS = list(WIDTHS)
NAMES = [i.name for i in SETS]


def tier(function: Callable[..., Any], *x: np.ndarray, **options: Any) -> np.ndarray:
    made = rlx.jit(function, host=HOST, target="cpu", config={"options": options})
    return np.asarray(made(*x))


def by_reference(op: Any, *x: np.ndarray) -> np.ndarray:
    """What the interpreter says in the declared dtypes."""
    builder = Builder()
    names = [f"x{i}" for i in range(len(x))]
    types = [Place.dense(rlx.spec(f"{dtype(a.dtype)}[{len(a)}]")).type for a in x]
    graph = builder.finish(builder.emit(op, [builder.input(n, t) for n, t in zip(names, types, strict=True)]))
    return interpret(graph, dict(zip(names, x, strict=True)))[0]


# ------------------------------------------------------------------------------------ narrow floats


@pytest.mark.parametrize("isa", NAMES)
@pytest.mark.parametrize("narrow", ["f16", "bf16"])
def test_narrow_floats_are_widened_exactly_and_rounded_to_the_nearest(narrow: str, isa: str) -> None:
    kind, options = dtype(narrow).numpy, {"cpu.isa": isa}
    every = np.arange(1 << 16, dtype=np.uint16).view(kind)
    single, small = dtype("f32"), dtype(narrow)
    np.testing.assert_array_equal(tier(lambda v: cast(v, to=single), every, **options), every.astype("f4"))

    rng = np.random.default_rng(0)
    # Every number of the narrow dtype, what is just below it, and halfway to the next: ties.
    numbers = every[~np.isnan(every.astype("f4"))].astype("f4")
    beside = np.concatenate([numbers, np.nextafter(numbers, np.float32(0)), numbers[1:] / 2 + numbers[:-1] / 2])
    anything = rng.integers(0, 1 << 32, 200_000, dtype=np.uint32).view("f4")
    around_the_end = np.array([65504, 65519.996, 65520, 6.1e-5, 2.98e-8, 2.9802322e-8, 3e-8, -0.0, 1e-45], "f4")
    x = np.concatenate([beside, anything, around_the_end])
    with np.errstate(all="ignore"):
        wanted = x.astype(kind).astype("f4")
    stored = tier(lambda v: cast(v, to=small), x, **options).astype("f4")
    kept = tier(lambda v: cast(cast(v, to=small), to=single) * 1.0, x, **options)
    for found in (stored, kept):
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(np.signbit(found[~np.isnan(found)]), np.signbit(wanted[~np.isnan(wanted)]))


@pytest.mark.parametrize("narrow", ["f16", "bf16"])
def test_sums_of_narrow_floats_are_held_in_f32(narrow: str) -> None:
    # In f16 a sum of ones stops at 2048, in bf16 at 256.
    x = np.ones((3, 4096), dtype(narrow).numpy)

    np.testing.assert_array_equal(tier(lambda v: rlx.sum(v, axis=1), x).astype("f4"), [4096.0] * 3)


# ----------------------------------------------------------------------------------------- integers

BINARY = (
    *(arithmetic.floor_divide, arithmetic.remainder, arithmetic.pow, arithmetic.add, arithmetic.multiply),
    *(arithmetic.maximum, arithmetic.minimum, bitwise.bitwise_left_shift, bitwise.bitwise_right_shift),
)


@pytest.mark.parametrize("isa", SETS, ids=NAMES)
@pytest.mark.parametrize("kind", INTEGERS, ids=str)
@pytest.mark.parametrize("function", BINARY, ids=lambda f: f.op.name)
def test_integers_wrap_and_divide_as_the_reference_does(function: Any, kind: Any, isa: Any) -> None:
    limits = np.iinfo(kind.numpy)
    edges = np.array(
        [0, 1, 2, 3, 7, limits.max, limits.max - 1, limits.min, limits.min + 1, limits.max // 3], kind.numpy
    )
    edges = np.concatenate([edges, (~edges[:4]).astype(kind.numpy)])
    x, y = np.repeat(edges, len(edges)), np.tile(edges, len(edges))

    (found,) = kernel(emit_loop, function.op(), [x, y], isa)(x, y)
    np.testing.assert_array_equal(found, by_reference(function.op(), x, y))


@pytest.mark.parametrize("isa", NAMES)
@pytest.mark.parametrize("to", [bool_, *INTEGERS], ids=str)
@pytest.mark.parametrize("source", ["f2", "f4", "f8"])
def test_floats_become_integers_truncated_and_saturated(source: str, to: Any, isa: str) -> None:
    x = np.array(
        [0, -0.0, 0.9, -0.9, 1.5, -1.5, 127.5, 128, -129, 255.9, 256, 3e4, -4e4, np.inf, -np.inf, np.nan] * 3, source
    )
    if source != "f2":
        x = np.concatenate(
            [x, np.array([2.0**31, -(2.0**31), 2.0**32, 2.0**63, -(2.0**63), 2.0**64, 1e30, -1e30], source)]
        )

    np.testing.assert_array_equal(tier(lambda v: cast(v, to=to), x, **{"cpu.isa": isa}), by_reference(Cast(to), x))


# ------------------------------------------------------------------------------------- float quotients


@pytest.mark.parametrize("source", ["f4", "f8"])
@pytest.mark.parametrize("function", [arithmetic.floor_divide, arithmetic.remainder], ids=lambda f: f.op.name)
def test_float_quotients_are_pythons(function: Any, source: str) -> None:
    edges = np.array([0.0, -0.0, 1, -1, 0.1, -0.3, 7, -7, 1e10, np.inf, -np.inf, np.nan, 3.5, -2.5], source)
    x, y = np.repeat(edges, len(edges)), np.tile(edges, len(edges))
    found = tier(lambda a, b: function(a, b), x, y)
    with np.errstate(all="ignore"):
        wanted = by_reference(function.op(), x, y)

    np.testing.assert_array_equal(found, wanted)
    zeros = wanted == 0
    np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(wanted[zeros]))


# ----------------------------------------------------------------------------------------- transposes


@pytest.mark.parametrize("isa", SETS, ids=NAMES)
@pytest.mark.parametrize("kind", ["f4", "f8", "u1", "f2", "i8", "?"])
def test_a_transpose_moves_every_element_whatever_the_edges(kind: str, isa: Any) -> None:
    rng = np.random.default_rng(1)
    for shape in ((8, 8), (64, 64), (65, 67), (16, 200), (200, 17), (9, 300)):
        x = (rng.standard_normal(shape) * 50).astype(kind)
        (found,) = kernel(emit_loop, Transpose((1, 0)), [x], isa)(x)
        np.testing.assert_array_equal(found, x.T)


def test_a_transposed_operand_is_read_beside_a_straight_one() -> None:
    x = np.random.default_rng(2).standard_normal((3, 40, 5, 70)).astype("f4")
    for perm in ((0, 3, 2, 1), (3, 1, 2, 0), (2, 1, 0, 3), (1, 3, 0, 2)):
        straight = np.ascontiguousarray(x.transpose(perm))
        found = tier(lambda v, w, perm=perm: rlx.permute_dims(v, perm) * 2.0 + w, x, straight)
        np.testing.assert_array_equal(found, x.transpose(perm) * 2 + straight)


# ------------------------------------------------------------------------------------ cut reductions

REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "sum of all": lambda v: rlx.sum(v),
    "largest of all": lambda v: rlx.max(v),
    "mean of squares": lambda v: rlx.mean(v * v),
    "sum of rows": lambda v: rlx.sum(v, axis=1),
    "sum of columns": lambda v: rlx.sum(v, axis=0),
}


@pytest.mark.parametrize("isa", NAMES)
@pytest.mark.parametrize("form", REDUCTIONS)
@pytest.mark.parametrize("shape", [(3, 100_003), (100_003, 3), (5001, 40), (301, 1303), (64, 1500)], ids=str)
def test_a_cut_reduction_is_right_and_the_same_for_any_number_of_threads(
    shape: tuple[int, ...], form: str, isa: str
) -> None:
    x = np.random.default_rng(3).standard_normal(shape).astype("f4")
    alone = tier(REDUCTIONS[form], x, **{"cpu.isa": isa, "cpu.threads": 1})
    for threads in (2, 3):
        np.testing.assert_array_equal(tier(REDUCTIONS[form], x, **{"cpu.isa": isa, "cpu.threads": threads}), alone)
    exact = tier(REDUCTIONS[form], x.astype("f8"), **{"cpu.tier": "numpy"})
    # A chain of at most a few thousand additions a lane, each half an ulp of a sum of n normal numbers at most.
    np.testing.assert_allclose(alone, exact, rtol=1e-5, atol=1e-6 * x.size)


def test_a_long_sum_is_cut_into_a_prologue() -> None:
    x = np.ones((1 << 18,), "f4")
    made = kernel(emit_loop, Sum((0,)), [x], SETS[0])

    assert made.emitted.prologue is not None
    assert made(x, threads=5)[0] == 1 << 18


@pytest.mark.parametrize(
    ("op", "rows", "asks"),
    [
        (activation.exp.op(), 64, False),
        (activation.exp.op(), 8192, True),
        (Sum((1,)), 8192, True),
        (Sum((0,)), 8192, False),  # lanes lie along the rows: memory is not walked front to back
    ],
)
def test_what_is_far_is_asked_for_before_it_is_read(op: Any, rows: int, asks: bool) -> None:
    made = kernel(emit_loop, op, [np.ones((rows, 64), "f4")], SETS[0])

    assert ("llvm.prefetch" in str(made.module)) == asks


# ------------------------------------------------------------------------------------------------ NEON

OPS = {
    "exp": (activation.exp.op(), ["f32[1000]"]),
    "gelu": (activation.gelu.op(), ["f32[1000]"]),
    "tanh in f64": (activation.tanh.op(), ["f64[1000]"]),
    "sin": (trigonometry.sin.op(), ["f32[1000]"]),
    "pow": (arithmetic.pow.op(), ["f64[1000]", "f64[1000]"]),
    "quotient": (arithmetic.floor_divide.op(), ["i32[1000]", "i32[1000]"]),
    "half": (activation.exp.op(), ["f16[1000]"]),
    "bfloat": (arithmetic.add.op(), ["bf16[1000]", "bf16[1000]"]),
    "transpose": (Transpose((1, 0)), ["u8[200, 300]"]),
    "sum": (Sum((0,)), ["f32[400, 300]"]),
    "largest": (reduction.Max((1,)), ["f16[40, 300]"]),
    "softmax": (Softmax(-1), ["f32[40, 300]"]),
    "norm": (LayerNorm(), ["f32[40, 300]", "f32[300]", "f32[300]"]),
}


@pytest.mark.parametrize("name", OPS)
def test_neon_code_of_a_loop_is_made_on_any_machine(name: str) -> None:
    op, specs = OPS[name]
    neon = next(i for i in ISAS if i.name == "neon")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    builder = Builder()
    types = [Place.dense(rlx.spec(s)).type for s in specs]
    node = builder.emit(op, [builder.input(f"x{i}", t) for i, t in enumerate(types)])[0].node
    layout = Layout(tuple(Place.dense(t) for t in types), tuple(Place.dense(t) for t in node.types))
    module = new_module("neon")
    module.triple = "aarch64-unknown-linux-gnu"
    emit_loop(module, node, layout, neon, "loop")
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    machine = llvm.Target.from_triple(module.triple).create_target_machine(features="+neon", opt=3)

    assert "ret" in machine.emit_assembly(parsed)


# -------------------------------------------------------------------------------------------- coverage

NOT_NATIVE = {
    "stop_gradient",  # is gone before a program is planned
    *(
        "complex_abs",
        "angle",
        "imag",
        "make_complex",
        "complex_norm_sq",
        "conjugate",
        "real",
    ),  # complex values are not loops
}
"""Element-wise primitives without native code for real dtypes."""


def test_every_real_elementwise_primitive_is_native_in_every_dtype_it_takes() -> None:
    elementwise = tuple(op for op in standard_ops() if op.category == "elementwise")
    accepted: dict[tuple[str, DType], bool] = {}
    for program in programs(elementwise):
        node = program.node
        if program.is_static and node.op.decompose is None:
            key = node.op.name.removeprefix("rlx."), next((v.dtype for v in node.present()), node.types[0].dtype)
            takes = any(row.refusal(node) is None for row in native.candidates(type(node.op)))
            accepted[key] = accepted.get(key, False) or takes
    lacking = {name for (name, dtype), takes in accepted.items() if not (takes or dtype.is_complex)}

    assert lacking <= NOT_NATIVE | {"cast"}, "new ops have code, or a reason here"
    assert {dtype for (_, dtype), takes in accepted.items() if takes} >= {d for d in ALL if not d.is_complex}
