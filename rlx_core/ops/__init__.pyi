# Printed by `python -m rlx_core.testing.api.stubs --update`; a test compares it with the functions. Edit those.

from attrs import field as field
from rlx_core.ir.dims import Dim as Dim
from rlx_core.ir.graph import Value as Value
from rlx_core.ir.kinks import Kink as Kink
from rlx_core.ir.op import Op as Op, ZERO as ZERO, Zero as Zero, define_op as define_op
from rlx_core.ir.types import (
    TensorType as TensorType, broadcast_shapes as broadcast_shapes, expect_dtype as expect_dtype,
    expect_rank as expect_rank, expect_shape as expect_shape, same_dim as same_dim, spec as spec
)
from rlx_core.ops.activation import (
    cbrt as cbrt, erf as erf, erfc as erfc, erfinv as erfinv, exp as exp, exp2 as exp2, expm1 as expm1, gelu as gelu,
    gelu_approx as gelu_approx, log as log, log10 as log10, log1p as log1p, log2 as log2, mish as mish, relu as relu,
    rsqrt as rsqrt, sigmoid as sigmoid, silu as silu, softplus as softplus, sqrt as sqrt, tanh as tanh
)
from rlx_core.ops.along_axis import put_along_axis as put_along_axis
from rlx_core.ops.arithmetic import (
    abs as abs, add as add, atan2 as atan2, divide as divide, floor_divide as floor_divide, hypot as hypot,
    logaddexp as logaddexp, maximum as maximum, minimum as minimum, multiply as multiply, negative as negative,
    pow as pow, reciprocal as reciprocal, remainder as remainder, sign as sign, square as square, subtract as subtract
)
from rlx_core.ops.arity import op_function as op_function
from rlx_core.ops.array_creation import (
    arange as arange, asarray as asarray, empty as empty, empty_like as empty_like, eye as eye,
    from_dlpack as from_dlpack, linspace as linspace, meshgrid as meshgrid
)
from rlx_core.ops.array_elementwise import (
    ceil as ceil, clip as clip, conj as conj, conjugate as conjugate, floor as floor, imag as imag,
    positive as positive, real as real, round as round, trunc as trunc
)
from rlx_core.ops.array_info import (
    can_cast as can_cast, finfo as finfo, iinfo as iinfo, isdtype as isdtype, result_type as result_type
)
from rlx_core.ops.array_search import (
    argmax as argmax, argmin as argmin, argsort as argsort, nonzero as nonzero, searchsorted as searchsorted,
    sort as sort, take as take, take_along_axis as take_along_axis, top_k as top_k, unique_all as unique_all,
    unique_counts as unique_counts, unique_inverse as unique_inverse, unique_values as unique_values
)
from rlx_core.ops.array_shapes import (
    broadcast_arrays as broadcast_arrays, broadcast_to as broadcast_to, diag as diag, diagonal as diagonal,
    expand_dims as expand_dims, flip as flip, matrix_transpose as matrix_transpose, moveaxis as moveaxis, pad as pad,
    permute_dims as permute_dims, repeat as repeat, reshape as reshape, roll as roll, split as split,
    squeeze as squeeze, stack as stack, swapaxes as swapaxes, tile as tile, unstack as unstack
)
from rlx_core.ops.array_statistics import (
    all as all, any as any, astype as astype, count_nonzero as count_nonzero,
    cumulative_logsumexp as cumulative_logsumexp, cumulative_max as cumulative_max, cumulative_min as cumulative_min,
    cumulative_prod as cumulative_prod, cumulative_sum as cumulative_sum, diff as diff, logsumexp as logsumexp,
    max as max, mean as mean, min as min, prod as prod, std as std, sum as sum, var as var
)
from rlx_core.ops.batch_norm import batch_norm_inference as batch_norm_inference
from rlx_core.ops.bitwise import (
    bitwise_and as bitwise_and, bitwise_invert as bitwise_invert, bitwise_left_shift as bitwise_left_shift,
    bitwise_or as bitwise_or, bitwise_right_shift as bitwise_right_shift, bitwise_xor as bitwise_xor
)
from rlx_core.ops.comparison import (
    equal as equal, greater as greater, greater_equal as greater_equal, isfinite as isfinite, isinf as isinf,
    isnan as isnan, less as less, less_equal as less_equal, logical_and as logical_and, logical_not as logical_not,
    logical_or as logical_or, logical_xor as logical_xor, not_equal as not_equal, signbit as signbit
)
from rlx_core.ops.complex import (
    complex_abs as complex_abs, complex_norm_sq as complex_norm_sq, make_complex as make_complex
)
from rlx_core.ops.creation import (
    full as full, full_like as full_like, iota as iota, one_hot as one_hot, ones as ones, ones_like as ones_like,
    zeros as zeros, zeros_like as zeros_like
)
from rlx_core.ops.cumulative import linear_recurrence as linear_recurrence
from rlx_core.ops.floating import bitcast as bitcast, copysign as copysign, nextafter as nextafter
from rlx_core.ops.gamma import digamma as digamma, lgamma as lgamma, polygamma as polygamma
from rlx_core.ops.gather_nd import scatter_nd as scatter_nd
from rlx_core.ops.indexing import gather as gather, scatter_add as scatter_add
from rlx_core.ops.kinds import promoted as promoted
from rlx_core.ops.linalg import matmul as matmul, outer as outer, tensordot as tensordot, vecdot as vecdot
from rlx_core.ops.movement import concat as concat
from rlx_core.ops.normalization import group_norm as group_norm, layer_norm as layer_norm, rms_norm as rms_norm
from rlx_core.ops.numeric.bins import (
    bincount as bincount, histogram as histogram, segment_max as segment_max, segment_mean as segment_mean,
    segment_min as segment_min, segment_prod as segment_prod, segment_sum as segment_sum
)
from rlx_core.ops.numeric.elementwise import (
    allclose as allclose, angle as angle, array_equal as array_equal, deg2rad as deg2rad, fmax as fmax, fmin as fmin,
    fmod as fmod, heaviside as heaviside, isclose as isclose, isneginf as isneginf, isposinf as isposinf,
    logaddexp2 as logaddexp2, nan_to_num as nan_to_num, rad2deg as rad2deg, sinc as sinc
)
from rlx_core.ops.numeric.interpolation import interp as interp, polyval as polyval
from rlx_core.ops.numeric.quantiles import (
    median as median, nanmedian as nanmedian, nanpercentile as nanpercentile, nanquantile as nanquantile,
    percentile as percentile, quantile as quantile
)
from rlx_core.ops.numeric.signals import convolve as convolve, correlate as correlate
from rlx_core.ops.numeric.statistics import (
    average as average, corrcoef as corrcoef, cov as cov, trapezoid as trapezoid
)
from rlx_core.ops.numeric.without_nan import (
    nanargmax as nanargmax, nanargmin as nanargmin, nanmax as nanmax, nanmean as nanmean, nanmin as nanmin,
    nanprod as nanprod, nanstd as nanstd, nansum as nansum, nanvar as nanvar
)
from rlx_core.ops.pairs.pairs import view_as_complex as view_as_complex, view_as_real as view_as_real
from rlx_core.ops.piecewise import (
    celu as celu, elu as elu, hard_sigmoid as hard_sigmoid, hard_swish as hard_swish, hard_tanh as hard_tanh,
    leaky_relu as leaky_relu, relu6 as relu6, selu as selu
)
from rlx_core.ops.products import grouped_matmul as grouped_matmul, lora_matmul as lora_matmul
from rlx_core.ops.rearrange import tril as tril, triu as triu
from rlx_core.ops.samples import Rejected as Rejected, Sample as Sample
from rlx_core.ops.selection import (
    optimization_barrier as optimization_barrier, stop_gradient as stop_gradient, straight_through as straight_through,
    where as where
)
from rlx_core.ops.softmax import log_softmax as log_softmax
from rlx_core.ops.trigonometry import (
    acos as acos, acosh as acosh, asin as asin, asinh as asinh, atan as atan, atanh as atanh, cos as cos, cosh as cosh,
    sin as sin, sinh as sinh, tan as tan
)
from rlx_core.ops.windows import dynamic_slice as dynamic_slice, dynamic_update_slice as dynamic_update_slice

def family_names() -> tuple[str, ...]: ...

def standard_ops() -> tuple[type[Op], ...]: ...
