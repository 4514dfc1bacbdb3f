"""Names that people know from elsewhere, and what rlx has for them; read when a name of rlx is not found, and at no other time.

`docs/names.md` shows the tables. A test looks up every rlx name in them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["ELSEWHERE", "INTERNAL", "RENAMED", "hint_for"]

RENAMED: Final[dict[str, str]] = {
    # what rlx has → its names in NumPy, JAX and PyTorch, and the op that `rlx ops` lists
    "rlx.abs": "absolute fabs",
    "rlx.acos": "arccos",
    "rlx.acosh": "arccosh",
    "rlx.all": "alltrue",
    "rlx.any": "sometrue",
    "rlx.argmax": "arg_max",
    "rlx.argmin": "arg_min",
    "rlx.argsort": "arg_sort",
    "rlx.asin": "arcsin",
    "rlx.asinh": "arcsinh",
    "rlx.astype": "cast convert_element_type asarray_dtype",
    "rlx.atan": "arctan",
    "rlx.atan2": "arctan2",
    "rlx.atanh": "arctanh",
    "rlx.attention": "scaled_dot_product_attention dot_product_attention",
    "rlx.bitcast": "bitcast_convert_type bit_cast",
    "rlx.bitwise_invert": "bitwise_not invert",
    "rlx.bitwise_left_shift": "left_shift shift_left",
    "rlx.bitwise_right_shift": "right_shift shift_right",
    "rlx.broadcast_to": "expand expand_as",
    "rlx.checkpoint": "remat",
    "rlx.clip": "clamp clip_by_value",
    "rlx.concat": "concatenate cat hstack vstack row_stack column_stack",
    "rlx.copysign": "copy_sign",
    "rlx.cumulative_logsumexp": "cum_log_sum_exp logcumsumexp cumlogsumexp",
    "rlx.cumulative_max": "cummax",
    "rlx.cumulative_min": "cummin",
    "rlx.cond": "if",
    "rlx.cumulative_prod": "cumprod",
    "rlx.cumulative_sum": "cumsum",
    "rlx.divide": "div true_divide",
    "rlx.equal": "eq",
    "rlx.exp2": "exp_2",
    "rlx.expand_dims": "unsqueeze",
    "rlx.eye": "identity",
    "rlx.flip": "fliplr flipud reverse rev",
    "rlx.floor_divide": "floor_div",
    "rlx.gather": "embedding_lookup index_select",
    "rlx.gelu_approx": "gelu_tanh",
    "rlx.grad": "autograd elementwise_grad backward",
    "rlx.greater": "gt",
    "rlx.greater_equal": "ge",
    "rlx.grouped_matmul": "ragged_dot",
    "rlx.isfinite": "is_finite",
    "rlx.isinf": "is_inf",
    "rlx.isnan": "is_nan",
    "rlx.jacrev": "jacobian",
    "rlx.jit": "function script pmap",
    "rlx.less": "lt",
    "rlx.less_equal": "le",
    "rlx.lgamma": "gammaln loggamma",
    "rlx.logaddexp": "log_add_exp",
    "rlx.logsumexp": "log_sum_exp",
    "rlx.map": "map_fn",
    "rlx.matmul": "dot mm bmm mat_mul inner dot_general batch_matmul",
    "rlx.matrix_transpose": "adjoint mT",
    "rlx.max": "amax reduce_max",
    "rlx.mean": "average reduce_mean",
    "rlx.min": "amin reduce_min",
    "rlx.multiply": "mul",
    "rlx.negative": "neg",
    "rlx.nextafter": "next_after next_on_grid",
    "rlx.not_equal": "ne",
    "rlx.permute_dims": "transpose permute swapaxes",
    "rlx.pow": "power float_power",
    "rlx.prod": "product reduce_prod",
    "rlx.reciprocal": "reciprocal_",
    "rlx.remainder": "mod fmod",
    "rlx.reshape": "ravel flatten view",
    "rlx.round": "rint around round_",
    "rlx.save": "savez dump",
    "rlx.scatter": "index_update index_add segment_sum",
    "rlx.searchsorted": "search_sorted digitize",
    "rlx.sigmoid": "expit logistic",
    "rlx.sign": "sgn",
    "rlx.signbit": "sign_bit",
    "rlx.solve": "dense_solve batched_dense_solve",
    "rlx.spec": "ShapeDtypeStruct TensorSpec",
    "rlx.split": "array_split chunk vsplit hsplit narrow",
    "rlx.squeeze": "squeeze_",
    "rlx.stop_gradient": "detach",
    "rlx.straight_through": "ste",
    "rlx.subtract": "sub",
    "rlx.take_along_axis": "take_along_dim",
    "rlx.top_k": "topk",
    "rlx.trace": "make_jaxpr symbolic_trace",
    "rlx.trunc": "fix truncate",
    "rlx.vecdot": "vdot",
    "rlx.vmap": "vectorize",
    "rlx.switch": "switch_case",
    "rlx.where": "select masked_fill piecewise",
    "rlx.while_loop": "while",
    "optim.clip_by_global_norm": "clip_grad_norm_ clip_grad_norm",
    "optim.clip": "clip_grad_value_",
    "optim.cosine_decay_schedule": "CosineAnnealingLR cosine_onecycle_schedule",
    "optim.dynamic_loss_scale": "GradScaler",
    "optim.exponential_decay": "ExponentialLR",
    "optim.linear_schedule": "LinearLR",
    "optim.multi_steps": "MultiSteps",
    "optim.multi_transform": "partition",
    "optim.piecewise_constant_schedule": "MultiStepLR StepLR",
    "optim.sgd": "SGD",
    "optim.adam": "Adam",
    "optim.adamw": "AdamW",
    "optim.rmsprop": "RMSprop",
    "optim.adagrad": "Adagrad",
    "nn.dropout": "dropout Dropout",
    "nn.adaptive_avg_pool": "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d AdaptiveAvgPool2d",
    "nn.adaptive_max_pool": "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d AdaptiveMaxPool2d",
    "nn.avg_pool": "avg_pool avg_pool1d avg_pool2d avg_pool3d AvgPool2d",
    "nn.batch_norm": "BatchNorm BatchNorm1d BatchNorm2d BatchNorm3d",
    "nn.conv": "conv conv1d conv2d conv3d Conv Conv1d Conv2d Conv3d conv_general_dilated",
    "nn.conv_transpose": "conv_transpose conv_transpose1d conv_transpose2d conv_transpose3d ConvTranspose ConvTranspose2d",
    "nn.cross_entropy": "softmax_cross_entropy_with_logits softmax_cross_entropy",
    "nn.embedding": "Embedding",
    "nn.fold": "Fold col2im overlap_add",
    "nn.layer_norm": "LayerNorm layer_norm2d",
    "nn.linear": "Linear Dense dense",
    "nn.lp_pool": "lp_pool1d lp_pool2d lp_pool3d LPPool2d",
    "nn.max_pool": "max_pool max_pool1d max_pool2d max_pool3d MaxPool2d",
    "nn.mean_squared_error": "mse_loss MSELoss",
    "nn.min_pool": "min_pool",
    "nn.pixel_shuffle": "PixelShuffle",
    "nn.resize": "resize interpolate upsample Upsample",
    "nn.swiglu": "glu",
    "nn.unfold": "Unfold im2col sliding_windows sliding_window_view",
}
"""What rlx has → what others call it."""

ELSEWHERE: Final[dict[str, str]] = {
    "array": "NumPy arrays, and any with DLPack or a buffer, are passed as they are",
    "tensor": "NumPy arrays, and any with DLPack or a buffer, are passed as they are",
    "Tensor": "annotate with rlx.Array; NumPy arrays are passed as they are",
    "ndarray": "annotate with rlx.Array; NumPy arrays are passed as they are",
    "call": "an op that holds a graph; rlx.jit functions are called inside others as they are",
    "custom_fn": "a function states its derivative with rlx.custom_vjp or rlx.custom_jvp, an op with a rule",
    "later": "rlx.checkpoint says what is computed again later, rlx.optimization_barrier keeps things apart",
    "dim_value": "a size is used as a number: x.shape[0]",
    "float": "dtypes have their sizes: rlx.f32",
    "double": "dtypes have their sizes: rlx.f64",
    "half": "dtypes have their sizes: rlx.f16",
    "int": "dtypes have their sizes: rlx.i64",
    "long": "dtypes have their sizes: rlx.i64",
    "no_grad": "only what rlx.grad differentiates has a gradient; rlx.stop_gradient cuts one off",
    "argwhere": "how many there are is only known when the program runs: rlx.where selects, rlx.count_nonzero counts",
    "numpy": "the functions are in rlx_core itself: rlx.sum, rlx.concat",
    "lax": "the functions are in rlx_core itself: rlx.scan, rlx.cond, rlx.dynamic_slice, rlx.gather",
    "functional": "the functions that models are written with are in rlx_core.nn",
    "Module": "a model is a function of its parameters, any pytree of arrays: nn.linear(x, params['w'], params['b'])",
    "manual_seed": "there is no hidden state: rlx.random.key(seed) is passed to what draws",
    "PRNGKey": "rlx.random.key(seed)",
    "random_bits": "rlx.random.bits(key, shape)",
    "random_word": "rlx.random.bits(key, shape)",
    "rand": "rlx.random.uniform(key, shape)",
    "randn": "rlx.random.normal(key, shape)",
    "randint": "rlx.random.randint(key, shape, minval, maxval)",
    "randperm": "rlx.random.permutation(key, n)",
    "bernoulli": "rlx.random.bernoulli(key, p, shape)",
    "multinomial": "rlx.random.categorical(key, logits, shape=...), or rlx.random.choice(key, n, shape, p=...)",
    "tree": "any pytree of arrays is an argument or a result; optree has the functions of trees",
    "tree_map": "any pytree of arrays is an argument or a result; optree.tree_map maps over one",
    "tree_util": "any pytree of arrays is an argument or a result; optree has the functions of trees",
    "block_until_ready": "a call returns when its results are there",
    "norm": "rlx.linalg.vector_norm, or rlx.linalg.matrix_norm",
    **{
        name: f"rlx.linalg.{name}"
        for name in ["cholesky", "cross", "det", "eigh", "inv", "matrix_power", "pinv", "qr", "slogdet", "svd"]
    },
    "sum_pool": "nn.avg_pool, times the cells of a window",
    "prod_pool": "nn.unfold, and rlx.prod over the cells of a window",
    **{
        name: f"rlx.fft.{name}"
        for name in [
            "ifft",
            "rfft",
            "irfft",
            "fft2",
            "fftn",
            "hfft",
            "fftfreq",
            "rfftfreq",
            "fftshift",
            "stft",
            "istft",
        ]
    },
    "real_fft": "rlx.fft.rfft",
    "inverse_real_fft": "rlx.fft.irfft",
    "unique": "how many there are is only known when the program runs: rlx.sort, and compare neighbours",
}
"""A name → what to do instead, where no one function is its equal."""

INTERNAL: Final = ("fused_", "folded_", "_backward", "_block", "elementwise_region", "pool_positions")
"""Parts of the names of ops that passes and derivatives write, and nobody by hand."""

_FOUND = {name: here for here, names in RENAMED.items() for name in names.split()}


def hint_for(name: str, known: Iterable[str]) -> str | None:
    """What to write instead of a name that a module has not, as far as that is known; `known` is what the module has."""
    from rlx_core.public import CORE, FUNCTIONS  # that module's own errors come from here

    if name in _FOUND:
        return f"rlx calls it {_FOUND[name]}"
    if name in ELSEWHERE:
        return ELSEWHERE[name]
    if name in CORE or name in FUNCTIONS:
        return f"it is rlx.{name}"
    if any(part in name for part in INTERNAL):
        return "the compiler makes this op from others; `rlx why` and `rlx plan` say where"
    return None
