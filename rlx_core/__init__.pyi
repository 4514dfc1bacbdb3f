# Printed by `python -m rlx_core.testing.api.stubs --update`; a test compares it with the functions. Edit those.

from collections.abc import Sequence
from typing import Any, Literal, NoReturn

import builtins
from rlx_core import debug as debug
from rlx_core import fft as fft
from rlx_core import linalg as linalg
from rlx_core import nn as nn
from rlx_core import optim as optim
from rlx_core import quantization as quantization
from rlx_core import random as random
from rlx_core import special as special
from rlx_core.builder import GraphBuilder as GraphBuilder
from rlx_core.files.load_save import from_bytes as from_bytes
from rlx_core.files.load_save import load as load
from rlx_core.files.load_save import save as save
from rlx_core.files.load_save import to_bytes as to_bytes
from rlx_core.files.packages.packing import package as package
from rlx_core.functions import checkpoint_policies as checkpoint_policies
from rlx_core.functions.callbacks import pure_callback as pure_callback
from rlx_core.functions.checkpoint import checkpoint as checkpoint
from rlx_core.functions.checkpoint import checkpoint_name as checkpoint_name
from rlx_core.functions.control.calls import associative_scan as associative_scan
from rlx_core.functions.control.calls import cond as cond
from rlx_core.functions.control.calls import fori_loop as fori_loop
from rlx_core.functions.control.calls import map as map
from rlx_core.functions.control.calls import scan as scan
from rlx_core.functions.control.calls import switch as switch
from rlx_core.functions.control.calls import while_loop as while_loop
from rlx_core.functions.custom_jvp import custom_jvp as custom_jvp
from rlx_core.functions.custom_vjp import custom_vjp as custom_vjp
from rlx_core.functions.forward_backward import forward_backward as forward_backward
from rlx_core.functions.model import Model as Model
from rlx_core.functions.profiling import profile as profile
from rlx_core.functions.training import train_step as train_step
from rlx_core.functions.transforms import eval_shape as eval_shape
from rlx_core.functions.transforms import grad as grad
from rlx_core.functions.transforms import hessian as hessian
from rlx_core.functions.transforms import hvp as hvp
from rlx_core.functions.transforms import jacfwd as jacfwd
from rlx_core.functions.transforms import jacrev as jacrev
from rlx_core.functions.transforms import jvp as jvp
from rlx_core.functions.transforms import linearize as linearize
from rlx_core.functions.transforms import trace as trace
from rlx_core.functions.transforms import value_and_grad as value_and_grad
from rlx_core.functions.transforms import vjp as vjp
from rlx_core.functions.transforms import vmap as vmap
from rlx_core.ir.dims import Dim
from rlx_core.ir.dims import symbol as symbol
from rlx_core.ir.dtypes import DType
from rlx_core.ir.dtypes import bf16 as bf16
from rlx_core.ir.dtypes import bf16 as bfloat16
from rlx_core.ir.dtypes import bool_ as bool
from rlx_core.ir.dtypes import bool_ as bool_
from rlx_core.ir.dtypes import c128 as c128
from rlx_core.ir.dtypes import c128 as complex128
from rlx_core.ir.dtypes import c64 as c64
from rlx_core.ir.dtypes import c64 as complex64
from rlx_core.ir.dtypes import f16 as f16
from rlx_core.ir.dtypes import f16 as float16
from rlx_core.ir.dtypes import f32 as f32
from rlx_core.ir.dtypes import f32 as float32
from rlx_core.ir.dtypes import f64 as f64
from rlx_core.ir.dtypes import f64 as float64
from rlx_core.ir.dtypes import i16 as i16
from rlx_core.ir.dtypes import i16 as int16
from rlx_core.ir.dtypes import i32 as i32
from rlx_core.ir.dtypes import i32 as int32
from rlx_core.ir.dtypes import i64 as i64
from rlx_core.ir.dtypes import i64 as int64
from rlx_core.ir.dtypes import i8 as i8
from rlx_core.ir.dtypes import i8 as int8
from rlx_core.ir.dtypes import u16 as u16
from rlx_core.ir.dtypes import u16 as uint16
from rlx_core.ir.dtypes import u32 as u32
from rlx_core.ir.dtypes import u32 as uint32
from rlx_core.ir.dtypes import u64 as u64
from rlx_core.ir.dtypes import u64 as uint64
from rlx_core.ir.dtypes import u8 as u8
from rlx_core.ir.dtypes import u8 as uint8
from rlx_core.ir.graph import Graph as Graph
from rlx_core.ir.graph import Value as Value
from rlx_core.ir.interpret import interpret as interpret
from rlx_core.ir.types import TensorType as TensorType
from rlx_core.ir.types import spec as spec
from rlx_core.nn.activations import gelu as gelu
from rlx_core.nn.activations import leaky_relu as leaky_relu
from rlx_core.nn.attending import attention as attention
from rlx_core.nn.attending import rope as rope
from rlx_core.nn.layers import one_hot as one_hot
from rlx_core.nn.normalization import batch_norm as batch_norm
from rlx_core.nn.normalization import batch_norm_inference as batch_norm_inference
from rlx_core.nn.normalization import group_norm as group_norm
from rlx_core.nn.normalization import layer_norm as layer_norm
from rlx_core.nn.normalization import rms_norm as rms_norm
from rlx_core.ops.array_indexing import gather as gather
from rlx_core.ops.array_indexing import gather_nd as gather_nd
from rlx_core.ops.array_indexing import put_along_axis as put_along_axis
from rlx_core.ops.array_indexing import scatter as scatter
from rlx_core.ops.array_indexing import scatter_add as scatter_add
from rlx_core.ops.array_indexing import scatter_nd as scatter_nd
from rlx_core.ops.array_info import API_VERSION as __array_api_version__
from rlx_core.ops.array_info import FloatLimits
from rlx_core.ops.array_info import IntegerLimits
from rlx_core.ops.array_info import e as e
from rlx_core.ops.array_info import inf as inf
from rlx_core.ops.array_info import namespace_info as __array_namespace_info__
from rlx_core.ops.array_info import nan as nan
from rlx_core.ops.array_info import newaxis as newaxis
from rlx_core.ops.array_info import pi as pi
from rlx_core.ops.array_search import UniqueAllResult
from rlx_core.ops.array_search import UniqueCountsResult
from rlx_core.ops.array_search import UniqueInverseResult
from rlx_core.ops.at import _At
from rlx_core.ops.collectives import axis_index as axis_index
from rlx_core.ops.collectives import axis_size as axis_size
from rlx_core.ops.collectives import pmax as pmax
from rlx_core.ops.collectives import pmean as pmean
from rlx_core.ops.collectives import pmin as pmin
from rlx_core.ops.collectives import psum as psum
from rlx_core.runtime.compiled_function import compile as compile
from rlx_core.runtime.devices import device_put as device_put
from rlx_core.runtime.devices import devices as devices
from rlx_core.runtime.jit import jit as jit
from rlx_core.runtime.session import Session as Session
from rlx_core.runtime.session import available_devices as available_devices
from rlx_core.runtime.session import is_available as is_available
from rlx_core.special.gamma_family import polygamma as polygamma
from rlx_core.trees.classes import register_dataclass as register_dataclass
from rlx_core.trees.classes import register_pytree_node as register_pytree_node
from rlx_core.typing import Array as Array
from rlx_core.typing import ArrayLike as ArrayLike
from rlx_core.typing import DTypeLike as DTypeLike
from rlx_core.typing import PyTree as PyTree

