"""The public names for packages that add a GPU language or a target that takes one; `rlx_core.kit` has those of the core.

A language is a `GpuDialect`: a record of the C family, often made from parts of `c_family`, or a subclass with another grammar. A
target is a subclass of `GpuBackend` that names the language and finds devices. `tests/kit_names.txt` lists the names, which are
deprecated for two releases before they are removed (decision 0056).
"""

import typing

from rlx_core import public
from rlx_core.system import deprecated
from rlx_gpu.backend import GpuBackend as GpuBackend
from rlx_gpu.codegen.c_family import F16_OF_F32 as F16_OF_F32
from rlx_gpu.codegen.c_family import F32_OF_F16 as F32_OF_F16
from rlx_gpu.codegen.c_family import FRAGMENTS as FRAGMENTS
from rlx_gpu.codegen.c_family import REAL_DTYPES as REAL_DTYPES
from rlx_gpu.codegen.c_family import WITHOUT_F64 as WITHOUT_F64
from rlx_gpu.codegen.c_family import builtins as builtins
from rlx_gpu.codegen.c_family import fault_fragment as fault_fragment
from rlx_gpu.codegen.cuda import CUDA as CUDA
from rlx_gpu.codegen.cuda import HIP as HIP
from rlx_gpu.codegen.languages import Argument as Argument
from rlx_gpu.codegen.languages import BufferKind as BufferKind
from rlx_gpu.codegen.languages import Builtin as Builtin
from rlx_gpu.codegen.languages import GpuDialect as GpuDialect
from rlx_gpu.codegen.languages import ProductTemplate as ProductTemplate
from rlx_gpu.codegen.metal import METAL as METAL
from rlx_gpu.codegen.opencl import OPENCL as OPENCL
from rlx_gpu.codegen.units.matrix_units import MatrixUnit as MatrixUnit
from rlx_gpu.codegen.walks import Machine as Machine
from rlx_gpu.codegen.wgsl import WGSL as WGSL
from rlx_gpu.language import GpuLanguage as GpuLanguage

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__ = public.reexports(__name__)[0]

__getattr__ = deprecated.deprecated_names(__name__, {"Language": ("rlx_gpu.kit:GpuDialect", "0.4")})
