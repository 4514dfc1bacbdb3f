"""Foreign native functions: a package whose kernel calls a function of a C library, written as an external contributor would."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from rlx_core.errors import KernelBuildError
from rlx_cpu.native.llvm.foreign import bind_symbols

linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="the package of these tests loads the C library's mathematics by its name on Linux"
)

PACKAGE = {
    "acme_bessel/__init__.py": "",
    "acme_bessel/ops.py": """
        import numpy as np
        from scipy.special import j0
        from rlx_core.ops import Op, define_op, op_function

        @define_op(domain="acme_bessel")
        class BesselJ0(Op):
            \"\"\"Return the Bessel function of the first kind of order 0.\"\"\"

            def infer(self, x):
                return x

            def reference(self, x):
                return j0(x)

        bessel_j0 = op_function(BesselJ0)
    """,
    "acme_bessel/library.py": """
        import ctypes

        def address_of_j0():
            return ctypes.cast(ctypes.CDLL("libm.so.6").j0, ctypes.c_void_p).value
    """,
    "acme_bessel/native.py": """
        from acme_bessel.ops import BesselJ0
        from rlx_cpu.emitters import (
            Emitted, ForeignFunction, NativeTable, call_foreign, counting, memory_type, offset, pointer_at, share, starting,
        )

        J0 = ForeignFunction("acme_bessel_j0", "acme_bessel.library:address_of_j0")
        native = NativeTable()

        @native.register(BesselJ0, dtypes="f64", accepts_strides=False)
        def called(module, node, layout, isa, name):
            \"\"\"A call of the C library for each element.\"\"\"
            type = layout.results[0].type
            element = memory_type(type.dtype)
            builder, buffers, tid, nthreads = starting(module, name)
            source, to = pointer_at(builder, buffers, 0), pointer_at(builder, buffers, 1)
            low, high = share(builder, type.size, tid, nthreads)
            with counting(builder, low, high) as place:
                x = builder.load(offset(builder, source, (place, 8)), typ=element, align=8)
                builder.store(call_foreign(builder, J0, element, [x]), offset(builder, to, (place, 8)), align=8)
            builder.ret_void()
            return Emitted(name)
    """,
    "acme_bessel/plugin.py": """
        from rlx_core.contributions import KernelSpec, OpSpec
        from rlx_core.hooks import hookimpl

        @hookimpl
        def rlx_ops():
            return [OpSpec("acme_bessel.bessel_j0", "acme_bessel.ops:BesselJ0")]

        @hookimpl
        def rlx_kernels():
            return [KernelSpec("cpu", "acme_bessel.native:native")]
    """,
}

PROGRAM = """
    import sys
    import numpy as np
    import rlx_core as rlx, rlx_cpu.plugin, acme_bessel.plugin
    from rlx_core.plugins import PluginEntry, PluginHost
    from scipy.special import j0
    from acme_bessel.ops import bessel_j0

    host = PluginHost([PluginEntry("cpu", plugin=rlx_cpu.plugin), PluginEntry("acme_bessel", plugin=acme_bessel.plugin)])
    x = np.linspace(-20, 20, 101)
    f = rlx.jit(lambda x: rlx.scan(lambda c, e: (c + bessel_j0(e), bessel_j0(e)), np.zeros(()), bessel_j0(x) * x),
                target="cpu", host=host)
    total, each = f(x)
    np.testing.assert_allclose(np.asarray(each), j0(j0(x) * x), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(float(total), j0(j0(x) * x).sum(), rtol=1e-12)
    print(f.report.tiers.summary, f.executables[0]._shared.latest.program.code_origin, "acme_bessel.native" in sys.modules)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in PACKAGE.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return tmp_path


def run(folder: Path) -> str:
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": path, "RLX_CACHE_DIR": str(folder / "cache")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.medium
@linux_only
def test_a_kernel_of_a_package_calls_the_c_library_inside_and_outside_of_loops(folder: Path) -> None:
    assert run(folder).startswith("3 of 3 steps native compiled")


@pytest.mark.medium
@linux_only
def test_code_from_the_cache_finds_the_function(folder: Path) -> None:
    run(folder)
    assert " cached " in run(folder)


def test_a_function_that_cannot_be_loaded_is_named() -> None:
    with pytest.raises(KernelBuildError, match="acme_absent cannot be loaded from os:absent"):
        bind_symbols([("acme_absent", "os:absent")])
    with pytest.raises(KernelBuildError, match=r"os:getcwd returned '.*' as the address"):
        bind_symbols([("acme_text", "os:getcwd")])


def test_one_symbol_for_two_functions_is_refused() -> None:
    bind_symbols([("acme_process", "os:getpid")] * 2)
    with pytest.raises(KernelBuildError, match="two foreign functions have the symbol acme_process"):
        bind_symbols([("acme_process", "os:getppid")])
