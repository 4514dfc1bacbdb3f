"""The door: what this package offers and where it is, importing nothing heavy: not jax."""

from rlx_core.contributions import FunctionSpec
from rlx_core.hooks import hookimpl


@hookimpl
def rlx_functions() -> list[FunctionSpec]:
    return [FunctionSpec("from_jax", "rlx_jax.functions:from_jax", summary="An rlx.Model of a JAX function.")]
