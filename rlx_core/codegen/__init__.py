"""The loop language that native backends share: regular kernels as data, built from what ops say of themselves.

It knows index spaces, loads, scalar expressions, reductions and stores, and how an op's decomposition becomes one kernel of
these. It knows no processor: a backend brings a printer (`printer.Printer`) that turns a kernel into its own language.
"""

from rlx_core.codegen.formula import Formula, formula_of
from rlx_core.codegen.interpret import run_kernel
from rlx_core.codegen.layout import kernel_of
from rlx_core.codegen.loops import Kernel
from rlx_core.codegen.parse import parse_kernel
from rlx_core.codegen.text import print_kernel
from rlx_core.codegen.verify import check_kernel

__all__ = ["Formula", "Kernel", "check_kernel", "formula_of", "kernel_of", "parse_kernel", "print_kernel", "run_kernel"]
