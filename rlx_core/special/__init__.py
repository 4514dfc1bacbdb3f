"""Special functions by SciPy's names, as `jax.scipy.special` and `torch.special` have them: `rlx.special.gammainc(a, x)`.

All of them take arrays, numbers and traced values of any floating dtype (integers become floats, as in `rlx.mean`), broadcast,
work on every target and have derivatives. Narrow floats are computed in f32. SciPy functions that are missing here are
compositions and have not been requested yet.
"""

from typing import Any

from rlx_core.nn.activations import log_sigmoid as log_expit
from rlx_core.ops.activation import erf, erfc, erfinv
from rlx_core.ops.activation import sigmoid as expit
from rlx_core.ops.array_statistics import logsumexp
from rlx_core.ops.gamma import digamma
from rlx_core.ops.gamma import lgamma as gammaln
from rlx_core.ops.numeric.elementwise import sinc
from rlx_core.ops.softmax import log_softmax, softmax
from rlx_core.public import absent
from rlx_core.special.bessel import i0, i0e, i1, i1e
from rlx_core.special.beta_family import betainc, betaln
from rlx_core.special.entropies import entr, kl_div, rel_entr, xlog1py, xlogy
from rlx_core.special.gamma_family import factorial, gamma, gammainc, gammaincc, multigammaln, polygamma, zeta
from rlx_core.special.normal import erfcx, log_ndtr, logit, ndtr, ndtri

psi = digamma

__all__ = [
    "betainc",
    "betaln",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "expit",
    "factorial",
    "gamma",
    "gammainc",
    "gammaincc",
    "gammaln",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "kl_div",
    "log_expit",
    "log_ndtr",
    "log_softmax",
    "logit",
    "logsumexp",
    "multigammaln",
    "ndtr",
    "ndtri",
    "polygamma",
    "psi",
    "rel_entr",
    "sinc",
    "softmax",
    "xlog1py",
    "xlogy",
    "zeta",
]


def __getattr__(name: str) -> Any:
    raise absent(__name__, name, __all__)
