"""The entry point: what this package offers, importing nothing heavy."""

from rlx_core.contributions import BackendSpec, OptionSpec
from rlx_core.hooks import hookimpl


@hookimpl
def rlx_backends() -> list[BackendSpec]:
    return [
        BackendSpec(
            "cpu",
            load="rlx_cpu.backend:CpuBackend",
            summary="This machine's processor: native code where llvmlite is installed, NumPy and SciPy for the rest.",
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
        ),
        OptionSpec(
            "cpu.tier",
            str,
            "auto",
            doc="Which kernels run programs: native (needs llvmlite), numpy, or auto for the best that is there.",
            env="RLX_CPU_TIER",
        ),
        OptionSpec(
            "cpu.threads",
            int,
            None,
            doc="Threads that run a program, 1 to 64; unset, every CPU that affinity and control groups leave to the process.",
            env="RLX_CPU_THREADS",
        ),
        OptionSpec(
            "cpu.spin",
            int,
            200,
            doc="Microseconds that a thread waits for the next run before it sleeps; runs soon after one another start faster.",
            env="RLX_CPU_SPIN",
        ),
        OptionSpec(
            "cpu.isa",
            str,
            "auto",
            doc="The instruction set of native code: auto, or avx512bf16, avx512, avx2, sse2, neon, whichever the machine has.",
            env="RLX_CPU_ISA",
        ),
        OptionSpec(
            "cpu.tune",
            str,
            "off",
            doc="Selects schedules by measurement: off, stored (only choices that `rlx tune` lists), or measure (what has none).",
            env="RLX_CPU_TUNE",
        ),
        OptionSpec(
            "cpu.poison",
            bool,
            False,
            doc="Run step by step with freed memory full of NaN and canaries between buffers, to find kernels that stray: slow.",
            env="RLX_CPU_POISON",
        ),
        OptionSpec(
            "cpu.deterministic",
            bool,
            True,
            doc="Whether results must not depend on the number of threads; no kernel makes use of the freedom yet.",
            env="RLX_CPU_DETERMINISTIC",
        ),
    ]
