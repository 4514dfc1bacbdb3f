"""Export of programs to ONNX files: a table of operations; other ops are exported by their decomposition."""

from rlx_onnx.exporting.writing import export_file, to_proto

__all__ = ["export_file", "to_proto"]
