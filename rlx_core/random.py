"""Random numbers, by the names that JAX's users know: `rlx.random.normal(key, (3, 4))`.

Every draw is a function of a key, and there is no hidden state: the same key gives the same numbers, on every device and with any
number of threads, and new numbers need a new key, from `split` or `fold_in`. The definitions are in `rlx_core.ops.random`.
"""

from typing import Any

from rlx_core.ops.random.choices import categorical, choice, filter_logits, permutation, randint, sample_logits
from rlx_core.ops.random.draws import bernoulli, bits, exponential, gumbel, laplace, normal, truncated_normal, uniform
from rlx_core.ops.random.inverses import (
    cauchy,
    geometric,
    logistic,
    lognormal,
    pareto,
    rademacher,
    rayleigh,
    triangular,
    weibull,
)
from rlx_core.ops.random.keys import fold_in, key, key_data, split, wrap_key_data
from rlx_core.ops.random.rejection import beta, chisquare, dirichlet, gamma, loggamma, poisson, t
from rlx_core.ops.random.vectors import binomial, multinomial, multivariate_normal
from rlx_core.public import absent
from rlx_core.trees.key import Key

__all__ = [
    "Key",
    "bernoulli",
    "beta",
    "binomial",
    "bits",
    "categorical",
    "cauchy",
    "chisquare",
    "choice",
    "dirichlet",
    "exponential",
    "filter_logits",
    "fold_in",
    "gamma",
    "geometric",
    "gumbel",
    "key",
    "key_data",
    "laplace",
    "loggamma",
    "logistic",
    "lognormal",
    "multinomial",
    "multivariate_normal",
    "normal",
    "pareto",
    "permutation",
    "poisson",
    "rademacher",
    "randint",
    "rayleigh",
    "sample_logits",
    "split",
    "t",
    "triangular",
    "truncated_normal",
    "uniform",
    "weibull",
    "wrap_key_data",
]


def __getattr__(name: str) -> Any:
    raise absent(__name__, name, __all__)
