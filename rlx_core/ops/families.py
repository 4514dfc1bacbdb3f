"""The table of the modules of all ops: an op can be looked up by name without importing the other modules.

A test compares this with the op classes that the modules define.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # rlx's own plugin reads this table, and must stay as light as anyone's
    from rlx_core.ir.op import Op

FAMILIES: Final[Mapping[str, str]] = {
    "activation": (
        "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt cbrt tanh erf erfc erfinv sigmoid relu gelu "
        "gelu_approx silu mish softplus"
    ),
    "along_axis": "take_along_axis put_along_axis",
    "arithmetic": "add sub mul div floor_div mod pow max min neg sign abs square reciprocal hypot atan2 log_add_exp",
    "attention": "attention attention_backward",
    "batch_norm": "batch_norm_inference batch_norm",
    "bitwise": "bitwise_and bitwise_or bitwise_xor bitwise_not shift_left shift_right",
    "block_scaled": "block_scaled_matmul",
    "blocks": (
        "linear_block linear_fused_block shared_linear_pair_block swiglu_block residual_rms_norm_block "
        "llama_decoder_block"
    ),
    "call": "call",
    "collectives": "psum pmean pmax pmin axis_index",
    "comparison": "eq ne lt le gt ge logical_and logical_or logical_xor logical_not is_nan is_inf is_finite sign_bit",
    "complex": "complex_abs angle imag make_complex complex_norm_sq",
    "control.conditional": "if",
    "control.loop": "while",
    "control.scan": "scan",
    "conversion": "cast conjugate real",
    "convolution.conv": "conv conv_backward_input conv_backward_weight",
    "convolution.folded": "folded_matmul",
    "convolution.sliding": "sliding_windows overlap_add",
    "convolution.transposed": "conv_transpose",
    "counting": "count_nonzero any all arg_max arg_min",
    "creation": "dim_value iota full eye one_hot linspace",
    "cumulative": "cumsum linear_recurrence cumprod cummax cummin cum_log_sum_exp",
    "derivatives.checkpoint": "later checkpoint checkpoint_name",
    "derivatives.custom_fn": "custom_fn",
    "dynamic": "dynamic_slice dynamic_update_slice",
    "einsum": "einsum",
    "floating": "copy_sign next_on_grid next_after bitcast",
    "fourier.fourier": "fft real_fft inverse_real_fft",
    "fused": "fused_matmul_bias_act fused_residual_ln fused_residual_rms_norm fused_swiglu",
    "fused_grouped_matmul": "fused_grouped_matmul",
    "fused_loop": "fused_loop",
    "fused_matmul_epilogue": "fused_matmul_epilogue",
    "fused_matmul_prologue": "fused_matmul_prologue",
    "gamma": "lgamma digamma polygamma",
    "gather_nd": "gather_nd scatter_nd",
    "host.callback": "pure_callback debug_callback",
    "indexing": "gather scatter_add",
    "linalg": "matmul dot_general",
    "loss": "softmax_cross_entropy_with_logits softmax_cross_entropy_backward",
    "movement": "narrow concat pad flip",
    "normalization": "layer_norm rms_norm group_norm layer_norm2d",
    "normalization_backward": "layer_norm_backward_input rms_norm_backward_input group_norm_backward_input",
    "pairs.pairs": "view_as_real view_as_complex",
    "piecewise": "floor ceil trunc selu relu6 hard_tanh hard_sigmoid hard_swish round leaky_relu elu celu",
    "pooling.extremes": "max_pool min_pool",
    "pooling.positions": "pool_positions",
    "pooling.totals": "sum_pool avg_pool prod_pool",
    "products": "lora_matmul grouped_matmul",
    "quantized_attention": "quantized_attention",
    "random.bits": "random_bits dropout",
    "random.philox": "random_word",
    "random.gamma_slope": "following_shape",
    "random.refusing": "undifferentiated",
    "rearrange": "roll tile repeat tril triu diagonal diag",
    "reduction": "mean reduce_max reduce_min prod log_sum_exp var std",
    "region": "elementwise_region",
    "resize.resample": "resize",
    "rope": "rope rope_backward",
    "scatter": "scatter",
    "selection": "where clip stop_gradient straight_through optimization_barrier",
    "softmax": "softmax log_softmax",
    "solve": "dense_solve batched_dense_solve",
    "sorting": "sort arg_sort top_k search_sorted",
    "structural": "reshape expand transpose sum",
    "trigonometry": "sin cos tan sinh cosh asin acos atan asinh acosh atanh",
}
"""Module of `rlx_core.ops` → the names of its ops, without the domain."""


class Family:
    """The op classes of a module of `rlx_core.ops`, in the order of the table; the module is imported when they are iterated."""

    def __init__(self, module: str) -> None:
        self.module = module

    def __iter__(self) -> Iterator[type[Op]]:
        from rlx_core.ir.apply import OpFunction  # imported here, because reading the table needs no op
        from rlx_core.ir.op import Op

        members = vars(importlib.import_module(f"rlx_core.ops.{self.module}")).values()
        classes = [each.op if isinstance(each, OpFunction) else each for each in members]
        ops = {op.name: op for op in classes if isinstance(op, type) and issubclass(op, Op)}
        return (ops[f"rlx.{name}"] for name in FAMILIES[self.module].split())


REMOVED: Final[Mapping[str, str]] = {
    "batch_norm_inference_backward": "beta gamma mean var x",
    "complex_norm_sq": "backward",
    "fused": "attention_block transformer_layer",
    "group_norm_backward": "beta gamma",
    "layer_norm_backward": "gamma",
    "max_pool": "backward",
    "rms_norm_backward": "beta gamma",
}
"""Ops of earlier versions that are compositions of other ops now, by prefix; files of those versions may contain them."""


def removed_ops() -> frozenset[str]:
    """Return the full names of the ops of earlier versions."""
    return frozenset(f"rlx.{prefix}_{end}" for prefix, ends in REMOVED.items() for end in ends.split())
