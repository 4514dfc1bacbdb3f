"""Static quantisation: what converted products compute, where their codes are computed, and what the report says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from same_numbers import numbers, same_numbers  # noqa: F401  # the fixture

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import ConfigError
from rlx_core.ir.dtypes import f32, i8
from rlx_core.ir.graph import Graph
from rlx_core.ir.interpret import interpret
from rlx_core.ops.linalg import mat_mul
from rlx_core.passes.dead_code import DeadCode
from rlx_core.passes.engine.base import Conversion, Result
from rlx_core.passes.static_int8 import OperandRange, StaticInt8, outline_of, products_of
from rlx_core.quantization import Calibration, calibrate

from .programs import ops, program, run

NO_DISK: dict[str, Any] = {"cache.disk": False}


def compiled(function: Any, params: Any, spec: Any, calibration: Calibration, **config: Any) -> Any:
    return rlx.compile(function, params, spec, config={**NO_DISK, "include": [calibration.entry], **config})


def cosine(a: Any, b: Any) -> float:
    first, second = (np.asarray(each, np.float64).ravel() for each in (a, b))
    return float(first @ second / np.sqrt((first @ first) * (second @ second)))


def expected_of(x: np.ndarray, w: np.ndarray, known: OperandRange) -> np.ndarray:
    """The product of codes with NumPy: one scale and zero point of x, one scale for each column of w."""
    t = np.abs(w).max(0, keepdims=True) / np.float32(127)
    steps = np.rint(x * np.float32(1 / known.scale)) + known.zero_point
    p, q = np.clip(steps, -128, 127).astype(np.int32), np.rint(w / t).astype(np.int32)
    return ((p - known.zero_point) @ q).astype(np.float32) * (t * np.float32(known.scale))


@pytest.mark.parametrize("shift", [0, 3, -3])
def test_a_product_is_that_of_codes(shift: float) -> None:
    """Ranges around 0, and on one side of it; values outside of the range are clipped to it."""
    w, x = numbers(96, 80), numbers(2, 3, 96) + np.float32(shift)
    found = calibrate(lambda w, x: x @ w, w, rlx.spec("f32[n, 3, 96]"), batches=[x])
    quantised = compiled(lambda w, x: x @ w, w, rlx.spec("f32[n, 3, 96]"), found)
    for scale in (1, 4):
        np.testing.assert_array_equal(quantised(x * scale), expected_of(x * scale, w, found.ranges["w [96, 80]"]))
    assert cosine(quantised(x), x @ w) > 0.9995


def test_zero_has_a_code_of_its_own() -> None:
    for low, high in ((-1.0, 3.0), (0.5, 2.0), (-2.0, -1.0), (0.0, 0.0), (-1e-42, 0.0)):
        known = OperandRange(low, high)
        assert known.low <= 0 <= known.high
        assert -128 <= known.zero_point <= 127
        assert known.scale > 0
    assert (OperandRange(0, 2).zero_point, OperandRange(-2, 0).zero_point) == (-128, 127)


def mlp(params: Any, x: Any) -> Any:
    return nn.linear(nn.linear(x, params["w"], params["b"], activation="relu"), params["v"], params["c"])


def mlp_params() -> dict[str, np.ndarray]:
    return {"w": numbers(64, 256) / 8, "b": numbers(256), "v": numbers(256, 64) / 16, "c": numbers(64)}


@pytest.mark.parametrize("method", ["min-max", "percentile", "entropy"])
def test_a_network_keeps_the_direction_of_its_results(method: Any) -> None:
    params, spec = mlp_params(), rlx.spec("f32[n, 64]")
    found = calibrate(mlp, params, spec, batches=[numbers(50, 64) for _ in range(4)], method=method)
    x = numbers(20, 64)
    quantised = compiled(mlp, params, spec, found)
    assert cosine(rlx.compile(mlp, params, spec)(x), quantised(x)) > 0.999
    assert [entry.reason for entry in quantised.report.conversions] == [None, None]


def test_codes_go_from_one_product_to_the_next() -> None:
    """The first product rounds to codes in its epilogue, which the second one reads: no f32 array is between them."""
    params, spec = mlp_params(), rlx.spec("f32[n, 64]")
    quantised = compiled(mlp, params, spec, calibrate(mlp, params, spec, batches=[numbers(9, 64)]))
    types = [[str(t.dtype) for t in step.node.types] for step in quantised.executable.lir.steps]
    assert types == [["i8"], ["i8"], ["f32"]]


def block(params: Any, x: Any) -> Any:
    def heads(a: Any) -> Any:
        return rlx.permute_dims(rlx.reshape(a, (*a.shape[:2], 4, 16)), (0, 2, 1, 3))

    h = nn.layer_norm(x, params["s"], params["b"])
    a = nn.attention(*(heads(h @ params[k]) for k in "qkv"), layout="bhsd")
    x = x + rlx.reshape(rlx.permute_dims(a, (0, 2, 1, 3)), x.shape) @ params["o"]
    return x + rlx.gelu(nn.layer_norm(x, params["s"], params["b"]) @ params["u"]) @ params["d"]


@pytest.mark.parametrize("method", ["min-max", "entropy"])
def test_a_transformer_keeps_the_direction_of_its_results(method: Any) -> None:
    """Queries, keys and values are one product, and sizes of activations may differ from those of the batches."""
    params = {k: numbers(64, 64) / 8 for k in "qkvo"}
    params |= {"u": numbers(64, 256) / 8, "d": numbers(256, 64) / 16, "s": numbers(64), "b": numbers(64)}
    spec = rlx.spec("f32[n, t, 64]")
    found = calibrate(block, params, spec, batches=[numbers(3, 7, 64), numbers(2, 20, 64)], method=method)
    x = numbers(2, 11, 64)
    quantised = compiled(block, params, spec, found)
    assert cosine(rlx.compile(block, params, spec)(x), quantised(x)) > 0.998
    assert [entry.reason for entry in quantised.report.conversions] == [None] * 4
    assert "p.k, %p.q, %p.v" not in str(found.ranges)
    assert next(iter(found.ranges)) == "params.k, params.q, params.v [64, 192]"


def test_captured_weights_and_other_sizes() -> None:
    """`rlx.jit` compiles for each size; weights that a function captures have the names of constants."""
    w, v = numbers(64, 80), numbers(80, 64)

    def f(x: Any) -> Any:
        return rlx.relu(x @ w) @ v

    found = calibrate(f, rlx.spec("f32[n, 64]"), batches=[numbers(99, 64)])
    assert list(found.ranges) == ["constant [64, 80]", "constant [80, 64]"]
    quantised = rlx.jit(f, config={**NO_DISK, "include": [found.entry]})
    for rows in (1, 3):
        x = numbers(rows, 64)
        assert cosine(quantised(x), f(x)) > 0.999


# ------------------------------------------------------------------------------------------- where codes are computed


def ranges_of(graph: Graph, low: float = 0.0, high: float = 2.0) -> dict[str, OperandRange]:
    return {name: OperandRange(low, high) for name in products_of(graph)}


def converted(graph: Graph, low: float = 0.0, **options: Any) -> Result:
    return run(StaticInt8(ranges=ranges_of(graph, low), **options), graph)


MOVED: dict[str, tuple[Any, dict[str, str], list[str]]] = {
    "reshape": (lambda x: rlx.reshape(x, (6, 64)), {"x": "f32[2, 3, 64]"}, ["reshape"]),
    "transpose": (lambda x: x.T, {"x": "f32[64, 5]"}, ["transpose"]),
    "max_pool": (
        lambda x: rlx.reshape(nn.max_pool(x, 2, padding=1), (2, 64)), {"x": "f32[2, 4, 6, 6]"}, ["max_pool", "reshape"],
    ),
    "concat": (lambda x, y: rlx.concat([x, y.T], axis=1), {"x": "f32[5, 32]", "y": "f32[32, 5]"}, ["transpose", "concat"]),
    "relu": (rlx.relu, {"x": "f32[5, 64]"}, []),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVED)
def test_codes_are_computed_before_ops_that_move_elements(name: str) -> None:
    """The codes of the results are those of the operands, moved. A relu is the saturation of codes whose lowest is 0."""
    make, inputs, moving = MOVED[name]
    types: Any = inputs
    graph = program(lambda w, **x: make(*x.values()) @ w, params={"w": "f32[64, 64]"}, **types)
    after = pruned(converted(graph).graph)
    moved = [n for n in after.nodes if n.type.dtype is i8 and n.op.name.removeprefix("rlx.") in moving]
    assert [n.op.name.removeprefix("rlx.") for n in moved] == moving
    assert "relu" not in ops(after)
    assert not {"reshape", "transpose", "max_pool", "concat"} & {
        n.op.name.removeprefix("rlx.") for n in after.nodes if n.type.dtype is f32 and n.type.rank > 1 and not n.is_leaf
    }
    fed = {n: numbers(*t.static_shape) for n, t in graph.input_types.items()}
    w = numbers(64, 64)
    (result,) = interpret(after, fed, {"w": w})
    (left,) = interpret(program(make, **types), fed)
    np.testing.assert_allclose(result, expected_of(left, w, OperandRange(0, 2)), rtol=1e-4, atol=1e-4)


def pruned(graph: Graph) -> Graph:
    return run(DeadCode(), graph).graph


def test_a_value_that_is_read_elsewhere_is_not_computed_twice() -> None:
    def both(x: Any, w: Any) -> Any:
        moved = rlx.exp(x).T
        return moved @ w, moved

    after = pruned(converted(program(both, params={"w": "f32[64, 64]"}, x="f32[64, 5]")).graph)
    assert [str(n.type.dtype) for n in after.nodes if n.op.name == "rlx.transpose"] == ["f32"]


def test_a_relu_of_a_range_with_negative_numbers_stays() -> None:
    graph = program(lambda x, w: rlx.relu(x) @ w, params={"w": "f32[64, 64]"}, x="f32[5, 64]")
    assert "relu" in ops(converted(graph, low=-1.0).graph)


# ------------------------------------------------------------------------------------------------------ what is kept


KEPT: dict[str, tuple[str, str, str]] = {
    "few terms": ("f32[4, 63]", "f32[63, 64]", "its weight is small, [63, 64]"),
    "few columns": ("f32[4, 64]", "f32[64, 63]", "its weight is small, [64, 63]"),
    "a batch of weights": ("f32[2, 4, 64]", "f32[2, 64, 64]", "no weight that is known when parameters are bound"),
    "another dtype": ("f64[4, 64]", "f64[64, 64]", "its operands are f64"),
    "long sums": ("f32[1, 66312]", "f32[66312, 64]", "i32 does not hold sums of 66312 products of codes"),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_product_that_is_kept_has_its_reason(name: str) -> None:
    x, w, reason = KEPT[name]
    before = program(lambda x, w: mat_mul(x, w), params={"w": w}, x=x)
    result = converted(before)
    assert result.graph is before
    (entry,) = result.conversions
    assert entry.reason is not None
    assert reason in entry.reason


def test_a_product_in_the_body_of_a_loop_is_kept() -> None:
    def chain(w: Any, x: Any) -> Any:
        return rlx.scan(lambda c, each: (c @ each, None), x @ w[0], w)[0]

    w, spec = numbers(3, 64, 64), rlx.spec("f32[4, 64]")
    report = compiled(chain, w, spec, calibrate(chain, w, spec, batches=[numbers(4, 64)])).report
    reasons = [entry.reason for entry in report.conversions]
    assert reasons == [None, "it is in the body of a loop or a branch, where activations are not measured"]


def test_a_target_without_fast_products_keeps_them_and_reports_their_ranges() -> None:
    params, spec = mlp_params(), rlx.spec("f32[n, 64]")
    config: dict[str, Any] = {"options": {"cpu.tier": "numpy"}}
    found = calibrate(mlp, params, spec, batches=[numbers(9, 64)], target="cpu")
    report = compiled(mlp, params, spec, found, **config).report
    assert [entry.reason for entry in report.conversions] == ["cpu multiplies f32 faster than i8"] * 2
    assert report.conversions[0].details["scale"] == found.ranges["params.w [64, 256]"].scale


def test_the_report_has_the_scale_the_zero_point_and_what_is_clipped() -> None:
    w, spec, x = numbers(64, 64), rlx.spec("f32[n, 64]"), numbers(2000, 64)
    found = calibrate(lambda w, x: x @ w, w, spec, batches=[x], method="percentile", percentile=99)
    report = compiled(lambda w, x: x @ w, w, spec, found).report
    (entry,) = report.conversions
    known = found.ranges["w [64, 64]"]
    assert entry.details == {"scale": known.scale, "zero point": known.zero_point, "clipped": known.clipped}
    assert (entry.before, entry.after) == (64 * 64 * 4, 64 * 64 + 64 * 4)
    assert 0.008 < known.clipped < 0.012
    assert f"scale {known.scale:.4g}, zero point {known.zero_point}, clipped {known.clipped:.4g}" in str(report)
    assert report.to_json()["conversions"][0]["details"]["zero point"] == known.zero_point


def test_the_text_of_an_entry_that_is_kept_has_its_details() -> None:
    entry = Conversion("a.pass", "%1", "product", "a reason", 4, 4, {"scale": 0.5})
    assert str(entry) == "a.pass kept %1, product, scale 0.5: a reason"


# --------------------------------------------------------------------------------------------------- other programs


def test_a_pass_without_ranges_is_refused() -> None:
    with pytest.raises(ConfigError, match="there are no ranges for the 1 products"):
        rlx.compile(lambda w, x: x @ w, numbers(64, 64), rlx.spec("f32[4, 64]"), config={"include": ["static-int8"]})
    assert (
        rlx.compile(lambda x: x + 1, rlx.spec("f32[4]"), config={"include": ["static-int8"]})(np.zeros(4, "f"))[0] == 1
    )


OTHERS: dict[str, tuple[Any, tuple[int, int]]] = {
    "another weight": (lambda w, x: x @ w, (64, 65)),
    "another name": (lambda v, x: x @ v, (64, 64)),
    "another operation": (lambda w, x: rlx.exp(x) @ w, (64, 64)),
    "another product": (lambda w, x: x @ w @ w, (64, 64)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_ranges_of_another_program_are_refused(name: str) -> None:
    spec = rlx.spec("f32[n, 64]")
    found = calibrate(lambda w, x: x @ w, numbers(64, 64), spec, batches=[numbers(3, 64)])
    function, shape = OTHERS[name]
    with pytest.raises(ConfigError, match="the ranges are of another program"):
        compiled(function, numbers(*shape), spec, found)


def test_ranges_may_be_written_in_a_configuration() -> None:
    w, spec = numbers(64, 64), rlx.spec("f32[n, 64]")
    entry = {"static-int8": {"ranges": {"w [64, 64]": {"low": -3, "high": 3}}}}
    x = numbers(3, 64)
    quantised = rlx.compile(lambda w, x: x @ w, w, spec, config={**NO_DISK, "include": [entry]})
    np.testing.assert_array_equal(quantised(x), expected_of(x, w, OperandRange(-3, 3)))


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"ranges": {"w [64, 64]": {"low": "a", "high": 1}}}, "wanted a number"),
        ({"ranges": {"w [64, 64]": {"low": 0, "high": float("inf")}}}, "must be a finite f32 number"),
        ({"range": {}}, "unknown key"),
    ],
)
def test_a_range_that_is_wrong_is_named(option: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        rlx.compile(
            lambda w, x: x @ w, numbers(64, 64), rlx.spec("f32[4, 64]"), config={"include": [{"static-int8": option}]}
        )


def test_the_outline_does_not_depend_on_sizes() -> None:
    one, other = (
        program(lambda x, w: rlx.exp(x) @ w, params={"w": "f32[64, 64]"}, x=x) for x in ("f32[1, 64]", "f32[n, 64]")
    )
    assert outline_of(one) == outline_of(other)
    assert outline_of(one) != outline_of(program(lambda x, w: x @ w, params={"w": "f32[64, 64]"}, x="f32[1, 64]"))
