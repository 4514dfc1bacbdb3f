# What type checkers read in place of the lazy names of __init__.py; a test compares the two.

from rlx_core.builder import GraphBuilder as GraphBuilder
from rlx_core.ir.dims import symbol as symbol
from rlx_core.ir.dtypes import bf16 as bf16, bool_ as bool_, c128 as c128, c64 as c64, f16 as f16, f32 as f32, f64 as f64, i16 as i16, i32 as i32, i64 as i64, i8 as i8, u16 as u16, u32 as u32, u64 as u64, u8 as u8
from rlx_core.ir.graph import Graph as Graph, Value as Value
from rlx_core.ir.interpret import interpret as interpret
from rlx_core.ir.types import TensorType as TensorType, spec as spec
from rlx_core.ops.activation import cbrt as cbrt, erf as erf, erfc as erfc, erfinv as erfinv, exp as exp, exp2 as exp2, expm1 as expm1, gelu as gelu, gelu_approx as gelu_approx, log as log, log10 as log10, log1p as log1p, log2 as log2, mish as mish, relu as relu, rsqrt as rsqrt, sigmoid as sigmoid, silu as silu, softplus as softplus, sqrt as sqrt, tanh as tanh
from rlx_core.ops.arithmetic import abs as abs, add as add, atan2 as atan2, divide as divide, floor_divide as floor_divide, hypot as hypot, logaddexp as logaddexp, maximum as maximum, minimum as minimum, multiply as multiply, negative as negative, pow as pow, reciprocal as reciprocal, remainder as remainder, sign as sign, square as square, subtract as subtract
from rlx_core.ops.array_api import all as all, any as any, arange as arange, argmax as argmax, argmin as argmin, argsort as argsort, astype as astype, broadcast_arrays as broadcast_arrays, broadcast_to as broadcast_to, concat as concat, count_nonzero as count_nonzero, cumulative_prod as cumulative_prod, cumulative_sum as cumulative_sum, diag as diag, diagonal as diagonal, expand_dims as expand_dims, eye as eye, flip as flip, linspace as linspace, logsumexp as logsumexp, matrix_transpose as matrix_transpose, max as max, mean as mean, min as min, moveaxis as moveaxis, pad as pad, permute_dims as permute_dims, prod as prod, put_along_axis as put_along_axis, repeat as repeat, reshape as reshape, roll as roll, searchsorted as searchsorted, sort as sort, split as split, squeeze as squeeze, stack as stack, std as std, sum as sum, take as take, take_along_axis as take_along_axis, tile as tile, top_k as top_k, tril as tril, triu as triu, unstack as unstack, var as var
from rlx_core.ops.attention import attention as attention
from rlx_core.ops.bitwise import bitwise_and as bitwise_and, bitwise_invert as bitwise_invert, bitwise_left_shift as bitwise_left_shift, bitwise_or as bitwise_or, bitwise_right_shift as bitwise_right_shift, bitwise_xor as bitwise_xor
from rlx_core.ops.comparison import equal as equal, greater as greater, greater_equal as greater_equal, isfinite as isfinite, isinf as isinf, isnan as isnan, less as less, less_equal as less_equal, logical_and as logical_and, logical_not as logical_not, logical_or as logical_or, logical_xor as logical_xor, not_equal as not_equal, signbit as signbit
from rlx_core.ops.complex import angle as angle, complex_abs as complex_abs, complex_norm_sq as complex_norm_sq, imag as imag, make_complex as make_complex
from rlx_core.ops.creation import full as full, full_like as full_like, iota as iota, one_hot as one_hot, ones as ones, ones_like as ones_like, zeros as zeros, zeros_like as zeros_like
from rlx_core.ops.einsum import einsum as einsum
from rlx_core.ops.floating import copysign as copysign, nextafter as nextafter
from rlx_core.ops.gamma import digamma as digamma, lgamma as lgamma
from rlx_core.ops.indexing import gather as gather, scatter_add as scatter_add
from rlx_core.ops.linalg import matmul as matmul, outer as outer, tensordot as tensordot, vecdot as vecdot
from rlx_core.ops.normalization import group_norm as group_norm, layer_norm as layer_norm, rms_norm as rms_norm
from rlx_core.ops.piecewise import ceil as ceil, celu as celu, elu as elu, floor as floor, hard_sigmoid as hard_sigmoid, hard_swish as hard_swish, hard_tanh as hard_tanh, leaky_relu as leaky_relu, relu6 as relu6, round as round, selu as selu, trunc as trunc
from rlx_core.ops.rope import rope as rope
from rlx_core.ops.selection import clip as clip, optimization_barrier as optimization_barrier, stop_gradient as stop_gradient, straight_through as straight_through, where as where
from rlx_core.ops.softmax import log_softmax as log_softmax, softmax as softmax
from rlx_core.ops.solve import solve as solve
from rlx_core.ops.structural import conjugate as conjugate, real as real
from rlx_core.ops.trigonometry import acos as acos, acosh as acosh, asin as asin, asinh as asinh, atan as atan, atanh as atanh, cos as cos, cosh as cosh, sin as sin, sinh as sinh, tan as tan
from rlx_core.runtime.api import grad as grad, hessian as hessian, hvp as hvp, jacfwd as jacfwd, jacrev as jacrev, jvp as jvp, trace as trace, value_and_grad as value_and_grad, vjp as vjp, vmap as vmap
from rlx_core.runtime.function import compile_function as compile, jit as jit
from rlx_core.runtime.session import Session as Session, available_devices as available_devices, is_available as is_available

__version__: str
