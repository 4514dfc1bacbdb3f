"""Mixed precision: which operations are converted, what they compute, and what the report says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve

import rlx_core as rlx
from rlx_core import nn, optim, quantization
from rlx_core.errors import ConfigError
from rlx_core.ir.dtypes import DType, bf16, f16, f32
from rlx_core.ir.graph import Graph, Value
from rlx_core.ir.interpret import interpret
from rlx_core.ir.verify import IrStage, check
from rlx_core.ops.attention import attention as attention_op
from rlx_core.ops.convolution.conv import conv
from rlx_core.ops.linalg import mat_mul
from rlx_core.passes.base import Context, Conversion
from rlx_core.passes.mixed_precision import MixedPrecision
from rlx_core.pipeline.targets import find_target
from rlx_core.plugins import default_host
from rlx_core.testing.compositions import generated, single_ops
from rlx_core.testing.yardstick import Noise, largest, precision

from .programs import program, run

FORCED = {"precision.force": True, "cache.disk": False}
NARROW = pytest.mark.parametrize("narrow", [bf16, f16], ids=str)


def numbers(*shape: int, seed: int = 0, size: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * size).astype(np.float32)


def converted(graph: Graph, narrow: DType = bf16, **options: Any) -> tuple[Graph, tuple[Conversion, ...]]:
    result = run(MixedPrecision(**{"dtype": narrow.name, "force": True, **options}), graph)
    return result.graph, tuple(result.conversions)


def tolerances(graph: Graph, fed: Mapping[str, np.ndarray], narrow: DType) -> list[np.ndarray | None]:
    """Errors of results where every input, and every result of a node, is off by a rounding of the narrow dtype.

    These are float64 evaluations of the program, so that only the perturbations differ; as in `yardstick`, the largest of
    three is multiplied by 8, because a converted program rounds elsewhere too. Subnormal numbers of f16 have an absolute error.
    """
    rng, unit = np.random.default_rng(0), precision(narrow)
    times = unit / precision(f32)
    exact = interpret(graph, fed, mode="wide")
    errors = np.zeros(len(exact))
    for _ in range(3):
        off = {n: a * (1 + unit * rng.uniform(-1, 1, a.shape)) if a.dtype == np.float32 else a for n, a in fed.items()}
        wide = {n: a.astype(np.float32) if fed[n].dtype == np.float32 else a for n, a in off.items()}
        noisy = interpret(graph, wide, mode="wide", rounded=Noise(rng, times))
        for i, (a, b, value) in enumerate(zip(noisy, exact, graph.outputs, strict=True)):
            if value.dtype.is_differentiable:
                with np.errstate(invalid="ignore"):
                    error = np.abs(a.astype(b.dtype) - b)
                errors[i] = max(errors[i], largest(error))
    tiny = 2.0**-24 if narrow is f16 else 0
    return [
        8 * (error + unit * np.abs(e) + tiny) if v.dtype.is_differentiable else None
        for error, e, v in zip(errors, exact, graph.outputs, strict=True)
    ]


# ------------------------------------------------------------------------------------------------ categories


def product(x: Any, w: Any) -> Any:
    return mat_mul(x, w)


def convolved(x: Any, w: Any) -> Any:
    return conv(x, w, stride=(1,), dilation=(1,), lo=(0,), hi=(0,))


SQUARE = {"x": "f32[8, 8]", "w": "f32[8, 8]"}

CATEGORIES: dict[str, tuple[Callable[..., Any], dict[str, str], str]] = {
    "the sums of a product are its result": (product, SQUARE, "cast cast matmul:f32"),
    "a result that a product reads is narrow": (
        lambda x, w: product(product(x, w), w), SQUARE, "cast cast matmul:bf16 matmul:f32",
    ),
    "element-wise between products": (
        lambda x, w: product(rlx.tanh(product(x, w)), w), SQUARE, "cast cast matmul:bf16 tanh:bf16 matmul:f32",
    ),
    "element-wise behind the last product": (
        lambda x, w: rlx.tanh(product(x, w)), SQUARE, "cast cast matmul:f32 tanh:f32",
    ),
    "a sum with a value in f32": (
        lambda x, w: product(x + product(x, w), w), SQUARE, "cast cast matmul:f32 add:f32 cast matmul:f32",
    ),
    "an exponential": (
        lambda x, w: product(rlx.exp(product(x, w)), w), SQUARE, "cast cast matmul:f32 exp:f32 cast matmul:f32",
    ),
    "a softmax": (
        lambda x, w: product(rlx.softmax(product(x, w)), w), SQUARE, "cast cast matmul:f32 softmax:f32 cast matmul:f32",
    ),
    "a norm": (
        lambda x, w: product(rlx.layer_norm(product(x, w)), w), SQUARE,
        "cast cast matmul:f32 layer_norm:f32 cast matmul:f32",
    ),
    "a sum of elements": (
        lambda x, w: product(product(x, w) - rlx.sum(product(x, w)), w), SQUARE,
        "cast cast matmul:f32 matmul:f32 sum:f32 sub:f32 cast matmul:f32",
    ),
    "a cumulative sum": (
        lambda x, w: product(rlx.cumulative_sum(product(x, w), axis=0), w), SQUARE,
        "cast cast matmul:f32 cumsum:f32 cast matmul:f32",
    ),
    "movement between products": (
        lambda x, w: product(rlx.concat([product(x, w)[:4], product(x, w)[4:]], axis=0), w), SQUARE,
        "cast cast matmul:bf16 narrow:bf16 matmul:bf16 narrow:bf16 concat:bf16 matmul:f32",
    ),
    "values are cast before they are transposed": (
        lambda x, w: (product(x, w), product(x, w.T)), SQUARE, "cast cast matmul:f32 transpose:bf16 matmul:f32",
    ),
    "a number between products": (
        lambda x, w: product(product(x, w) * 0.5, w), SQUARE, "cast cast matmul:bf16 cast mul:bf16 matmul:f32",
    ),
    "a convolution": (
        lambda x, w: rlx.relu(convolved(convolved(x, w), w)),
        {"x": "f32[2, 4, 8]", "w": "f32[4, 4, 2]"}, "cast cast conv:bf16 conv:bf16 cast relu:f32",
    ),
    "attention, with its bias in f32": (
        lambda q, b: attention_op(q, q, q, None, b, num_heads=2, head_dim=4, mask_kind="bias"),
        {"q": "f32[1, 3, 8]", "b": "f32[3, 3]"}, "cast attention:bf16 cast",
    ),
    "integers, booleans and f64": (
        lambda i, b, d: (i @ i, rlx.where(b, d, d) @ d), {"i": "i32[2, 2]", "b": "bool[2, 2]", "d": "f64[2, 2]"},
        "matmul:i32 where:f64 matmul:f64",
    ),
    "narrow programs": (product, {"x": "f16[2, 2]", "w": "f16[2, 2]"}, "matmul:f16"),
}  # fmt: skip


def listed(graph: Graph) -> str:
    nodes = [n for n in graph.nodes if not n.is_leaf]
    names = [n.op.name.removeprefix("rlx.") for n in nodes]
    return " ".join(
        name if name == "cast" else f"{name}:{n.types[0].dtype}" for name, n in zip(names, nodes, strict=True)
    )


def needed(graph: Graph) -> Graph:
    from rlx_core.passes.dead_code import DeadCode

    return run(DeadCode(), graph).graph


@pytest.mark.parametrize("name", CATEGORIES)
def test_the_category_of_an_op_determines_its_dtype(name: str) -> None:
    make, types, expected = CATEGORIES[name]
    before = program(make, **types)
    after = needed(converted(before)[0])
    assert listed(after) == expected
    assert [v.type for v in after.outputs] == [v.type for v in before.outputs]
    assert dict(after.input_types) == dict(before.input_types)


def test_a_number_that_f16_does_not_have_keeps_its_op_in_f32() -> None:
    """1e-12 is 0 in f16, and -1e9 is an infinity."""
    for number in (1e-12, -1e9):
        before = program(lambda x, w, c=number: product(product(x, w) + c, w), **SQUARE)
        assert "add:f32" in listed(converted(before, f16)[0])
        assert "add:bf16" in listed(converted(before, bf16)[0])


def test_the_update_of_a_weight_is_in_f32() -> None:
    """The square of a gradient, which would underflow in f16, is computed from f32."""

    def step(w: Value, x: Value) -> Value:
        g = product(x.T, product(x, w))
        return w - 0.1 * g / (rlx.sqrt(g * g) + 1e-8)

    after = needed(converted(program(step, w="f32[8, 8]", x="f32[8, 8]"), f16)[0])
    assert [n.types[0].dtype for n in after.nodes if n.op.name in ("rlx.mul", "rlx.div", "rlx.sqrt", "rlx.sub")] == [
        f32
    ] * 5


def test_a_weight_is_cast_once_for_both_directions() -> None:
    def loss(w: Value, x: Value) -> Value:
        return rlx.sum(rlx.tanh(x @ w) @ w)

    compiled = rlx.jit(rlx.grad(loss), precision="bf16", config=FORCED)
    compiled(numbers(8, 8), numbers(4, 8))
    mir = compiled.executables[0].emit("mir")
    assert mir.count("cast(%w, to=bf16)") == 1
    assert all(entry.reason is None for entry in compiled.report.conversions)
    assert len(compiled.report.conversions) == 4, "one forward, and one for each operand of the others"


def test_indices_keep_every_bit() -> None:
    """bf16 has 8 bits and f16 ends at 65504: indices between products that went through either would name other rows."""
    table, ids = numbers(70_000, 4), np.int32([2049, 65_537, 69_999])
    f = lambda table, ids, w: rlx.take(table, ids, axis=0) @ w  # noqa: E731
    w = np.eye(4, dtype=np.float32)
    for narrow in (bf16, f16):
        result = np.asarray(rlx.jit(f, precision=narrow.name, config=FORCED)(table, ids, w))
        np.testing.assert_array_equal(result, table[ids].astype(narrow.numpy).astype(np.float32))


def test_codes_of_quantised_weights_stay() -> None:
    weight = quantization.quantize(numbers(256, 256), "int8")
    compiled = rlx.compile(
        lambda p, x: x @ p.dequantize().T, weight, rlx.spec("f32[4, 256]"), precision="bf16", config=FORCED
    )
    reasons = [entry.reason for entry in compiled.report.conversions]
    assert reasons == ["its weight is computed from narrower numbers"]


# -------------------------------------------------------------------------------------------------- numbers


@NARROW
def test_a_product_is_within_the_bound_of_its_roundings(narrow: DType) -> None:
    """Both factors are rounded to nearest, (1 + u)² ≈ 1 + 2u with u = precision / 2; f32 sums of 96 terms add 96·2^-24."""
    x, w = numbers(16, 96), numbers(96, 32, seed=1)
    compiled = rlx.compile(lambda w, x: x @ w, w, rlx.spec("f32[n, 96]"), precision=narrow.name, config=FORCED)
    u = precision(narrow) / 2
    exact = x.astype(np.float64) @ w
    bound = (2 * u + u * u + 96 * 2.0**-23) * (np.abs(x).astype(np.float64) @ np.abs(w))
    error = np.abs(np.asarray(compiled(x)) - exact)
    assert (error <= bound).all()
    assert (error > 0.01 * bound).any(), "the factors are rounded"
    a, b = (v.astype(narrow.numpy).astype(np.float64) for v in (x, w))
    sums = np.abs(a) @ np.abs(b) * 96 * 2.0**-23
    assert (np.abs(np.asarray(compiled(x)) - a @ b) <= sums).all(), "sums are in f32, and nothing else is rounded"


@NARROW
@pytest.mark.medium
def test_gradients_are_within_the_roundings_of_the_program(narrow: DType) -> None:
    def loss(w: Value, v: Value, x: Value) -> Value:
        return rlx.sum(rlx.softmax(rlx.gelu(x @ w) @ v) ** 2)

    w, v, x = numbers(12, 24, size=0.3), numbers(24, 6, seed=1, size=0.3), numbers(5, 12, seed=2)
    graph = rlx.trace(rlx.grad(loss, argnums=(0, 1, 2)), *(rlx.spec(f"f32{list(a.shape)}") for a in (w, v, x)))
    fed = dict(zip(graph.input_types, (w, v, x), strict=True))
    allowed = tolerances(graph, fed, narrow)
    exact = interpret(graph, fed, mode="wide")
    results = rlx.jit(rlx.grad(loss, argnums=(0, 1, 2)), precision=narrow.name, config=FORCED)(w, v, x)
    for a, b, tolerance in zip(results, exact, allowed, strict=True):
        assert a.dtype == np.float32
        assert (np.abs(np.asarray(a) - b) <= tolerance).all()

    # The directional derivative by a difference quotient of the f32 loss in f64, whose error is far below a narrow rounding.
    direction, h = numbers(12, 24, seed=3), 1e-4
    value = rlx.trace(loss, *(rlx.spec(f"f32{list(a.shape)}") for a in (w, v, x)))
    up, down = (interpret(value, {**fed, "w": w + np.float32(s * h) * direction}, mode="wide")[0] for s in (1, -1))
    slope = float(np.sum(np.asarray(results[0], np.float64) * direction))
    assert abs(slope - (up - down) / (2 * h)) <= float(np.sum(np.abs(direction) * allowed[0])) + 1e-3 * abs(slope)


@NARROW
@pytest.mark.medium
def test_programs_of_standard_ops_keep_signatures_and_values(narrow: DType) -> None:
    """The laws of passes, with the roundings of the narrow dtype in place of those of f32."""
    tried = 0
    for name, before, fed in (*single_ops(), *generated()):
        after = MixedPrecision(dtype=narrow.name, force=True).run(before, Context()).graph
        if after is before:
            continue
        tried += 1
        check(after, IrStage.HIR, after=name)
        assert [v.type for v in after.outputs] == [v.type for v in before.outputs], name
        assert dict(after.input_types) == dict(before.input_types), name
        for a, b, tolerance in zip(
            interpret(after, fed), interpret(before, fed, mode="wide"), tolerances(before, fed, narrow), strict=True
        ):
            if tolerance is not None:
                with np.errstate(invalid="ignore"):
                    is_near = (np.abs(a.astype(b.dtype) - b) <= tolerance) | (a == b) | ~np.isfinite(b)
                assert is_near.all(), (name, a, b)
    assert tried >= 20


def test_a_batch_of_sizes_is_one_program() -> None:
    compiled = rlx.compile(
        lambda w, x: rlx.tanh(x @ w) @ w, numbers(16, 16), rlx.spec("f32[n, 16]"), precision="bf16", config=FORCED
    )
    whole = np.asarray(compiled(numbers(7, 16)))
    np.testing.assert_array_equal(np.asarray(compiled(numbers(7, 16)[:3])), whole[:3])


# ---------------------------------------------------------------------------------------------------- report


def mlp(params: Mapping[str, Any], x: Any) -> Any:
    return nn.linear(nn.linear(x, params["w"], params["b"], activation="relu"), params["v"])


PARAMS = {"w": numbers(64, 80), "b": numbers(80, seed=1), "v": numbers(80, 3, seed=2)}


def test_the_report_lists_operations_with_the_bytes_of_their_weights() -> None:
    compiled = rlx.compile(mlp, PARAMS, rlx.spec("f32[n, 64]"), precision="bf16", config=FORCED)
    first, second = compiled.report.conversions
    assert (first.before, first.after, first.reason) == (4 * (64 * 80 + 80), 2 * (64 * 80 + 80), None)
    assert (second.before, second.after) == (4 * 80 * 3, 2 * 80 * 3)
    assert "rlx.mixed-precision converted" in str(compiled.report)
    assert "params.w" in str(first)
    mir = compiled.emit("mir")
    assert "cast(%prepared" not in mir, "weights are cast when they are bound"
    assert "bf16[64, 80]" in mir


@pytest.mark.parametrize("policy", ["bf16", "f16"])
def test_a_target_that_is_slower_keeps_f32_and_reports_it(policy: str) -> None:
    """The NumPy tier has no fast products: the program is the one of f32, bit for bit."""
    config = {"cache.disk": False, "options": {"cpu.tier": "numpy"}}
    x = numbers(5, 64)
    plain = rlx.compile(mlp, PARAMS, rlx.spec("f32[n, 64]"), config=config, target="cpu")
    kept = rlx.compile(mlp, PARAMS, rlx.spec("f32[n, 64]"), precision=policy, config=config, target="cpu")
    np.testing.assert_array_equal(np.asarray(kept(x)), np.asarray(plain(x)))
    assert kept.emit("mir") == plain.emit("mir")
    assert {entry.reason for entry in kept.report.conversions} == {f"cpu multiplies f32 faster than {policy}"}
    assert "rlx.mixed-precision kept" in str(kept.report)


def test_a_target_with_fast_products_converts_what_it_has_kernels_for() -> None:
    _, backend, _ = find_target(default_host(), "cpu")
    target = evolve(backend.target_for({"cpu.tier": "numpy"}), fast_products=(bf16,))
    before = program(product, params={"w": "f32[64, 64]"}, x="f32[1, 64]")
    after = MixedPrecision().run(before, Context(target))
    assert [entry.reason for entry in after.conversions] == [None]
    for m, n, is_bound in ((1, 64, False), (64, 63, True)):  # a cast in every run, and few columns
        types = {"x": f"f32[{m}, 64]", "w": f"f32[64, {n}]"}
        params = {"w": types.pop("w")} if is_bound else {}
        small = program(product, params=params, **types)
        assert [e.reason for e in MixedPrecision().run(small, Context(target)).conversions] == ["it is small"]
    (kept,) = MixedPrecision(dtype="f16").run(before, Context(target)).conversions
    assert kept.reason == "cpu multiplies f32 faster than f16"
    decomposed = program(CATEGORIES["a convolution"][0], x="f32[2, 4, 8]", w="f32[4, 4, 2]")
    reasons = {entry.reason for entry in MixedPrecision().run(decomposed, Context(target)).conversions}
    accepts = target.kernels.claims(conv.op)
    assert accepts == (reasons == {None})


def test_without_a_target_operations_are_kept() -> None:
    before = program(product, **SQUARE)
    result = run(MixedPrecision(), before)
    assert result.graph is before
    assert [entry.reason for entry in result.conversions] == ["no target is known to multiply bf16 faster than f32"]


def test_ops_that_the_configuration_keeps() -> None:
    before = program(lambda x, w: rlx.tanh(product(x, w)) @ w, **SQUARE)
    after, entries = converted(before, keep=("matmul",))
    assert after is before
    assert {entry.reason for entry in entries} == {"the configuration keeps it in f32"}
    assert "tanh:f32" in listed(converted(before, keep=("rlx.ta*",))[0])


def test_bodies_of_loops_are_converted() -> None:
    def chain(w: Any, x: Any) -> Any:
        return rlx.scan(lambda c, each: (rlx.tanh(c @ each), None), x, w)[0]

    w, x = numbers(3, 16, 16, size=0.3), numbers(4, 16)
    narrow = rlx.jit(chain, precision="bf16", config=FORCED)
    result = np.asarray(narrow(w, x))
    assert [entry.reason for entry in narrow.report.conversions] == [None]
    difference = np.abs(result - np.asarray(rlx.jit(chain)(w, x))).max()
    assert 0 < difference < 3 * 16 * 2**-8, "tanh is at most 1, and each of three sums has 16 terms"


# --------------------------------------------------------------------------------------------- configuration


def reasons_of(compiled: Any) -> set[str | None]:
    return {entry.reason for entry in compiled.report.conversions}


def test_every_form_of_configuration_has_a_precision(tmp_path: Path) -> None:
    file = tmp_path / "rlx.toml"
    file.write_text('[precision]\npolicy = "bf16"\nforce = true\n[cache]\ndisk = false\n')
    spec = rlx.spec("f32[4, 64]")
    from rlx_core.pipeline.config_reading import load_config

    for config, narrow in (
        ({"precision": {"policy": "bf16", "force": True}, "cache.disk": False}, None),
        ({"precision": {"policy": "f16", "force": True}, "cache.disk": False}, "bf16"),
        ({"precision.policy": "f16", **FORCED}, "bf16"),
        (str(file), None),
        (file, "f16"),
        (load_config(file), "f16"),
        ({"include": [{"mixed-precision": {"force": True}}], "cache.disk": False}, None),
    ):
        compiled = rlx.compile(mlp, PARAMS, spec, config=config, precision=narrow)
        assert reasons_of(compiled) == {None}
        assert f": {narrow or 'bf16'}[64, 80]" in compiled.emit("mir")
    assert not reasons_of(rlx.compile(mlp, PARAMS, spec, config=file, precision="f32"))
    session = rlx.Session("cpu", config={"precision": {"policy": "bf16"}})
    assert repr(session) == "Session('cpu', precision='bf16')"
    assert reasons_of(rlx.Session("cpu", precision="f16", config=FORCED).compile(mlp, PARAMS, spec)) == {None}


def test_a_configuration_is_not_changed_by_a_precision() -> None:
    config = {"precision": {"force": True}, "cache": {"disk": False}}
    rlx.jit(mlp, precision="bf16", config=config)(PARAMS, numbers(2, 64))
    assert config == {"precision": {"force": True}, "cache": {"disk": False}}


def test_an_unknown_precision_is_an_error_with_the_known_ones() -> None:
    for act in (
        lambda: rlx.jit(mlp, precision="bf61"),
        lambda: rlx.compile(mlp, PARAMS, rlx.spec("f32[4, 64]"), precision="bf61"),
        lambda: rlx.train_step(lambda w, x: rlx.sum(w * x), optim.sgd(0.1), precision="bf61"),
        lambda: rlx.Session(precision="bf61"),
    ):
        with pytest.raises(ConfigError, match="precision 'bf61' is none of f32, bf16, f16") as caught:
            act()
        assert caught.value.hint == "did you mean `bf16`?"
    with pytest.raises(ConfigError, match=r"precision\.policy"):
        rlx.jit(mlp, config={"precision.policy": "f8"})(PARAMS, numbers(2, 64))
    with pytest.raises(ConfigError, match=r"precision\.keep: 'matmull' means no op"):
        rlx.jit(mlp, precision="bf16", config={"precision.keep": ["matmull"]})(PARAMS, numbers(2, 64))


# ------------------------------------------------------------------------------------------------- training


def small_loss(params: Mapping[str, Any], x: Any, y: Any) -> Any:
    """A mean over so many results, or with such a weight, that its gradients are below the smallest number of f16, 6e-8."""
    h = nn.linear(x, params["w1"], params["b1"], activation="tanh")
    return 1e-7 * nn.mean_squared_error(nn.linear(h, params["w2"]), y)


def batch() -> tuple[np.ndarray, np.ndarray]:
    x = numbers(64, 8, seed=2)
    return x, np.tanh(x[:, :1] * x[:, 1:2])


def trained(optimiser: Any, precision: str, steps: int = 120) -> tuple[Mapping[str, Any], Any, list[float]]:
    """The parameters, the state and the losses of some steps; the losses without their weight."""
    params = {"w1": numbers(8, 32, size=0.3), "b1": np.zeros(32, np.float32), "w2": numbers(32, 1, seed=1, size=0.1)}
    x, y = batch()
    step = rlx.train_step(small_loss, optimiser, precision=precision, config=FORCED)
    state, values = optimiser.init(params), []
    for _ in range(steps):
        params, state, value = step(params, state, x, y)
        values.append(float(value) * 1e7)
    assert all(np.asarray(p).dtype == np.float32 for p in params.values()), "parameters are the master copy"
    return params, state, values


@pytest.mark.medium
def test_training_in_f16_needs_a_loss_scale() -> None:
    rule = optim.adam(0.02, eps=1e-15)  # far below the gradients, so that their scale does not matter to f32
    *_, exact = trained(rule, "f32")
    assert exact[-1] < 0.3 * exact[0]
    start = numbers(32, 1, seed=1, size=0.1)
    params, _, lost = trained(rule, "f16")
    np.testing.assert_array_equal(np.asarray(params["w2"]), start)
    assert lost[-1] > 0.9 * lost[0], "gradients of weights are 0"
    for scaled in (optim.static_loss_scale(rule, 2.0**23), optim.dynamic_loss_scale(rule, 2.0**23)):
        _, state, values = trained(scaled, "f16")
        assert int(state.skipped) < 10
        assert abs(values[-1] - exact[-1]) < 0.1 * exact[0]
    *_, values = trained(rule, "bf16")
    assert abs(values[-1] - exact[-1]) < 0.1 * exact[0], "bf16 has the range of f32"


@pytest.mark.medium
def test_a_scale_that_overflows_f16_is_halved_until_it_fits() -> None:
    scaled = optim.dynamic_loss_scale(optim.adam(0.02, eps=1e-15), 2.0**60, max_scale=2.0**60)
    params, state, values = trained(scaled, "f16")
    assert 10 < int(state.skipped) < 60
    assert float(state.scale) == 2.0 ** (60 - int(state.skipped))
    assert values[int(state.skipped) - 2] == values[0], "skipped steps change nothing"
    assert values[-1] < 0.5 * values[0]
    assert all(np.isfinite(np.asarray(p)).all() for p in params.values())


@pytest.mark.medium
def test_the_state_of_a_loss_scale_is_saved(tmp_path: Path) -> None:
    scaled = optim.dynamic_loss_scale(optim.adam(0.02, eps=1e-15), 2.0**60, max_scale=2.0**60)
    params, state, _ = trained(scaled, "f16", steps=50)
    kept = {"params": params, "state": state}
    rlx.save(tmp_path / "state.safetensors", kept)
    restored = rlx.load(tmp_path / "state.safetensors", like=kept)
    assert (restored["state"].scale, restored["state"].skipped) == (state.scale, state.skipped)
    step = rlx.train_step(small_loss, scaled, precision="f16", config=FORCED, donate=False)
    x, y = batch()
    (_, a, left), (_, b, right) = (step(each["params"], each["state"], x, y) for each in (kept, restored))
    assert left == right
    assert (a.scale, a.good_steps, a.skipped) == (b.scale, b.good_steps, b.skipped)
