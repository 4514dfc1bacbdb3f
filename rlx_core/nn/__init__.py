"""Functions for writing models: `from rlx_core import nn`.

A layer that HIR has as a block records the block, so that the fusion policy selects its implementation; all others record ops.
Weights multiply from the right: `weight` is `[in, out]`, and a weight that is stored as `[out, in]` is passed as `weight.T`,
which stays a view. Sizes that follow from the operands are not arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlx_core.nn import init as init
from rlx_core.nn.activations import (
    gelu,
    glu,
    gumbel_softmax,
    hard_shrink,
    leaky_relu,
    log_sigmoid,
    normalize,
    prelu,
    soft_shrink,
    soft_sign,
    softmin,
    squareplus,
    standardize,
    tanh_shrink,
    threshold,
)
from rlx_core.nn.attending import attention, multi_head_attention, rope
from rlx_core.nn.dropping import alpha_dropout, dropout
from rlx_core.nn.layers import (
    bilinear,
    embedding,
    embedding_bag,
    linear,
    one_hot,
    residual_rms_norm,
    shared_linear_pair,
    swiglu,
)
from rlx_core.nn.losses.alignment import ctc_loss
from rlx_core.nn.losses.classes import cross_entropy, multi_margin_loss, nll_loss
from rlx_core.nn.losses.elements import (
    gaussian_nll_loss,
    huber_loss,
    l1_loss,
    log_cosh_loss,
    poisson_nll_loss,
    smooth_l1_loss,
)
from rlx_core.nn.losses.margins import (
    cosine_embedding_loss,
    cosine_similarity,
    hinge_embedding_loss,
    hinge_loss,
    margin_ranking_loss,
    pairwise_distance,
    soft_margin_loss,
    triplet_margin_loss,
)
from rlx_core.nn.losses.probabilities import (
    binary_cross_entropy,
    kl_div,
    multilabel_soft_margin_loss,
    sigmoid_focal_loss,
)
from rlx_core.nn.normalization import (
    batch_norm,
    batch_norm_inference,
    group_norm,
    instance_norm,
    layer_norm,
    local_response_norm,
    rms_norm,
)
from rlx_core.nn.sampling import affine_grid, channel_shuffle, grid_sample
from rlx_core.ops.convolution.layers import conv, conv_transpose, fold, unfold
from rlx_core.ops.fourier.mel import log_mel
from rlx_core.ops.loss import binary_cross_entropy_with_logits, mean_squared_error
from rlx_core.ops.pooling.adaptive import adaptive_avg_pool, adaptive_max_pool
from rlx_core.ops.pooling.layers import (
    avg_pool,
    global_avg_pool,
    global_max_pool,
    lp_pool,
    max_pool,
    min_pool,
    prod_pool,
    sum_pool,
)
from rlx_core.ops.pooling.unpooling import fractional_max_pool, max_unpool
from rlx_core.ops.resize.layers import pixel_shuffle, pixel_unshuffle, resize
from rlx_core.public import absent
from rlx_core.sequences import gated_delta_net, gru, linear_attention, lstm, selective_scan, update_cache

if TYPE_CHECKING:  # with the signatures of the stub
    from rlx_core import (
        celu,
        elu,
        hard_sigmoid,
        hard_swish,
        hard_tanh,
        log_softmax,
        mish,
        relu,
        relu6,
        selu,
        sigmoid,
        silu,
        softmax,
        softplus,
        tanh,
    )
else:
    from rlx_core.ops.activation import mish, relu, sigmoid, silu, softplus, tanh
    from rlx_core.ops.piecewise import celu, elu, hard_sigmoid, hard_swish, hard_tanh, relu6, selu
    from rlx_core.ops.softmax import log_softmax, softmax

__all__ = [
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "affine_grid",
    "alpha_dropout",
    "attention",
    "avg_pool",
    "batch_norm",
    "batch_norm_inference",
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "channel_shuffle",
    "conv",
    "conv_transpose",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "ctc_loss",
    "dropout",
    "elu",
    "embedding",
    "embedding_bag",
    "fold",
    "fractional_max_pool",
    "gated_delta_net",
    "gaussian_nll_loss",
    "gelu",
    "global_avg_pool",
    "global_max_pool",
    "glu",
    "grid_sample",
    "group_norm",
    "gru",
    "gumbel_softmax",
    "hard_shrink",
    "hard_sigmoid",
    "hard_swish",
    "hard_tanh",
    "hinge_embedding_loss",
    "hinge_loss",
    "huber_loss",
    "instance_norm",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "linear_attention",
    "local_response_norm",
    "log_cosh_loss",
    "log_mel",
    "log_sigmoid",
    "log_softmax",
    "lp_pool",
    "lstm",
    "margin_ranking_loss",
    "max_pool",
    "max_unpool",
    "mean_squared_error",
    "min_pool",
    "mish",
    "multi_head_attention",
    "multi_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pairwise_distance",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll_loss",
    "prelu",
    "prod_pool",
    "relu",
    "relu6",
    "residual_rms_norm",
    "resize",
    "rms_norm",
    "rope",
    "selective_scan",
    "selu",
    "shared_linear_pair",
    "sigmoid",
    "sigmoid_focal_loss",
    "silu",
    "smooth_l1_loss",
    "soft_margin_loss",
    "soft_shrink",
    "soft_sign",
    "softmax",
    "softmin",
    "softplus",
    "squareplus",
    "standardize",
    "sum_pool",
    "swiglu",
    "tanh",
    "tanh_shrink",
    "threshold",
    "triplet_margin_loss",
    "unfold",
    "update_cache",
]


def __getattr__(name: str) -> Any:
    raise absent(__name__, name, __all__)
