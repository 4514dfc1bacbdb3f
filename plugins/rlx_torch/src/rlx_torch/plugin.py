"""Contributions of this package to rlx. Importing this module imports neither torch nor a module that needs it."""

from rlx_core.contributions import FunctionSpec
from rlx_core.hooks import hookimpl


@hookimpl
def rlx_functions() -> list[FunctionSpec]:
    return [FunctionSpec("from_torch", "rlx_torch.modules:from_torch", summary="An rlx.Model of a torch module.")]
