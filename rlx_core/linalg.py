"""Linear algebra by the names of the Python Array API: `rlx.linalg.solve(a, b)`.

Factorisations come from a package (rlx-custom-ops has them); the rest is part of rlx. The definitions are in
`rlx_core.ops.array_linalg` and its neighbours.
"""

import typing

from rlx_core import public
from rlx_core.ops.array_linalg import cholesky as cholesky
from rlx_core.ops.array_linalg import cross as cross
from rlx_core.ops.array_linalg import det as det
from rlx_core.ops.array_linalg import eig as eig
from rlx_core.ops.array_linalg import eigh as eigh
from rlx_core.ops.array_linalg import eigvals as eigvals
from rlx_core.ops.array_linalg import eigvalsh as eigvalsh
from rlx_core.ops.array_linalg import inv as inv
from rlx_core.ops.array_linalg import lstsq as lstsq
from rlx_core.ops.array_linalg import matrix_power as matrix_power
from rlx_core.ops.array_linalg import matrix_rank as matrix_rank
from rlx_core.ops.array_linalg import multi_dot as multi_dot
from rlx_core.ops.array_linalg import pinv as pinv
from rlx_core.ops.array_linalg import qr as qr
from rlx_core.ops.array_linalg import slogdet as slogdet
from rlx_core.ops.array_linalg import svd as svd
from rlx_core.ops.array_linalg import svdvals as svdvals
from rlx_core.ops.array_linalg import trace as trace
from rlx_core.ops.array_norms import matrix_norm as matrix_norm
from rlx_core.ops.array_norms import norm as norm
from rlx_core.ops.array_norms import vector_norm as vector_norm
from rlx_core.ops.array_shapes import diagonal as diagonal
from rlx_core.ops.array_shapes import matrix_transpose as matrix_transpose
from rlx_core.ops.linalg import matmul as matmul
from rlx_core.ops.linalg import outer as outer
from rlx_core.ops.linalg import tensordot as tensordot
from rlx_core.ops.linalg import vecdot as vecdot
from rlx_core.ops.solve import solve as solve

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__, __getattr__ = public.reexports(__name__)
