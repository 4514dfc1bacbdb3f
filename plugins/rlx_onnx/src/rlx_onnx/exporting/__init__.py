"""From a program of rlx to a file of ONNX: a table of operations, and what is not in it by its decomposition."""

from rlx_onnx.exporting.writing import export_file, to_proto

__all__ = ["export_file", "to_proto"]
