"""Entry point of the plugin: its contributions by name, without heavy imports, in particular of jax."""

from rlx_core.contributions import FunctionSpec
from rlx_core.hooks import hookimpl


@hookimpl
def rlx_functions() -> list[FunctionSpec]:
    return [FunctionSpec("from_jax", "rlx_jax.functions:from_jax", summary="An rlx.Model of a JAX function.")]
