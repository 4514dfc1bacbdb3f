"""The door: what this package offers and where it is, importing nothing heavy: neither torch nor anything that needs it."""

from rlx_core.contributions import FunctionSpec
from rlx_core.hooks import hookimpl


@hookimpl
def rlx_functions() -> list[FunctionSpec]:
    return [FunctionSpec("from_torch", "rlx_torch.modules:from_torch", summary="An rlx.Model of a torch module.")]
