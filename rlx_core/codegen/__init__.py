"""The computations of generated code, as data shared by all targets, independent of processor, language and kernel table.

The *loop language* describes regular kernels: index spaces, loads, scalar expressions, reductions and stores, built from the
definitions of ops. `scalars` defines each step on registers, and `places` the layouts of operands and results. A computation
without a loop kernel is a separate kind of problem: a product, movement, attention. A backend decides how a problem is blocked
and provides an assembler of its language (`scalars.assembler`); decision 0025 explains this separation.
"""

from typing import TYPE_CHECKING

from rlx_core.public import lazy_names, listed

if TYPE_CHECKING:
    from rlx_core.codegen.formula import Formula as Formula
    from rlx_core.codegen.formula import flops_of as flops_of
    from rlx_core.codegen.formula import formula_of as formula_of
    from rlx_core.codegen.interpret import run_kernel as run_kernel
    from rlx_core.codegen.layout import kernel_of as kernel_of
    from rlx_core.codegen.loops import Kernel as Kernel
    from rlx_core.codegen.parse import parse_kernel as parse_kernel
    from rlx_core.codegen.places import Fault as Fault
    from rlx_core.codegen.places import Layout as Layout
    from rlx_core.codegen.places import Place as Place
    from rlx_core.codegen.text import print_kernel as print_kernel
    from rlx_core.codegen.verify import check_kernel as check_kernel
else:
    # A program from the cache knows places and builds no kernel.
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        listed(
            {
                "rlx_core.codegen.formula": "Formula flops_of formula_of",
                "rlx_core.codegen.interpret": "run_kernel",
                "rlx_core.codegen.layout": "kernel_of",
                "rlx_core.codegen.loops": "Kernel",
                "rlx_core.codegen.parse": "parse_kernel",
                "rlx_core.codegen.places": "Fault Layout Place",
                "rlx_core.codegen.text": "print_kernel",
                "rlx_core.codegen.verify": "check_kernel",
            }
        ),
    )
