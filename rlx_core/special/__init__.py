"""Special functions by SciPy's names, as `jax.scipy.special` and `torch.special` have them: `rlx.special.gammainc(a, x)`.

All of them take arrays, numbers and traced values of any floating dtype (integers become floats, as in `rlx.mean`), broadcast,
work on every target and have derivatives. Narrow floats are computed in f32. SciPy functions that are missing here are
compositions and have not been requested yet.
"""

import typing

from rlx_core import public
from rlx_core.nn import activations
from rlx_core.ops import activation
from rlx_core.ops import gamma as gamma_ops
from rlx_core.ops.activation import erf as erf
from rlx_core.ops.activation import erfc as erfc
from rlx_core.ops.activation import erfinv as erfinv
from rlx_core.ops.array_statistics import logsumexp as logsumexp
from rlx_core.ops.gamma import digamma as digamma
from rlx_core.ops.numeric.elementwise import sinc as sinc
from rlx_core.ops.softmax import log_softmax as log_softmax
from rlx_core.ops.softmax import softmax as softmax
from rlx_core.special.bessel import *
from rlx_core.special.beta_family import *
from rlx_core.special.entropies import *
from rlx_core.special.gamma_family import *
from rlx_core.special.normal import *

expit, log_expit = activation.sigmoid, activations.log_sigmoid
gammaln, psi = gamma_ops.lgamma, gamma_ops.digamma

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__, __getattr__ = public.reexports(__name__)
