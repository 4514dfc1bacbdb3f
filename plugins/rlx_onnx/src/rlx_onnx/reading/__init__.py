"""From a file to a model: what is read is checked, brought to one version of every operation, and walked."""

from rlx_onnx.reading.model import import_file, load

__all__ = ["import_file", "load"]
