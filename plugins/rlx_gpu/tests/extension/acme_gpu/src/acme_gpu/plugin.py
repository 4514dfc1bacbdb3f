"""The plugin's entry point; it imports neither the language nor a driver."""

from rlx_core.contributions import BackendSpec, OptionSpec
from rlx_core.hooks import hookimpl


@hookimpl
def rlx_backends() -> list[BackendSpec]:
    return [BackendSpec("acme", load="acme_gpu.backend:AcmeBackend", summary="Acme's GPUs, on the stand-in.")]


@hookimpl
def rlx_options() -> list[OptionSpec]:
    return [OptionSpec("acme.poison", bool, False, doc="Whether memory nobody may read is full of NaN.")]
