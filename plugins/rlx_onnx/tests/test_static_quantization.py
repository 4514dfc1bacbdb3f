"""Static quantisation by rlx against that of ONNX Runtime: equal ranges, and results that are as close to those of f32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from same_numbers import numbers, same_numbers  # noqa: F401  # the fixture

import rlx_core as rlx
from rlx_core import nn
from rlx_onnx import load
from rlx_onnx.exporting import to_proto

CONSTANTS = np.random.default_rng(0)
PARAMS = {
    "w": numbers(64, 256, rng=CONSTANTS) / 8, "b": numbers(256, rng=CONSTANTS),
    "v": numbers(256, 64, rng=CONSTANTS) / 16, "c": numbers(64, rng=CONSTANTS),
}  # fmt: skip
SPEC = rlx.spec("f32[n, 64]")
BATCHES = [numbers(50, 64, rng=CONSTANTS) for _ in range(4)]


def mlp(p: Any, x: Any) -> Any:
    return nn.linear(nn.linear(x, p["w"], p["b"], activation="relu"), p["v"], p["c"])


def test_a_model_is_calibrated_as_it_is_compiled() -> None:
    model = load(to_proto(rlx.compile(mlp, PARAMS, SPEC)))
    found = rlx.quantization.calibrate(model, batches=BATCHES)
    of_function = rlx.quantization.calibrate(mlp, PARAMS, SPEC, batches=BATCHES)
    for mine, theirs in zip(found.ranges.values(), of_function.ranges.values(), strict=True):
        assert abs(mine.scale / theirs.scale - 1) < 1e-5
    quantised = model.compile(config={"cache.disk": False, "include": [found.entry]})
    x = numbers(20, 64)
    assert cosine(quantised(x), model(x)) > 0.9998
    assert [entry.reason for entry in quantised.report.conversions] == [None, None]


def cosine(a: Any, b: Any) -> float:
    first, second = (np.asarray(each, np.float64).ravel() for each in (a, b))
    return float(first @ second / np.sqrt((first @ first) * (second @ second)))


def test_results_are_as_close_to_f32_as_those_of_onnx_runtime(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    tools = pytest.importorskip("onnxruntime.quantization")
    config = {"cache.disk": False}
    exact = rlx.compile(mlp, PARAMS, SPEC, config=config)
    model, quantised = tmp_path / "model.onnx", tmp_path / "int8.onnx"
    model.write_bytes(to_proto(exact).SerializeToString())
    (name,) = (
        each.name for each in runtime.InferenceSession(str(model), providers=["CPUExecutionProvider"]).get_inputs()
    )

    class Reader(tools.CalibrationDataReader):  # type: ignore[name-defined,misc]  # it may be absent
        remaining = iter([{name: x} for x in BATCHES])

        def get_next(self) -> Any:
            return next(self.remaining, None)

    tools.quantize_static(
        model, quantised, Reader(), per_channel=True,
        activation_type=tools.QuantType.QUInt8, weight_type=tools.QuantType.QInt8,
    )  # fmt: skip
    session = runtime.InferenceSession(str(quantised), providers=["CPUExecutionProvider"])
    found = rlx.quantization.calibrate(mlp, PARAMS, SPEC, batches=BATCHES)
    ours = rlx.compile(mlp, PARAMS, SPEC, config={**config, "include": [found.entry]})

    import onnx  # with ONNX Runtime's tools

    arrays = {each.name: onnx.numpy_helper.to_array(each) for each in onnx.load(quantised).graph.initializer}
    scales = sorted(float(a) for n, a in arrays.items() if n.endswith("_scale") and a.ndim == 0)
    for known in found.ranges.values():
        assert any(abs(known.scale / scale - 1) < 1e-5 for scale in scales), scales
    x = numbers(200, 64)
    (theirs,) = session.run(None, {name: x})
    assert cosine(exact(x), ours(x)) > 0.9998
    assert cosine(exact(x), ours(x)) >= cosine(exact(x), theirs) - 1e-5
