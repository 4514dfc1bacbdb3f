"""Calibration: ranges over batches by each method, what is refused, and the form in files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from same_numbers import numbers, same_numbers  # noqa: F401  # the fixture

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import (
    ConfigError,
    DtypeError,
    FormatError,
    NonFiniteError,
    RlxError,
    ShapeError,
    UnsupportedError,
    WrongInputCountError,
)
from rlx_core.functions.model import Model
from rlx_core.passes.static_int8 import OperandRange
from rlx_core.quantization import Calibration, calibrate

SPEC = rlx.spec("f32[n, 64]")


CONSTANTS = np.random.default_rng(0)
PARAMS = {"w": numbers(64, 80, rng=CONSTANTS), "b": numbers(80, rng=CONSTANTS), "v": numbers(80, 64, rng=CONSTANTS)}
BATCHES = [numbers(n, 64, rng=CONSTANTS) * scale for n, scale in ((5, 1), (9, 0.01), (3, 7))]


def mlp(params: Any, x: Any) -> Any:
    return nn.linear(nn.linear(x, params["w"], params["b"], activation="relu"), params["v"])


def activations() -> tuple[np.ndarray, np.ndarray]:
    x = np.concatenate(BATCHES)
    return x, np.maximum(x @ PARAMS["w"] + PARAMS["b"], 0)


def test_minimum_and_maximum_are_those_of_all_batches() -> None:
    found = calibrate(mlp, PARAMS, SPEC, batches=BATCHES)
    x, h = activations()
    assert list(found.ranges) == ["params.w [64, 80]", "params.v [80, 64]"]
    first, second = found.ranges.values()
    assert (first.low, first.high, first.clipped) == (x.min(), x.max(), 0)
    assert (second.low, second.clipped) == (0, 0)
    np.testing.assert_allclose(second.high, h.max(), rtol=1e-5)
    assert (found.method, found.batches) == ("min-max", 3)


def test_percentiles_are_those_of_all_batches() -> None:
    found = calibrate(mlp, PARAMS, SPEC, batches=(x for x in BATCHES), method="percentile", percentile=98)
    x, h = activations()
    for each, values in zip(found.ranges.values(), (x, h), strict=True):
        low, high = np.percentile(values, [1, 99], method="inverted_cdf")
        np.testing.assert_allclose([each.low, each.high], [min(low, 0), high], rtol=0.02, atol=0.02)
        assert abs(each.clipped - np.mean((values < each.low) | (values > each.high))) < 0.005


def test_the_order_of_batches_does_not_matter() -> None:
    forward, backward = (
        calibrate(mlp, PARAMS, SPEC, batches=batches, method="entropy") for batches in (BATCHES, BATCHES[::-1])
    )
    assert forward == backward


def test_entropy_clips_an_outlier() -> None:
    x = numbers(500, 64)
    x[0, 0] = 100
    exact, clipped = (
        calibrate(mlp, PARAMS, SPEC, batches=[x], method=method).ranges["params.w [64, 80]"]
        for method in ("min-max", "entropy")
    )
    assert exact.high == 100
    assert 2 < clipped.high < 10
    assert 0 < clipped.clipped < 0.01


def test_batches_are_tuples_of_arguments_or_the_only_one() -> None:
    def two(w: Any, x: Any, pair: Any) -> Any:
        return (x + pair["a"]) @ w

    w, x = numbers(64, 64), numbers(3, 64)
    found = calibrate(two, w, SPEC, {"a": SPEC}, batches=[(x, {"a": x})])
    assert found.ranges["w [64, 64]"] == OperandRange(2 * x.min(), 2 * x.max())
    alone = calibrate(lambda w, x: x @ w, w, SPEC, batches=[x, (x,)])
    assert alone.ranges["w [64, 64]"] == OperandRange(x.min(), x.max())


def test_products_of_one_weight_have_names_of_their_own() -> None:
    w, x = np.eye(64, dtype="f") * 2, numbers(3, 64)
    found = calibrate(lambda w, x: rlx.exp(x @ w * 0) @ w, w, SPEC, batches=[x])
    assert list(found.ranges) == ["w [64, 64]", "w [64, 64] (2)"]
    assert found.ranges["w [64, 64] (2)"] == OperandRange(0, 1)


REFUSED: dict[str, tuple[dict[str, Any], type[RlxError], str]] = {
    "no batches": ({"batches": []}, ConfigError, "there are no batches"),
    "no iterable": ({"batches": None}, ConfigError, "batches must be an iterable of inputs, not None"),
    "rows instead of batches": ({"batches": numbers(3, 64)}, ShapeError, r"must be f32\[n, 64\], not f32\[64\]"),
    "two arguments": (
        {"batches": [BATCHES[0], (BATCHES[0], 1)]},
        WrongInputCountError,
        r"takes \(x\), not 2 arguments",
    ),
    "another dtype": ({"batches": [numbers(3, 64).astype("f8")]}, DtypeError, "must be f32, not f64"),
    "another structure": ({"batches": [{"x": numbers(3, 64)}]}, ShapeError, "x"),
    "another method": ({"method": "max"}, ConfigError, "min-max, percentile or entropy, not 'max'"),
    "a percentile of 0": ({"percentile": 0}, ConfigError, "more than 50 and at most 100, not 0"),
    "a percentile of 101": ({"percentile": 101}, ConfigError, "more than 50 and at most 100, not 101"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_argument_that_is_refused_is_named(name: str) -> None:
    options, error, text = REFUSED[name]
    with pytest.raises(error, match=text):
        calibrate(mlp, PARAMS, SPEC, **{"batches": BATCHES, **options})


def test_a_fault_in_a_batch_names_the_batch() -> None:
    with pytest.raises(ShapeError) as caught:
        calibrate(mlp, PARAMS, SPEC, batches=[BATCHES[0], numbers(3, 65)])
    assert [fact.value for fact in caught.value.facts if fact.label == "batch"] == ["1"]


@pytest.mark.parametrize("method", ["min-max", "entropy"])
@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_a_nan_or_an_infinity_names_the_product_and_the_batch(special: float, method: Any) -> None:
    x = numbers(4, 64)
    x[2, 3] = special
    text = r"1 elements of the left operand of product params\.w \[64, 80\] are NaN or infinite"
    with pytest.raises(NonFiniteError, match=text) as caught:
        calibrate(mlp, PARAMS, SPEC, batches=[BATCHES[0], x], method=method)
    assert [fact.value for fact in caught.value.facts if fact.label == "batch"] == ["1"]


def test_programs_without_inputs_or_products_are_refused() -> None:
    with pytest.raises(ConfigError, match="no argument is an input"):
        calibrate(mlp, PARAMS, BATCHES[0], batches=BATCHES)
    with pytest.raises(ConfigError, match="has no product of f32 by a weight"):
        calibrate(lambda p, x: rlx.exp(x), PARAMS, SPEC, batches=BATCHES)


def test_a_calibration_is_restored_from_its_text() -> None:
    found = calibrate(mlp, PARAMS, SPEC, batches=BATCHES, method="percentile")
    assert Calibration.from_json(found.to_json()) == found


FAULTS: dict[str, tuple[Any, type[RlxError], str]] = {
    "no JSON": (lambda text: text[:-1], FormatError, "it is not JSON"),
    "a missing field": (lambda text: text.replace('"program"', '"programme"'), ConfigError, "programme: unknown key"),
    "another method": (lambda text: text.replace("min-max", "max"), ConfigError, "wanted min-max or percentile or entropy"),
    "a bound that is no number": (lambda text: text.replace('"low": 0.0', '"low": "0"'), ConfigError, "wanted a number"),
    "a bound that is infinite": (
        lambda text: text.replace('"low": 0.0', '"low": -Infinity'), ConfigError, "must be a finite f32 number",
    ),
    "a fraction above 1": (
        lambda text: text.replace('"clipped": 0.0', '"clipped": 2'), ConfigError, "must be between 0 and 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_the_text_is_named(name: str) -> None:
    change, error, text = FAULTS[name]
    with pytest.raises(error, match=text):
        Calibration.from_json(change(calibrate(mlp, PARAMS, SPEC, batches=BATCHES).to_json()))


def test_models_take_no_arguments_and_have_one_program() -> None:
    model = Model(name="m", function=mlp, parameters=PARAMS, inputs={"x": SPEC})
    assert list(calibrate(model, batches=BATCHES).ranges) == ["parameters.w [64, 80]", "parameters.v [80, 64]"]
    with pytest.raises(WrongInputCountError, match="the model m takes no arguments, not 1"):
        calibrate(model, PARAMS, batches=BATCHES)
    several = Model(name="m", function=mlp, parameters=PARAMS, inputs={"x": SPEC}, compiler=rlx.compile)
    with pytest.raises(UnsupportedError, match="m consists of several programs"):
        calibrate(several, batches=BATCHES)
