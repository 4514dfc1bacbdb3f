"""The door: what this package offers and where it is, importing nothing heavy: neither torch nor anything that needs it."""

from rlx_core.contributions import CommandSpec, FunctionSpec
from rlx_core.hooks import hookimpl


@hookimpl
def rlx_functions() -> list[FunctionSpec]:
    return [
        FunctionSpec("from_torch", "rlx_torch.modules:from_torch", summary="An rlx.Model of a torch module."),
        FunctionSpec(
            "from_pretrained",
            "rlx_torch.pretrained:from_pretrained",
            summary="An rlx.Model of a checkpoint in a folder.",
        ),
    ]


@hookimpl
def rlx_commands() -> list[CommandSpec]:
    return [
        CommandSpec("generate", "rlx_torch.pretrained.command:command", summary="Continue a text with a checkpoint.")
    ]
