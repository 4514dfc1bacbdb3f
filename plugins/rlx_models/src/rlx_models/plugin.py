"""Contributions of this package to rlx. Importing this module imports none of the architectures."""

from rlx_core.contributions import CommandSpec, ExporterSpec, FunctionSpec, ImporterSpec
from rlx_core.hooks import hookimpl


@hookimpl
def rlx_functions() -> list[FunctionSpec]:
    return [
        FunctionSpec(
            "from_pretrained",
            "rlx_models.loading:from_pretrained",
            summary="An rlx.Model of a checkpoint in a folder.",
        ),
    ]


@hookimpl
def rlx_importers() -> list[ImporterSpec]:
    return [ImporterSpec("models.gguf", "rlx_models.gguf.model:import_file", suffixes=[".gguf"])]


@hookimpl
def rlx_exporters() -> list[ExporterSpec]:
    return [ExporterSpec("models.gguf", "rlx_models.gguf.exporting:export_file", suffixes=[".gguf"])]


@hookimpl
def rlx_commands() -> list[CommandSpec]:
    return [
        CommandSpec("generate", "rlx_models.command:command", summary="Continue a text with a checkpoint."),
        CommandSpec(
            "quantize", "rlx_models.quantize_command:command", summary="Write a model to a GGUF file in fewer bits."
        ),
        CommandSpec(
            "serve", "rlx_models.serving.command:command", summary="Serve a model over HTTP, as OpenAI's protocol."
        ),
    ]
