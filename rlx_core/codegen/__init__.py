"""The computations of generated code, as data shared by all targets, independent of processor, language and kernel table.

The *loop language* describes regular kernels: index spaces, loads, scalar expressions, reductions and stores, built from the
definitions of ops. `scalars` defines each step on registers, and `places` the layouts of operands and results. A computation
without a loop kernel is a separate kind of problem: a product, movement, attention. A backend decides how a problem is blocked
and provides an assembler of its language (`scalars.assembler`); decision 0025 explains this separation.
"""

from typing import TYPE_CHECKING

from rlx_core.public import lazy_names

if TYPE_CHECKING:
    from rlx_core.codegen.formula import Formula, flops_of, formula_of
    from rlx_core.codegen.interpret import run_kernel
    from rlx_core.codegen.layout import kernel_of
    from rlx_core.codegen.loops import Kernel
    from rlx_core.codegen.parse import parse_kernel
    from rlx_core.codegen.places import Fault, Layout, Place
    from rlx_core.codegen.text import print_kernel
    from rlx_core.codegen.verify import check_kernel

__all__ = [
    "Fault",
    "Formula",
    "Kernel",
    "Layout",
    "Place",
    "check_kernel",
    "flops_of",
    "formula_of",
    "kernel_of",
    "parse_kernel",
    "print_kernel",
    "run_kernel",
]

if not TYPE_CHECKING:
    # A program from the cache knows places and builds no kernel.
    __getattr__, __dir__, _ = lazy_names(
        __name__,
        {
            "Formula": "rlx_core.codegen.formula",
            "flops_of": "rlx_core.codegen.formula",
            "formula_of": "rlx_core.codegen.formula",
            "run_kernel": "rlx_core.codegen.interpret",
            "kernel_of": "rlx_core.codegen.layout",
            "Kernel": "rlx_core.codegen.loops",
            "parse_kernel": "rlx_core.codegen.parse",
            "Fault": "rlx_core.codegen.places",
            "Layout": "rlx_core.codegen.places",
            "Place": "rlx_core.codegen.places",
            "print_kernel": "rlx_core.codegen.text",
            "check_kernel": "rlx_core.codegen.verify",
        },
    )
