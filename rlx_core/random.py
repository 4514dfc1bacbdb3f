"""Random numbers, by the names that JAX's users know: `rlx.random.normal(key, (3, 4))`.

Every draw is a function of a key, and there is no hidden state: the same key gives the same numbers, on every device and with any
number of threads, and new numbers need a new key, from `split` or `fold_in`. The definitions are in `rlx_core.ops.random`.
"""

import typing

from rlx_core import public
from rlx_core.ops.random.choices import *
from rlx_core.ops.random.draws import *
from rlx_core.ops.random.inverses import cauchy as cauchy
from rlx_core.ops.random.inverses import geometric as geometric
from rlx_core.ops.random.inverses import logistic as logistic
from rlx_core.ops.random.inverses import lognormal as lognormal
from rlx_core.ops.random.inverses import pareto as pareto
from rlx_core.ops.random.inverses import rademacher as rademacher
from rlx_core.ops.random.inverses import rayleigh as rayleigh
from rlx_core.ops.random.inverses import triangular as triangular
from rlx_core.ops.random.inverses import weibull as weibull
from rlx_core.ops.random.keys import fold_in as fold_in
from rlx_core.ops.random.keys import key as key
from rlx_core.ops.random.keys import key_data as key_data
from rlx_core.ops.random.keys import split as split
from rlx_core.ops.random.keys import wrap_key_data as wrap_key_data
from rlx_core.ops.random.rejection import *
from rlx_core.ops.random.vectors import *
from rlx_core.trees.key import Key as Key

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__, __getattr__ = public.reexports(__name__)
