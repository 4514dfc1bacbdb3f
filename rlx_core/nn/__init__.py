"""Functions for writing models: `from rlx_core import nn`.

A layer that HIR has as a block records the block, so that the fusion policy selects its implementation; all others record ops.
Weights multiply from the right: `weight` is `[in, out]`, and a weight that is stored as `[out, in]` is passed as `weight.T`,
which stays a view. Sizes that follow from the operands are not arguments.
"""

import typing

from rlx_core import celu as celu
from rlx_core import elu as elu
from rlx_core import hard_sigmoid as hard_sigmoid
from rlx_core import hard_swish as hard_swish
from rlx_core import hard_tanh as hard_tanh
from rlx_core import log_softmax as log_softmax
from rlx_core import mish as mish
from rlx_core import public
from rlx_core import relu as relu
from rlx_core import relu6 as relu6
from rlx_core import selu as selu
from rlx_core import sigmoid as sigmoid
from rlx_core import silu as silu
from rlx_core import softmax as softmax
from rlx_core import softplus as softplus
from rlx_core import tanh as tanh
from rlx_core.nn import init as init
from rlx_core.nn.activations import *
from rlx_core.nn.attending import *
from rlx_core.nn.dropping import *
from rlx_core.nn.layers import *
from rlx_core.nn.losses.alignment import *
from rlx_core.nn.losses.classes import *
from rlx_core.nn.losses.elements import *
from rlx_core.nn.losses.margins import *
from rlx_core.nn.losses.probabilities import *
from rlx_core.nn.normalization import *
from rlx_core.nn.sampling import *
from rlx_core.ops.convolution.layers import *
from rlx_core.ops.fourier.mel import *
from rlx_core.ops.loss import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
from rlx_core.ops.loss import mean_squared_error as mean_squared_error
from rlx_core.ops.pooling.adaptive import *
from rlx_core.ops.pooling.layers import *
from rlx_core.ops.pooling.unpooling import fractional_max_pool as fractional_max_pool
from rlx_core.ops.pooling.unpooling import max_unpool as max_unpool
from rlx_core.ops.resize.layers import *
from rlx_core.sequences import *

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__, __getattr__ = public.reexports(__name__)
