"""OpenVINO on the CPU, in float32 as everybody else."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import openvino

from benchmarks.case import Data, Program
from benchmarks.peers.onnx_model import model_of


def make(kind: str, data: Data, threads: int) -> Mapping[str, Program]:
    pair = model_of(kind, data)
    if pair is None:
        return {}
    model, feeds = pair
    core = openvino.Core()
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(core.read_model(model, b""), "CPU", settings)
    request = compiled.create_infer_request()
    used = int(compiled.get_property("INFERENCE_NUM_THREADS"))

    def results() -> list[np.ndarray]:
        return [np.array(request.infer(feeds)[output]) for output in compiled.outputs]

    return {"openvino": Program(lambda: request.infer(feeds), results, used)}
