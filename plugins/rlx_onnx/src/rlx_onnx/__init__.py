"""ONNX models for rlx: `rlx.load("model.onnx")` gives an `rlx.Model`."""
