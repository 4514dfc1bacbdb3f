"""The door: what this package offers, importing nothing heavy."""

from rlx_core.contributions import BackendSpec
from rlx_core.hooks import hookimpl


@hookimpl
def rlx_backends() -> list[BackendSpec]:
    return [
        BackendSpec(
            "cpu",
            load="rlx_cpu.backend:CpuBackend",
            summary="This machine's processor, through NumPy and SciPy.",
        )
    ]
