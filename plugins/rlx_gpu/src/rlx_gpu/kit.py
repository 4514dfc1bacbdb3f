"""The public names for packages that add a GPU language or a target that takes one; `rlx_core.kit` has those of the core.

A language is a `GpuDialect`: a record of the C family, often made from parts of `c_family`, or a subclass with another grammar. A
target is a subclass of `GpuBackend` that names the language and finds devices. `tests/kit_names.txt` lists the names, which are
deprecated for two releases before they are removed (decision 0056).
"""

from rlx_core.system.deprecated import deprecated_names
from rlx_gpu.backend import GpuBackend
from rlx_gpu.codegen.c_family import (
    F16_OF_F32,
    F32_OF_F16,
    FRAGMENTS,
    REAL_DTYPES,
    WITHOUT_F64,
    builtins,
    fault_fragment,
)
from rlx_gpu.codegen.cuda import CUDA, HIP
from rlx_gpu.codegen.languages import Argument, BufferKind, Builtin, GpuDialect, ProductTemplate
from rlx_gpu.codegen.metal import METAL
from rlx_gpu.codegen.opencl import OPENCL
from rlx_gpu.codegen.units.matrix_units import MatrixUnit
from rlx_gpu.codegen.walks import Machine
from rlx_gpu.codegen.wgsl import WGSL
from rlx_gpu.language import GpuLanguage

__all__ = [
    "CUDA",
    "F16_OF_F32",
    "F32_OF_F16",
    "FRAGMENTS",
    "HIP",
    "METAL",
    "OPENCL",
    "REAL_DTYPES",
    "WGSL",
    "WITHOUT_F64",
    "Argument",
    "BufferKind",
    "Builtin",
    "GpuBackend",
    "GpuDialect",
    "GpuLanguage",
    "Machine",
    "MatrixUnit",
    "ProductTemplate",
    "builtins",
    "fault_fragment",
]

__getattr__ = deprecated_names(__name__, {"Language": ("rlx_gpu.kit:GpuDialect", "0.4")})
