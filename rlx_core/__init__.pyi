# Printed by `python -m rlx_core.testing.api.stubs --update`; a test compares it with the functions. Edit those.

from collections.abc import Sequence
from typing import Any, Literal, NoReturn

import builtins
from rlx_core import (
    debug as debug, fft as fft, linalg as linalg, nn as nn, optim as optim, quantization as quantization,
    random as random, special as special
)
from rlx_core.builder import GraphBuilder as GraphBuilder
from rlx_core.files.load_save import from_bytes as from_bytes, load as load, save as save, to_bytes as to_bytes
from rlx_core.files.packages.packing import package as package
from rlx_core.functions import checkpoint_policies as checkpoint_policies
from rlx_core.functions.callbacks import pure_callback as pure_callback
from rlx_core.functions.checkpoint import checkpoint as checkpoint, checkpoint_name as checkpoint_name
from rlx_core.functions.control.calls import (
    associative_scan as associative_scan, cond as cond, fori_loop as fori_loop, map as map, scan as scan,
    switch as switch, while_loop as while_loop
)
from rlx_core.functions.custom_jvp import custom_jvp as custom_jvp
from rlx_core.functions.custom_vjp import custom_vjp as custom_vjp
from rlx_core.functions.forward_backward import forward_backward as forward_backward
from rlx_core.functions.model import Model as Model
from rlx_core.functions.profiling import profile as profile
from rlx_core.functions.training import train_step as train_step
from rlx_core.functions.transforms import (
    eval_shape as eval_shape, grad as grad, hessian as hessian, hvp as hvp, jacfwd as jacfwd, jacrev as jacrev,
    jvp as jvp, linearize as linearize, trace as trace, value_and_grad as value_and_grad, vjp as vjp, vmap as vmap
)
from rlx_core.ir.dims import Dim, symbol as symbol
from rlx_core.ir.dtypes import (
    DType, bf16 as bf16, bf16 as bfloat16, bool_ as bool, bool_ as bool_, c128 as c128, c128 as complex128, c64 as c64,
    c64 as complex64, f16 as f16, f16 as float16, f32 as f32, f32 as float32, f64 as f64, f64 as float64, i16 as i16,
    i16 as int16, i32 as i32, i32 as int32, i64 as i64, i64 as int64, i8 as i8, i8 as int8, u16 as u16, u16 as uint16,
    u32 as u32, u32 as uint32, u64 as u64, u64 as uint64, u8 as u8, u8 as uint8
)
from rlx_core.ir.graph import Graph as Graph, Value as Value
from rlx_core.ir.interpret import interpret as interpret
from rlx_core.ir.types import TensorType as TensorType, spec as spec
from rlx_core.nn.activations import gelu as gelu, leaky_relu as leaky_relu
from rlx_core.nn.attending import attention as attention, rope as rope
from rlx_core.nn.layers import one_hot as one_hot
from rlx_core.nn.normalization import (
    batch_norm as batch_norm, batch_norm_inference as batch_norm_inference, group_norm as group_norm,
    layer_norm as layer_norm, rms_norm as rms_norm
)
from rlx_core.ops.array_creation import (
    arange as arange, asarray as asarray, empty as empty, empty_like as empty_like, eye as eye,
    from_dlpack as from_dlpack, linspace as linspace, meshgrid as meshgrid
)
from rlx_core.ops.array_elementwise import (
    ceil as ceil, clip as clip, conj as conj, conjugate as conjugate, floor as floor, imag as imag,
    positive as positive, real as real, round as round, trunc as trunc
)
from rlx_core.ops.array_indexing import (
    gather as gather, gather_nd as gather_nd, put_along_axis as put_along_axis, scatter as scatter,
    scatter_add as scatter_add, scatter_nd as scatter_nd
)
from rlx_core.ops.array_info import (
    API_VERSION as __array_api_version__, can_cast as can_cast, e as e, finfo as finfo, iinfo as iinfo, inf as inf,
    isdtype as isdtype, namespace_info as __array_namespace_info__, nan as nan, newaxis as newaxis, pi as pi,
    result_type as result_type
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
from rlx_core.ops.at import at as at
from rlx_core.ops.collectives import (
    axis_index as axis_index, axis_size as axis_size, pmax as pmax, pmean as pmean, pmin as pmin, psum as psum
)
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
from rlx_core.ops.products import grouped_matmul as grouped_matmul
from rlx_core.runtime.compiled_function import compile as compile
from rlx_core.runtime.devices import device_put as device_put, devices as devices
from rlx_core.runtime.jit import jit as jit
from rlx_core.runtime.session import (
    Session as Session, available_devices as available_devices, is_available as is_available
)
from rlx_core.special.gamma_family import polygamma as polygamma
from rlx_core.trees.classes import (
    register_dataclass as register_dataclass, register_pytree_node as register_pytree_node
)
from rlx_core.typing import Array as Array, ArrayLike as ArrayLike, DTypeLike as DTypeLike, PyTree as PyTree

__version__: str

def abs(x: ArrayLike) -> Array:
    """|x|; of a complex value its modulus, which is real."""

def acos(x: ArrayLike, *, name: str | None = None) -> Array:
    """arccos x, real on [-1, 1]."""

def acosh(x: ArrayLike, *, name: str | None = None) -> Array:
    """arcosh x, real on [1, ∞)."""

def add(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """a + b."""

def asin(x: ArrayLike, *, name: str | None = None) -> Array:
    """arcsin x, real on [-1, 1]."""

def asinh(x: ArrayLike, *, name: str | None = None) -> Array:
    """arsinh x."""

def atan(x: ArrayLike, *, name: str | None = None) -> Array:
    """arctan x."""

def atan2(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """The angle of the point (b, a), in (-π, π], with derivative 0 at the origin."""

def atanh(x: ArrayLike, *, name: str | None = None) -> Array:
    """artanh x, real on [-1, 1]."""

def bitcast(x: ArrayLike, dtype: Any) -> Array:
    """The bits of the elements of `x` as numbers of another dtype of the same width; it has no derivative.

    Args:
        x: Integers or real floats.
        dtype: Integers or real floats with the same number of bits.

    Raises:
        DtypeError: The widths differ, or one is neither an integer nor a real float.

    >>> rlx.bitcast(np.float32([1, -0.0]), rlx.u32)
    Array([1065353216, 2147483648], dtype=uint32)"""

def bitwise_and(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """a & b, bit by bit."""

def bitwise_invert(x: ArrayLike, *, name: str | None = None) -> Array:
    """~x, bit by bit."""

def bitwise_left_shift(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """a · 2^b modulo 2^bits; a count that is negative or at least the number of bits gives 0."""

def bitwise_or(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """a | b, bit by bit."""

def bitwise_right_shift(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """floor(a / 2^b); a count that is negative or at least the number of bits gives the sign, 0 or -1."""

def bitwise_xor(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """a ^ b, bit by bit."""

def cbrt(x: ArrayLike, *, name: str | None = None) -> Array:
    """∛x, of negative numbers too, with derivative 0 at 0."""

def celu(x: ArrayLike, alpha: float = 1.0, *, name: str | None = None) -> Array:
    """x where x > 0, alpha · (e^(x/alpha) - 1) elsewhere: continuously differentiable for every alpha."""

def complex_abs(z: ArrayLike, *, name: str | None = None) -> Array:
    """The modulus |z|, without overflow; its derivative at 0 is 0."""

def complex_norm_sq(z: ArrayLike, *, name: str | None = None) -> Array:
    """re² + im², the square of the modulus."""

def concat(arrays: Sequence[ArrayLike], axis: int | None = 0) -> Array:
    """Tensors joined along `axis`, promoted to one dtype; `None` flattens them first."""

def copysign(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """|a| with the sign of b, the sign of -0.0 and NaN too."""

def cos(x: ArrayLike, *, name: str | None = None) -> Array:
    """cos x."""

def cosh(x: ArrayLike, *, name: str | None = None) -> Array:
    """cosh x."""

def digamma(x: ArrayLike, *, name: str | None = None) -> Array:
    """ψ(x), the derivative of ln Γ(x); NaN at -1, -2, …"""

def divide(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """a / b, the true quotient: integers are cast to the float they meet f32 in."""

def dynamic_slice(x: ArrayLike, start_indices: Sequence[ArrayLike], slice_sizes: Sequence[Dim]) -> Array:
    """The window of `slice_sizes` of `x` that starts at `start_indices`, one index per axis, clamped so that it fits.

    The starts are operands, so one program serves all positions; if they are known, `x[2:5]` is a slice.

    >>> dynamic_slice(np.arange(5), [3], [2]).tolist()
    [3, 4]"""

def dynamic_update_slice(x: ArrayLike, update: ArrayLike, start_indices: Sequence[ArrayLike]) -> Array:
    """`x` with the window at `start_indices`, one index per axis, overwritten by `update`; it is clamped so that it fits.

    >>> dynamic_update_slice(np.zeros(4), np.ones(2), [1]).tolist()
    [0.0, 1.0, 1.0, 0.0]"""

def einsum(subscripts: str, *operands: ArrayLike) -> Array:
    """Return `Einsum` with the subscripts first, as in NumPy."""

def elu(x: ArrayLike, alpha: float = 1.0, *, name: str | None = None) -> Array:
    """x where x > 0, alpha · (e^x - 1) elsewhere."""

def equal(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """a == b."""

def erf(x: ArrayLike, *, name: str | None = None) -> Array:
    """The error function 2/√π · ∫₀ˣ e^(-t²) dt."""

def erfc(x: ArrayLike, *, name: str | None = None) -> Array:
    """1 - erf x, without cancellation for large x."""

def erfinv(x: ArrayLike, *, name: str | None = None) -> Array:
    """The y with erf y = x; infinite at ±1, NaN beyond."""

def exp(x: ArrayLike, *, name: str | None = None) -> Array:
    """e^x."""

def exp2(x: ArrayLike, *, name: str | None = None) -> Array:
    """2^x."""

def expm1(x: ArrayLike, *, name: str | None = None) -> Array:
    """e^x - 1, exact near 0."""

def floor_divide(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """⌊a/b⌋; 0 where an integer is divided by 0."""

def full(
    shape: Dim | Sequence[Dim], fill_value: ArrayLike, dtype: DTypeLike | None = None, *, device: str | None = None
) -> Array:
    """A tensor of `shape` whose elements all are `fill_value`: a number, a size, or a scalar value.

    A number alone is bool, i64, f32 or c64 by its kind.

    Raises:
        DtypeError: The number does not fit `dtype`."""

def full_like(
    x: ArrayLike, fill_value: ArrayLike, dtype: DTypeLike | None = None, *, device: str | None = None
) -> Array:
    """A tensor with the dims of `x`, and its dtype unless another is given."""

def gelu_approx(x: ArrayLike, *, name: str | None = None) -> Array:
    """½x (1 + tanh(√(2/π) (x + 0.044715 x³)))."""

def greater(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """a > b."""

def greater_equal(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """a >= b."""

def hard_sigmoid(x: ArrayLike, *, name: str | None = None) -> Array:
    """(x + 3)/6 held between 0 and 1."""

def hard_swish(x: ArrayLike, *, name: str | None = None) -> Array:
    """x · hard_sigmoid(x)."""

def hard_tanh(x: ArrayLike, *, name: str | None = None) -> Array:
    """x held between -1 and 1."""

def hypot(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """√(a² + b²) without overflow, with derivative 0 at the origin."""

def iota(axis: int, shape: Sequence[Dim], dtype: DType = ..., *, name: str | None = None) -> Array:
    """The position along one axis: y[.., i, ..] = i.

    Attributes:
        axis: The axis that counts.
        shape: The dims of the result.
        dtype: Any numeric dtype; integers wrap, narrow floats round."""

def isfinite(x: ArrayLike, *, name: str | None = None) -> Array:
    """Whether x is neither infinite nor NaN."""

def isinf(x: ArrayLike, *, name: str | None = None) -> Array:
    """Whether x is infinite; of a complex value, either part."""

def isnan(x: ArrayLike, *, name: str | None = None) -> Array:
    """Whether x is NaN; of a complex value, either part."""

def less(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """a < b."""

def less_equal(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """a <= b."""

def lgamma(x: ArrayLike, *, name: str | None = None) -> Array:
    """ln |Γ(x)|; infinite at 0, -1, -2, …"""

def linear_recurrence(
    a: ArrayLike, b: ArrayLike, axis: int, reverse: builtins.bool = False, *, name: str | None = None
) -> Array:
    """h_j = a_j·h_{j-1} + b_j along an axis, starting at h_0 = b_0; the first a is unused.

    Shapes:
        a, b: [.., n, ..]    ->    h: [.., n, ..]

    Attributes:
        axis: The axis that the recurrence runs along.
        reverse: Run from the end: h_j = a_j·h_{j+1} + b_j."""

def log(x: ArrayLike, *, name: str | None = None) -> Array:
    """ln x, principal branch."""

def log10(x: ArrayLike, *, name: str | None = None) -> Array:
    """log₁₀ x, principal branch."""

def log1p(x: ArrayLike, *, name: str | None = None) -> Array:
    """ln(1 + x), exact near 0."""

def log2(x: ArrayLike, *, name: str | None = None) -> Array:
    """log₂ x, principal branch."""

def log_softmax(x: ArrayLike, axis: int = -1, *, name: str | None = None) -> Array:
    """The logarithm of softmax, without underflow: `y = x - max x - log Σ exp(x - max x)`.

    Attributes:
        axis: The axis whose exponentials sum to 1."""

def logaddexp(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """ln(e^a + e^b) without overflow."""

def logical_and(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """Whether a and b both are true."""

def logical_not(x: ArrayLike, *, name: str | None = None) -> Array:
    """Whether x is false."""

def logical_or(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """Whether a or b is true, or both."""

def logical_xor(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """Whether one of a and b is true and the other is not."""

def lora_matmul(
    x: ArrayLike, w: ArrayLike, a: ArrayLike, b: ArrayLike, scale: float = 1.0, *, name: str | None = None
) -> Array:
    """A product with a weight and a low-rank update of it: `x·w + scale·((x·a)·b)`.

    Shapes:
        x: f[.., k]    w: f[k, n]    a: f[k, r]    b: f[r, n]    ->    y: f[.., n]

    Source:
        Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", arXiv:2106.09685, section 4.1."""

def make_complex(re: ArrayLike, im: ArrayLike, *, name: str | None = None) -> Array:
    """re + i·im, in the complex dtype of the promoted float of the parts (f32 for narrower floats and short integers).

    Shapes:
        re: [...]    im: [...]    ->    z: both broadcast"""

def matmul(a: ArrayLike, b: ArrayLike, *, acc_dtype: DType | None = None) -> Array:
    """Python's `a @ b`: as in NumPy, a vector on the left is a row, one on the right a column, and the axis is then removed.

    >>> matmul(np.ones((2, 3), np.float32), np.ones(3, np.float32))
    Array([3., 3.], dtype=float32)"""

def maximum(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """The larger of a and b; NaN if either is NaN. At a tie each gets half of the derivative."""

def minimum(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """The smaller of a and b; NaN if either is NaN. At a tie each gets half of the derivative."""

def mish(x: ArrayLike, *, name: str | None = None) -> Array:
    """x · tanh(softplus x)."""

def multiply(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """a · b."""

def negative(x: ArrayLike, *, name: str | None = None) -> Array:
    """-x."""

def nextafter(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """The number next to a in the direction of b, in their promoted dtype; b where they are equal."""

def not_equal(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """a != b; true if either is NaN."""

def ones(shape: Dim | Sequence[Dim], dtype: DTypeLike | None = None, *, device: str | None = None) -> Array:
    """A tensor of ones; of f32 unless another dtype is given."""

def ones_like(x: ArrayLike, dtype: DTypeLike | None = None, *, device: str | None = None) -> Array:
    """Ones with the dims of `x`, and its dtype unless another is given."""

def optimization_barrier(*operands: ArrayLike, name: str | None = None) -> Any:
    """Its operands, unchanged: operations are not moved across it, and it is never merged with another."""

def outer(a: ArrayLike, b: ArrayLike) -> Array:
    """The products of all pairs of elements of two vectors."""

def pow(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """a^b. Integers are exact modulo 2^bits; a negative exponent gives the exact value truncated toward zero, and 0 for base 0. The derivative in b is 0 where a is not positive."""

def reciprocal(x: ArrayLike, *, name: str | None = None) -> Array:
    """1/x."""

def relu(x: ArrayLike, *, name: str | None = None) -> Array:
    """max(x, 0); of -0.0 it is 0.0, NaN stays NaN, and the derivative at 0 is 0."""

def relu6(x: ArrayLike, *, name: str | None = None) -> Array:
    """x clipped to 0 and 6; of -0.0 it is 0.0, as of relu."""

def remainder(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """a - b⌊a/b⌋, with the sign of b; 0 where an integer is divided by 0."""

def rsqrt(x: ArrayLike, *, name: str | None = None) -> Array:
    """1/√x, principal branch, with derivative 0 at 0."""

def selu(x: ArrayLike, *, name: str | None = None) -> Array:
    """λ · elu(x; α), with the λ and α that keep mean 0 and variance 1."""

def sigmoid(x: ArrayLike, *, name: str | None = None) -> Array:
    """σ(x) = 1 / (1 + e^-x)."""

def sign(x: ArrayLike) -> Array:
    """-1, 0 or 1 by the sign of x; of a complex value the number of modulus 1 in its direction, 0 of 0."""

def signbit(x: ArrayLike, *, name: str | None = None) -> Array:
    """Whether the sign of x is minus; -0.0 and NaN have a sign too."""

def silu(x: ArrayLike, *, name: str | None = None) -> Array:
    """x · σ(x)."""

def sin(x: ArrayLike, *, name: str | None = None) -> Array:
    """sin x."""

def sinh(x: ArrayLike, *, name: str | None = None) -> Array:
    """sinh x."""

def softmax(
    x: ArrayLike, axis: int = -1, empty_row: Literal['nan', 'zero'] = 'nan', *, name: str | None = None
) -> Array:
    """The exponentials of a row over their sum: `y = exp(x - max x) / Σ exp(x - max x)`.

    f16 and bf16 compute in f32 and round once.

    Attributes:
        axis: The axis that sums to 1.
        empty_row: "nan" or "zero", for a row of -inf only."""

def softplus(x: ArrayLike, beta: float = 1.0, *, name: str | None = None) -> Array:
    """(1/β) ln(1 + e^(βx)), without overflow or cancellation; its derivative is σ(βx)."""

def solve(a: ArrayLike, b: ArrayLike) -> Array:
    """The solution of `a x = b`, as in the Array API: `b` with one axis is a vector, with more it is a stack of matrices.

    Leading axes broadcast."""

def sqrt(x: ArrayLike, *, name: str | None = None) -> Array:
    """√x, principal branch, with derivative 0 at 0."""

def square(x: ArrayLike, *, name: str | None = None) -> Array:
    """x²."""

def stop_gradient(x: ArrayLike, *, name: str | None = None) -> Array:
    """`x` itself, with derivative zero in both modes; for a pytree every array.

    Shapes:
        x: f[...] or a pytree of such    ->    y: like x"""

def straight_through(
    value: ArrayLike, x: ArrayLike, factor: ArrayLike | None = None, *, name: str | None = None
) -> Array:
    """`value`, with the derivatives of `factor · x` (of `x` if the factor is absent); value and factor get none.

    Shapes:
        value: f[...]    x: like value    factor: broadcasts to value    ->    y: like value"""

def subtract(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """a - b."""

def tan(x: ArrayLike, *, name: str | None = None) -> Array:
    """tan x."""

def tanh(x: ArrayLike, *, name: str | None = None) -> Array:
    """tanh x."""

def tensordot(a: ArrayLike, b: ArrayLike, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Array:
    """The contraction of the last `axes` axes of `a` with the first of `b`, or of two lists of axes in pairs."""

def tril(x: ArrayLike, k: int = 0, *, name: str | None = None) -> Array:
    """The lower triangle of each matrix: elements with column - row <= k, 0 elsewhere."""

def triu(x: ArrayLike, k: int = 0, *, name: str | None = None) -> Array:
    """The upper triangle of each matrix: elements with column - row >= k, 0 elsewhere."""

def vecdot(a: ArrayLike, b: ArrayLike, *, axis: int = -1) -> Array:
    """The sum of `conj(a) * b` along one axis of both, which is not broadcast; the other axes are.

    Raises:
        ShapeError: The sizes of the axis differ, or one of the two has no such axis."""

def view_as_complex(x: ArrayLike, *, name: str | None = None) -> Array:
    """The complex numbers whose parts are adjacent.

    Shapes:
        x: f[.., 2]    ->    z: c[..]"""

def view_as_real(z: ArrayLike, *, name: str | None = None) -> Array:
    """The real and the imaginary part of each element, adjacent.

    Shapes:
        z: c[..]    ->    y: f[.., 2]"""

def where(condition: ArrayLike, x1: ArrayLike, x2: ArrayLike) -> Array:
    """`x1` where the condition is true, `x2` elsewhere: `Where` on broadcast operands.

    The condition takes no part in promotion, so `where(counts, x, 0.5)` has the dtype of `x`."""

def zeros(shape: Dim | Sequence[Dim], dtype: DTypeLike | None = None, *, device: str | None = None) -> Array:
    """A tensor of zeros; of f32 unless another dtype is given."""

def zeros_like(x: ArrayLike, dtype: DTypeLike | None = None, *, device: str | None = None) -> Array:
    """Zeros with the dims of `x`, and its dtype unless another is given."""