__version__: str

def abs(x: ArrayLike) -> Array:
    """|x|; of a complex value its modulus, which is real."""

def acos(x: ArrayLike, *, name: str | None = None) -> Array:
    """arccos x, real on [-1, 1]."""

def acosh(x: ArrayLike, *, name: str | None = None) -> Array:
    """arcosh x, real on [1, ∞)."""

def add(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """a + b."""

def all(x: ArrayLike, axis: int | Sequence[int] | None = None, keepdims: builtins.bool = False) -> Array:
    """Whether all elements over `axis` are not 0."""

def allclose(
    a: ArrayLike, b: ArrayLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: builtins.bool = False
) -> Array:
    """Whether all elements are close, as in `isclose`; a bool scalar."""

def angle(x: ArrayLike) -> Array:
    """The phase in (-π, π], 0 at 0; for a real number π below 0, else 0, and NaN for NaN."""

def any(x: ArrayLike, axis: int | Sequence[int] | None = None, keepdims: builtins.bool = False) -> Array:
    """Whether any element over `axis` is not 0."""

def arange(
    start: ArrayLike,
    stop: ArrayLike | None = None,
    step: float = 1,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Array:
    """start, start + step, .. before `stop`; with one argument, 0 .. before it. Symbolic bounds are possible with step 1.

    The dtype is i64 if all three are integers, f32 otherwise.

    Raises:
        ShapeError: The step is 0, or a bound is symbolic and the step is not 1."""

def argmax(x: ArrayLike, axis: int | None = None, keepdims: builtins.bool = False) -> Array:
    """The index of the first largest element of `axis`; without an axis, in the row-major order of all."""

def argmin(x: ArrayLike, axis: int | None = None, keepdims: builtins.bool = False) -> Array:
    """The index of the first smallest element of `axis`; without an axis, in the row-major order of all."""

def argsort(x: ArrayLike, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Array:
    """The indices that sort the elements of `axis`; ties stay in index order."""

def array_equal(a1: ArrayLike, a2: ArrayLike) -> Array:
    """Whether both have the same shape and elements; a bool scalar."""

def asarray(
    obj: ArrayLike, dtype: DTypeLike | None = None, *, device: str | None = None, copy: builtins.bool | None = None
) -> Array:
    """An array of `obj`: a value, an array, a number, a size, or nested sequences of these.

    Python's floats are f32 and its complex numbers c64 unless a dtype is given; arrays keep theirs. With `copy=True` the
    result can be assigned to without changing `obj`.

    Raises:
        DtypeError: `copy` is False, and the dtype needs a copy.
        TraceError: `obj` is of another kind."""

def asin(x: ArrayLike, *, name: str | None = None) -> Array:
    """arcsin x, real on [-1, 1]."""

def asinh(x: ArrayLike, *, name: str | None = None) -> Array:
    """arsinh x."""

def astype(x: ArrayLike, dtype: DTypeLike, *, copy: builtins.bool = True, device: str | None = None) -> Array:
    """`x` in another dtype. If `x` has this dtype already, the result is `x` itself only if `copy` is False.

    Complex to real is refused; use `real`, `imag` or `abs`."""

def at(x: ArrayLike) -> _At:
    """`rlx.at(x)[key].set(y)`: another array with other elements at the positions that `x[key]` reads.

    For traced values `x.at` is the same. Instead of `set` there are `add`, `subtract`, `multiply`, `divide`, `power`, `max`,
    `min` and `apply(function)`; `get` reads. Values are cast to the dtype of `x`, and broadcast over the selection; under a
    computed mask over all of `x`.

    Raises:
        ShapeError: A value does not broadcast to that shape.
        IndexRangeError: A known position is outside its axis."""

def atan(x: ArrayLike, *, name: str | None = None) -> Array:
    """arctan x."""

def atan2(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """The angle of the point (b, a), in (-π, π], with derivative 0 at the origin."""

def atanh(x: ArrayLike, *, name: str | None = None) -> Array:
    """artanh x, real on [-1, 1]."""

def average(
    x: ArrayLike,
    axis: int | Sequence[int] | None = None,
    weights: ArrayLike | None = None,
    keepdims: builtins.bool = False,
) -> Array:
    """The mean over `axis`, with weights of the elements: of the shape of `x`, or a vector along one axis.

    Raises:
        ShapeError: The weights have neither shape."""

def bincount(x: ArrayLike, weights: ArrayLike | None = None, *, length: Dim) -> Array:
    """The number of occurrences of each of 0 … `length` - 1 in `x`, or the sum of the weights at the same positions.

    The length is an argument, because sizes are known before a program runs. Values out of range are not counted.

    Args:
        x: i[n].
        weights: [n], or none for i64 counts.
        length: The length of the result.

    Raises:
        ShapeError: `x` does not have one axis, or the weights have another shape."""

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

def broadcast_arrays(*arrays: ArrayLike) -> list[Array]:
    """The operands broadcast to their common shape."""

def broadcast_to(x: ArrayLike, shape: Dim | Sequence[Dim]) -> Array:
    """`x` broadcast to `shape`: its sizes, or its single size."""

def can_cast(from_: Any, to: Any, /) -> builtins.bool:
    """Whether promotion converts the one dtype to the other, which preserves its values."""

def cbrt(x: ArrayLike, *, name: str | None = None) -> Array:
    """∛x, of negative numbers too, with derivative 0 at 0."""

def ceil(x: ArrayLike) -> Array:
    """⌈x⌉; integers are unchanged."""

def celu(x: ArrayLike, alpha: float = 1.0, *, name: str | None = None) -> Array:
    """x where x > 0, alpha · (e^(x/alpha) - 1) elsewhere: continuously differentiable for every alpha."""

def clip(x: ArrayLike, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Array:
    """x clamped between `min` and `max`, either of which may be absent; bounds take the dtype of x, and NaN is preserved."""

def complex_abs(z: ArrayLike, *, name: str | None = None) -> Array:
    """The modulus |z|, without overflow; its derivative at 0 is 0."""

def complex_norm_sq(z: ArrayLike, *, name: str | None = None) -> Array:
    """re² + im², the square of the modulus."""

def concat(arrays: Sequence[ArrayLike], axis: int | None = 0) -> Array:
    """Tensors joined along `axis`, promoted to one dtype; `None` flattens them first."""

def conj(x: ArrayLike) -> Array:
    """The complex conjugate; of a real x that is x."""

def conjugate(x: ArrayLike) -> Array:
    """The complex conjugate; of a real x that is x."""

def convolve(a: ArrayLike, v: ArrayLike, mode: Literal['full', 'same', 'valid'] = 'full') -> Array:
    """The convolution of two vectors: y[k] = Σ a[i] v[k - i].

    Args:
        a: [n].
        v: [m].
        mode: "full": at every overlap, n + m - 1 elements; "same": the middle of these, of the length of the longer vector;
            "valid": at full overlaps.

    Raises:
        ShapeError: An operand is not a vector of known length, or is empty."""

def copysign(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """|a| with the sign of b, the sign of -0.0 and NaN too."""

def corrcoef(x: ArrayLike, *, rowvar: builtins.bool = True) -> Array:
    """The correlations of variables, with the arguments of `cov`: from -1 to 1."""

def correlate(a: ArrayLike, v: ArrayLike, mode: Literal['full', 'same', 'valid'] = 'valid') -> Array:
    """The cross-correlation of two vectors: y[k] = Σ a[i + k] conj(v[i]); modes as for `convolve`."""

def cos(x: ArrayLike, *, name: str | None = None) -> Array:
    """cos x."""

def cosh(x: ArrayLike, *, name: str | None = None) -> Array:
    """cosh x."""

def count_nonzero(x: ArrayLike, axis: int | Sequence[int] | None = None, keepdims: builtins.bool = False) -> Array:
    """The number of elements over `axis` that are not 0."""

def cov(x: ArrayLike, *, rowvar: builtins.bool = True, correction: float = 1.0) -> Array:
    """The covariances of variables, which are the rows of `x` `[variables, observations]`, or its columns; `[v, v]`.

    Raises:
        ShapeError: `x` does not have two axes."""

def cumulative_logsumexp(x: ArrayLike, axis: int | None = None) -> Array:
    """log of the running sum of exponentials along `axis`, without overflow."""

def cumulative_max(x: ArrayLike, axis: int | None = None) -> Array:
    """The largest element so far along `axis`; NaN propagates.

    >>> cumulative_max(np.array([1, 3, 2])).tolist()
    [1, 3, 3]"""

def cumulative_min(x: ArrayLike, axis: int | None = None) -> Array:
    """The smallest element so far along `axis`; NaN propagates."""

def cumulative_prod(
    x: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: builtins.bool = False
) -> Array:
    """Running products along `axis`, with `dtype` as in `sum`; `include_initial` prepends the initial 1."""

def cumulative_sum(
    x: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: builtins.bool = False
) -> Array:
    """Running sums along `axis`, with `dtype` as in `sum`; `include_initial` prepends the initial 0."""

def deg2rad(x: ArrayLike) -> Array:
    """Degrees as radians."""

def diag(x: ArrayLike, k: int = 0) -> Array:
    """A diagonal of each matrix, or for a vector the matrix that has it on a diagonal."""

def diagonal(x: ArrayLike, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Array:
    """A diagonal of each matrix in the axes `axis1` and `axis2`: the last two by default, unlike NumPy's first two.

    Shapes:
        x: [.., n, m]    ->    y: [.., d], where y[.., i] = x[.., i, i + offset], or x[.., i - offset, i] below the main one"""

def diff(
    x: ArrayLike, n: int = 1, axis: int = -1, prepend: ArrayLike | None = None, append: ArrayLike | None = None
) -> Array:
    """The differences of adjacent elements along `axis`, taken `n` times, after `prepend` and `append` are concatenated.

    Raises:
        ShapeError: `n` is negative, or the axis is shorter than it."""

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

def empty(shape: Dim | Sequence[Dim], *, dtype: DTypeLike | None = None, device: str | None = None) -> Array:
    """A tensor with unspecified elements: zeros, so that uninitialised memory is never visible."""

def empty_like(x: ArrayLike, /, *, dtype: DTypeLike | None = None, device: str | None = None) -> Array:
    """A tensor like that of `empty`, with the dims of `x`, and its dtype unless another is given."""

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

def expand_dims(x: ArrayLike, axis: int | Sequence[int] = 0) -> Array:
    """`x` with axes of size 1 at the positions `axis` of the result."""

def expm1(x: ArrayLike, *, name: str | None = None) -> Array:
    """e^x - 1, exact near 0."""

def eye(
    n_rows: Dim, n_cols: Dim | None = None, /, *, k: int = 0, dtype: DTypeLike | None = None, device: str | None = None
) -> Array:
    """Ones on the k-th diagonal of a matrix, zeros elsewhere."""

def finfo(type: Any, /) -> FloatLimits:
    """The limits of a float or complex dtype, given by itself or by an array.

    Raises:
        DtypeError: It is not a float or complex dtype."""

def flip(x: ArrayLike, axis: int | Sequence[int] | None = None) -> Array:
    """The elements of the listed axes, or of all, in reverse order."""

def floor(x: ArrayLike) -> Array:
    """⌊x⌋; integers are unchanged."""

def floor_divide(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """⌊a/b⌋; 0 where an integer is divided by 0."""

def fmax(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The larger of two numbers; the number if one is NaN."""

def fmin(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The smaller of two numbers; the number if one is NaN."""

def fmod(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The remainder of a division rounded towards 0, like C's `fmod`: it has the sign of `x1`, also if it is 0.

    `remainder` has the sign of `x2`."""

def from_dlpack(x: ArrayLike, /, *, device: str | None = None, copy: builtins.bool | None = None) -> Array:
    """The array of another library that supports DLPack, without a copy if its memory can be shared."""

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

def grouped_matmul(x: ArrayLike, w: ArrayLike, idx: ArrayLike, *, name: str | None = None) -> Array:
    """Each row times the weight of its expert: `y[i] = x[i] · w[idx[i]]`.

    Shapes:
        x: [m, k]    w: [e, k, n]    idx: int[m]    ->    y: [m, n]

    Raises:
        IndexRangeError (at run time): An expert is outside `0..e-1`."""

def hard_sigmoid(x: ArrayLike, *, name: str | None = None) -> Array:
    """(x + 3)/6 held between 0 and 1."""

def hard_swish(x: ArrayLike, *, name: str | None = None) -> Array:
    """x · hard_sigmoid(x)."""

def hard_tanh(x: ArrayLike, *, name: str | None = None) -> Array:
    """x held between -1 and 1."""

def heaviside(x1: ArrayLike, x2: ArrayLike) -> Array:
    """0 below 0, 1 above it, and `x2` at 0; NaN is preserved."""

def histogram(
    x: ArrayLike,
    bins: ArrayLike = 10,
    range: tuple[float, float] | None = None,
    weights: ArrayLike | None = None,
    density: builtins.bool = False,
) -> tuple[Array, Array]:
    """The number of elements of `x` in each bin, and the edges of the bins; the last bin includes its upper edge.

    Args:
        x: Real numbers of any shape.
        bins: The number of bins of equal width, or their edges in order.
        range: The lower and upper bound; by default that of `x`. Elements outside are not counted.
        weights: The weights that are summed instead of ones, of the shape of `x`.
        density: Whether the counts are divided by their sum and the width of the bin.

    Raises:
        ConfigError: `bins` is not a number of at least 1, or the range is decreasing.
        ShapeError: The weights have another shape."""

def hypot(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """√(a² + b²) without overflow, with derivative 0 at the origin."""

def iinfo(type: Any, /) -> IntegerLimits:
    """The limits of an integer dtype, given by itself or by an array.

    Raises:
        DtypeError: It is not an integer dtype."""

def imag(x: ArrayLike) -> Array:
    """The imaginary part; of a real x that is 0."""

def interp(
    x: ArrayLike, xp: ArrayLike, fp: ArrayLike, left: ArrayLike | None = None, right: ArrayLike | None = None
) -> Array:
    """The linear interpolation of points, evaluated at `x`.

    Args:
        x: f[..].
        xp: f[n], the coordinates of the points, in ascending order.
        fp: f[n], their values.
        left, right: Values before the first and after the last point; by default those of these points.

    Raises:
        ShapeError: `xp` and `fp` are not vectors of one length, or are empty."""

def iota(axis: int, shape: Sequence[Dim], dtype: DType = ..., *, name: str | None = None) -> Array:
    """The position along one axis: y[.., i, ..] = i.

    Attributes:
        axis: The axis that counts.
        shape: The dims of the result.
        dtype: Any numeric dtype; integers wrap, narrow floats round."""

def isclose(
    a: ArrayLike, b: ArrayLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: builtins.bool = False
) -> Array:
    """Whether |a - b| <= atol + rtol |b|; equal infinities are close, and NaNs are with `equal_nan`."""

def isdtype(dtype: Any, kind: Any) -> builtins.bool:
    """Whether a dtype is of a kind: a kind's name, a dtype, or a tuple of these.

    Raises:
        DtypeError: There is no kind of that name.

    >>> isdtype(f32, "real floating"), isdtype(np.dtype("u1"), ("bool", "integral")), isdtype(i64, f32)
    (True, True, False)"""

def isfinite(x: ArrayLike, *, name: str | None = None) -> Array:
    """Whether x is neither infinite nor NaN."""

def isinf(x: ArrayLike, *, name: str | None = None) -> Array:
    """Whether x is infinite; of a complex value, either part."""

def isnan(x: ArrayLike, *, name: str | None = None) -> Array:
    """Whether x is NaN; of a complex value, either part."""

def isneginf(x: ArrayLike) -> Array:
    """Whether a number is -∞."""

def isposinf(x: ArrayLike) -> Array:
    """Whether a number is +∞."""

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

def linspace(
    start: complex,
    stop: complex,
    /,
    num: Dim,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    endpoint: builtins.bool = True,
) -> Array:
    """`num` evenly spaced numbers from `start` to `stop`, which is the last one unless `endpoint` is false."""

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

def logaddexp2(x1: ArrayLike, x2: ArrayLike) -> Array:
    """log₂(2^x1 + 2^x2), without overflow."""

def logical_and(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """Whether a and b both are true."""

def logical_not(x: ArrayLike, *, name: str | None = None) -> Array:
    """Whether x is false."""

def logical_or(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """Whether a or b is true, or both."""

def logical_xor(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """Whether one of a and b is true and the other is not."""

def logsumexp(x: ArrayLike, axis: int | Sequence[int] | None = None, keepdims: builtins.bool = False) -> Array:
    """log Σ e^x over `axis`, without overflow."""

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

def matrix_transpose(x: ArrayLike) -> Array:
    """The last two axes exchanged."""

def max(x: ArrayLike, axis: int | Sequence[int] | None = None, keepdims: builtins.bool = False) -> Array:
    """The largest element over `axis`; NaN propagates."""

def maximum(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """The larger of a and b; NaN if either is NaN. At a tie each gets half of the derivative."""

def mean(x: ArrayLike, axis: int | Sequence[int] | None = None, keepdims: builtins.bool = False) -> Array:
    """The mean over `axis`; integers are averaged in f32, 64-bit ones in f64."""

def median(x: ArrayLike, axis: int | Sequence[int] | None = None, keepdims: builtins.bool = False) -> Array:
    """The middle element over `axis`, for an even number the mean of both; NaN if one is NaN."""

def meshgrid(*arrays: ArrayLike, indexing: Literal['xy', 'ij'] = 'xy') -> list[Array]:
    """The coordinates of a grid over vectors: with `xy` the first two axes are exchanged, as in images.

    Raises:
        ShapeError: An array is not a vector.
        ConfigError: The indexing is neither "xy" nor "ij"."""

def min(x: ArrayLike, axis: int | Sequence[int] | None = None, keepdims: builtins.bool = False) -> Array:
    """The smallest element over `axis`; NaN propagates."""

def minimum(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """The smaller of a and b; NaN if either is NaN. At a tie each gets half of the derivative."""

def mish(x: ArrayLike, *, name: str | None = None) -> Array:
    """x · tanh(softplus x)."""

def moveaxis(x: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int]) -> Array:
    """Axes moved to other positions; the others keep their order."""

def multiply(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """a · b."""

def nan_to_num(
    x: ArrayLike, nan: ArrayLike = 0.0, posinf: ArrayLike | None = None, neginf: ArrayLike | None = None
) -> Array:
    """Numbers in place of NaN and the infinities: by default 0, and the largest and the lowest of the dtype."""

def nanargmax(x: ArrayLike, axis: int | None = None, keepdims: builtins.bool = False) -> Array:
    """The index of the first largest element of `axis` that is not NaN; 0 if there is none."""

def nanargmin(x: ArrayLike, axis: int | None = None, keepdims: builtins.bool = False) -> Array:
    """The index of the first smallest element of `axis` that is not NaN; 0 if there is none."""

def nanmax(x: ArrayLike, axis: int | Sequence[int] | None = None, keepdims: builtins.bool = False) -> Array:
    """The largest element over `axis` that is not NaN; NaN if there is none."""

def nanmean(x: ArrayLike, axis: int | Sequence[int] | None = None, keepdims: builtins.bool = False) -> Array:
    """The mean over `axis` of the elements that are not NaN; NaN if there are none."""

def nanmedian(x: ArrayLike, axis: int | Sequence[int] | None = None, keepdims: builtins.bool = False) -> Array:
    """`median` of the elements that are not NaN; NaN if there are none."""

def nanmin(x: ArrayLike, axis: int | Sequence[int] | None = None, keepdims: builtins.bool = False) -> Array:
    """The smallest element over `axis` that is not NaN; NaN if there is none."""

def nanpercentile(
    x: ArrayLike,
    q: ArrayLike,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    *,
    method: Literal['linear', 'lower', 'higher', 'nearest', 'midpoint'] = 'linear',
) -> Array:
    """`percentile` of the elements that are not NaN; NaN if there are none."""

def nanprod(x: ArrayLike, axis: int | Sequence[int] | None = None, keepdims: builtins.bool = False) -> Array:
    """The product over `axis` of the elements that are not NaN."""

def nanquantile(
    x: ArrayLike,
    q: ArrayLike,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    *,
    method: Literal['linear', 'lower', 'higher', 'nearest', 'midpoint'] = 'linear',
) -> Array:
    """`quantile` of the elements that are not NaN; NaN if all are."""

def nanstd(
    x: ArrayLike, axis: int | Sequence[int] | None = None, correction: float = 0.0, keepdims: builtins.bool = False
) -> Array:
    """The root of `nanvar`."""

def nansum(x: ArrayLike, axis: int | Sequence[int] | None = None, keepdims: builtins.bool = False) -> Array:
    """The sum over `axis` of the elements that are not NaN; integers and bools are summed as in `sum`."""

def nanvar(
    x: ArrayLike, axis: int | Sequence[int] | None = None, correction: float = 0.0, keepdims: builtins.bool = False
) -> Array:
    """The variance over `axis` of the elements that are not NaN, in two passes, divided by their count - correction."""

def negative(x: ArrayLike, *, name: str | None = None) -> Array:
    """-x."""

def nextafter(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """The number next to a in the direction of b, in their promoted dtype; b where they are equal."""

def nonzero(x: ArrayLike) -> tuple[Array, ...]:
    """The positions of the elements that are not 0, an i64 array for each axis, in row-major order.

    Raises:
        TraceError: `x` is a value of a program, whose sizes are known before it runs.
        AxisError: `x` has no axes."""

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

def pad(
    x: ArrayLike,
    pad_width: int | Sequence[ArrayLike],
    mode: Literal['constant', 'edge', 'reflect', 'symmetric', 'wrap'] = 'constant',
    constant_values: ArrayLike | None = None,
) -> Array:
    """`x` with padding: one number, one pair for all axes, or one pair (before, after) for each; negative ones crop."""

def percentile(
    x: ArrayLike,
    q: ArrayLike,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    *,
    method: Literal['linear', 'lower', 'higher', 'nearest', 'midpoint'] = 'linear',
) -> Array:
    """`quantile` with `q` from 0 to 100."""

def permute_dims(x: ArrayLike, axes: Sequence[int]) -> Array:
    """Axis `i` of the result is axis `axes[i]` of `x`."""

def polyval(p: ArrayLike, x: ArrayLike) -> Array:
    """The polynomial with coefficients `p` `[n]`, the highest power first, at `x`: by Horner's rule.

    Raises:
        ShapeError: `p` is not a vector, or its length is unknown."""

def positive(x: ArrayLike) -> Array:
    """x itself, of any numeric dtype."""

def pow(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """a^b. Integers are exact modulo 2^bits; a negative exponent gives the exact value truncated toward zero, and 0 for base 0. The derivative in b is 0 where a is not positive."""

def prod(
    x: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
) -> Array:
    """The product over `axis`, with `dtype` as in `sum`."""

def quantile(
    x: ArrayLike,
    q: ArrayLike,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    *,
    method: Literal['linear', 'lower', 'higher', 'nearest', 'midpoint'] = 'linear',
) -> Array:
    """The numbers below which a fraction `q` of the elements over `axis` lies; NaN if one of them is NaN.

    Args:
        x: Real numbers; integers become floats as in `mean`.
        q: From 0 to 1: a number, or a vector, which becomes the first axis of the result.
        axis: One, several, or all.
        keepdims: Whether the axes stay, with one element.
        method: Between two elements: "linear" interpolates, "lower", "higher" and "nearest" take one, "midpoint" their mean.

    Raises:
        ConfigError: `q` is outside of 0..1, or the method is unknown.
        ShapeError: `q` has more than one axis, or there is no element."""

def rad2deg(x: ArrayLike) -> Array:
    """Radians as degrees."""

def real(x: ArrayLike) -> Array:
    """The real part; of a real x that is x."""

def reciprocal(x: ArrayLike, *, name: str | None = None) -> Array:
    """1/x."""

def relu(x: ArrayLike, *, name: str | None = None) -> Array:
    """max(x, 0); of -0.0 it is 0.0, NaN stays NaN, and the derivative at 0 is 0."""

def relu6(x: ArrayLike, *, name: str | None = None) -> Array:
    """x clipped to 0 and 6; of -0.0 it is 0.0, as of relu."""

def remainder(a: ArrayLike, b: ArrayLike, *, name: str | None = None) -> Array:
    """a - b⌊a/b⌋, with the sign of b; 0 where an integer is divided by 0."""

def repeat(x: ArrayLike, repeats: int | Sequence[int] | ArrayLike, axis: int | None = None) -> Array:
    """Each element repeated in place along `axis`, flat without an axis.

    One number, or an array of one, repeats all elements; a longer array has a number for each. In a program the numbers must be
    known."""

def reshape(x: ArrayLike, shape: Dim | Sequence[Dim], *, copy: builtins.bool | None = None) -> Array:
    """The same elements in row-major order with other dims, one of which may be -1.

    `copy=True` returns a new array, or a value that may be assigned to; `copy=False` refuses to copy.

    Raises:
        ShapeError: The elements do not fit the dims, or need a copy and `copy=False`."""

def result_type(*arrays_and_dtypes: ArrayLike) -> DType:
    """The dtype that arrays, dtypes and Python's numbers promote to; a number has the lowest precedence.

    Raises:
        DtypeError: There are no arguments, or one is of another kind.
        PromotionError: They have no common dtype.

    >>> result_type(f32, np.int64(2)), result_type(np.float16([1]), 2.5), result_type(i64, 1.0)
    (f64, f16, f64)"""

def roll(x: ArrayLike, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Array:
    """Elements shifted along `axis`, wrapping around at the end; without an axis, in row-major order."""

def round(x: ArrayLike, decimals: int = 0, *, straight_through: builtins.bool = False) -> Array:
    """x to the nearest number of `decimals` decimal places, ties to the even one; of a complex number both parts.

    As in NumPy, x is multiplied by 10^decimals, rounded and divided again, so if that product overflows, the value is lost.
    Negative `decimals` round to tens, hundreds and so on. Integers are unchanged; negative `decimals` are for floats only. With
    `straight_through` the derivative is that of the identity; otherwise it is 0.

    Raises:
        ConfigError: `decimals` is not an integer from -300 to 300.
        DtypeError: `x` is an integer and `decimals` below 0."""

def rsqrt(x: ArrayLike, *, name: str | None = None) -> Array:
    """1/√x, principal branch, with derivative 0 at 0."""

def searchsorted(
    x1: ArrayLike, x2: ArrayLike, side: Literal['left', 'right'] = 'left', sorter: ArrayLike | None = None
) -> Array:
    """The positions to insert the elements of `x2` into `x1`, which is sorted, or which `sorter` (from `argsort`) sorts."""

def segment_max(data: ArrayLike, segment_ids: ArrayLike, num_segments: Dim) -> Array:
    """The largest element of each segment, with the arguments of `segment_sum`; the lowest number, or -∞, if it is empty."""

def segment_mean(data: ArrayLike, segment_ids: ArrayLike, num_segments: Dim) -> Array:
    """The means of segments, with the arguments of `segment_sum`; 0 for an empty segment."""

def segment_min(data: ArrayLike, segment_ids: ArrayLike, num_segments: Dim) -> Array:
    """The smallest element of each segment, with the arguments of `segment_sum`; the largest number, or ∞, if it is empty."""

def segment_prod(data: ArrayLike, segment_ids: ArrayLike, num_segments: Dim) -> Array:
    """The products of segments, with the arguments of `segment_sum`; 1 for an empty segment."""

def segment_sum(data: ArrayLike, segment_ids: ArrayLike, num_segments: Dim) -> Array:
    """The sums of the rows of `data` with the same segment id; 0 for an id without rows.

    Args:
        data: [n, ..].
        segment_ids: i[n], in any order; rows with an id outside of 0 … `num_segments` - 1 are ignored.
        num_segments: The first size of the result.

    Raises:
        ShapeError: The numbers of rows and ids differ."""

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

def sinc(x: ArrayLike) -> Array:
    """sin(πx) / πx, and 1 at 0."""

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

def sort(x: ArrayLike, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Array:
    """The elements of `axis` in order; NaN is larger than every number."""

def split(x: ArrayLike, indices_or_sections: int | Sequence[Dim], axis: int = 0) -> list[Array]:
    """An axis split into equal parts, or at the positions listed.

    Raises:
        ShapeError: The parts cannot be equal."""

def sqrt(x: ArrayLike, *, name: str | None = None) -> Array:
    """√x, principal branch, with derivative 0 at 0."""

def square(x: ArrayLike, *, name: str | None = None) -> Array:
    """x²."""

def squeeze(x: ArrayLike, axis: int | Sequence[int] | None = None) -> Array:
    """`x` without the listed axes, which must have size 1; without a list, all axes known to have size 1."""

def stack(arrays: Sequence[ArrayLike], axis: int = 0) -> Array:
    """Tensors of one shape joined along a new axis."""

def std(
    x: ArrayLike, axis: int | Sequence[int] | None = None, correction: float = 0.0, keepdims: builtins.bool = False
) -> Array:
    """The standard deviation over `axis`: the root of the variance."""

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

def sum(
    x: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
) -> Array:
    """The sum over `axis`, in `dtype`: by default the dtype of a float `x`, else the default integer dtype (i64 or u64)."""

def swapaxes(x: ArrayLike, axis1: int, axis2: int) -> Array:
    """Two axes exchanged."""

def take(
    x: ArrayLike, indices: ArrayLike, axis: int | None = None, out_of_bounds: Literal['error', 'clip', 'fill'] = 'error'
) -> Array:
    """Elements of `axis` at indices; negative ones count from the end.

    With `out_of_bounds` "clip" or "fill" a negative index is outside of the axis."""

def take_along_axis(
    x: ArrayLike, indices: ArrayLike, axis: int = -1, out_of_bounds: Literal['error', 'clip', 'fill'] = 'error'
) -> Array:
    """One element of `axis` for each index, counted from the front; the other axes broadcast."""

def tan(x: ArrayLike, *, name: str | None = None) -> Array:
    """tan x."""

def tanh(x: ArrayLike, *, name: str | None = None) -> Array:
    """tanh x."""

def tensordot(a: ArrayLike, b: ArrayLike, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Array:
    """The contraction of the last `axes` axes of `a` with the first of `b`, or of two lists of axes in pairs."""

def tile(x: ArrayLike, repetitions: int | Sequence[int]) -> Array:
    """`x` repeated as a whole along its axes."""

def top_k(x: ArrayLike, k: Dim, axis: int = -1, largest: builtins.bool = True) -> tuple[Array, Array]:
    """The k largest (or smallest) elements of `axis` in order, and their indices."""

def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1) -> Array:
    """The integral of `y` along `axis` by the trapezoidal rule.

    Args:
        y: f[.., n, ..].
        x: The coordinates of the points: a vector of n, or of the shape of `y`; without it their distance is `dx`.
        dx: The distance of adjacent points.
        axis: The axis of integration."""

def tril(x: ArrayLike, k: int = 0, *, name: str | None = None) -> Array:
    """The lower triangle of each matrix: elements with column - row <= k, 0 elsewhere."""

def triu(x: ArrayLike, k: int = 0, *, name: str | None = None) -> Array:
    """The upper triangle of each matrix: elements with column - row >= k, 0 elsewhere."""

def trunc(x: ArrayLike) -> Array:
    """x without its fraction; integers are unchanged."""

def unique_all(x: ArrayLike) -> UniqueAllResult:
    """The distinct elements in order, the first index of each, the index in these of each element of `x`, and their counts.

    Every NaN is distinct; 0.0 and -0.0 are equal.

    Raises:
        TraceError: `x` is a value of a program, whose sizes are known before it runs."""

def unique_counts(x: ArrayLike) -> UniqueCountsResult:
    """The distinct elements in order, and the count of each; see `unique_all`."""

def unique_inverse(x: ArrayLike) -> UniqueInverseResult:
    """The distinct elements in order, and the index in these of each element of `x`; see `unique_all`."""

def unique_values(x: ArrayLike) -> Array:
    """The distinct elements in order; see `unique_all`."""

def unstack(x: ArrayLike, axis: int = 0) -> tuple[Array, ...]:
    """The slices of an axis of known size, each without it."""

def var(
    x: ArrayLike, axis: int | Sequence[int] | None = None, correction: float = 0.0, keepdims: builtins.bool = False
) -> Array:
    """The variance over `axis` in two passes, divided by n - correction."""

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
