"""The door: what this package offers and where it is, importing nothing heavy."""

from rlx_core.contributions import ImporterSpec
from rlx_core.hooks import hookimpl


@hookimpl
def rlx_importers() -> list[ImporterSpec]:
    return [ImporterSpec("onnx.model", "rlx_onnx.reading:import_file", suffixes=[".onnx"])]
