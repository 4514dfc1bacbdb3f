"""Entry point of the plugin: its contributions by name, without heavy imports."""

from rlx_core.contributions import CommandSpec, ExporterSpec, ImporterSpec
from rlx_core.hooks import hookimpl


@hookimpl
def rlx_importers() -> list[ImporterSpec]:
    return [ImporterSpec("onnx.model", "rlx_onnx.reading.model:import_file", suffixes=[".onnx"])]


@hookimpl
def rlx_exporters() -> list[ExporterSpec]:
    return [ExporterSpec("onnx.model", "rlx_onnx.exporting:export_file", suffixes=[".onnx"])]


@hookimpl
def rlx_commands() -> list[CommandSpec]:
    return [
        CommandSpec(
            "onnx", "rlx_onnx.command:command", summary="Show what an ONNX model is made of, and what of it rlx has."
        )
    ]
