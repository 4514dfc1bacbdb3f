"""ONNX models for rlx: `rlx.load("model.onnx")` gives an `rlx.Model`."""

from typing import Any

__all__ = ["load"]


def __getattr__(name: str) -> Any:
    if name == "load":
        from rlx_onnx.reading.model import load  # here, because a plug-in's package is imported before it is used

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
