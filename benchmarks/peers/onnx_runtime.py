"""ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Mapping

import onnxruntime

from benchmarks.case import Data, Program
from benchmarks.cases import minilm as cases
from benchmarks.first_call import MODEL, program
from benchmarks.peers.onnx_model import minilm, model_of


def make(kind: str, data: Data, threads: int) -> Mapping[str, Program]:
    if kind == "package":
        # MiniLM from its file to the first result, in a new process.
        model, _ = minilm(cases.data(data["batch"], data["length"]))
        return {"onnxruntime": program("onnxruntime", data, files={MODEL: model})}
    pair = model_of(kind, data)
    if pair is None:
        return {}
    model, feeds = pair
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    used = session.get_session_options().intra_op_num_threads
    return {"onnxruntime": Program(lambda: session.run(None, feeds), lambda: session.run(None, feeds), used)}
