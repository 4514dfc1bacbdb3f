"""ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Mapping

import onnxruntime

from benchmarks.case import Data, Program
from benchmarks.peers.onnx_model import model_of

__all__ = ["make"]


def make(kind: str, data: Data, threads: int) -> Mapping[str, Program]:
    found = model_of(kind, data)
    if found is None:
        return {}
    model, feeds = found
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    used = session.get_session_options().intra_op_num_threads
    return {"onnxruntime": Program(lambda: session.run(None, feeds), lambda: session.run(None, feeds), used)}
