"""The door: what this package offers, importing nothing heavy."""

from rlx_core.contributions import BackendSpec, OptionSpec
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


@hookimpl
def rlx_options() -> list[OptionSpec]:
    return [
        OptionSpec(
            "cpu.oracle",
            bool,
            False,
            doc="Run programs by the reference interpreter in double precision: slow, and what everything is compared with.",
            env="RLX_CPU_ORACLE",
        )
    ]
