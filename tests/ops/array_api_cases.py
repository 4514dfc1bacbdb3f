"""Programs against a namespace of the Python Array API, as one table: what rlx must compute as array-api-strict does.

A case is a function of a namespace `xp` and of `a(dtype, *shape, low=, high=)`, which makes the same data in each of them. What
the standard leaves undefined (promotion between kinds, integers in float functions) is not asked here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

Case = Callable[[Any, Callable[..., Any]], Any]

UNSIGNED, SIGNED = ("uint8", "uint16", "uint32", "uint64"), ("int8", "int16", "int32", "int64")
FLOAT, COMPLEX = ("float32", "float64"), ("complex64", "complex128")
INTEGER, REAL = SIGNED + UNSIGNED, SIGNED + UNSIGNED + FLOAT
NUMERIC, FLOATING = REAL + COMPLEX, FLOAT + COMPLEX
EVERY = ("bool", *NUMERIC)

UNARY: dict[str, tuple[tuple[str, ...], float, float]] = {
    # name: dtypes, and the range that the data are drawn from
    **dict.fromkeys(("abs", "negative"), (SIGNED + FLOATING, -5, 5)),
    **dict.fromkeys(("positive", "square", "sign", "conj"), (NUMERIC, -5, 5)),
    **dict.fromkeys(("ceil", "floor", "trunc"), (REAL, -5, 5)),
    **dict.fromkeys(("round", "isfinite", "isinf", "isnan"), (NUMERIC, -5, 5)),
    **dict.fromkeys(("exp", "expm1", "tanh", "sinh", "cosh", "sin", "cos", "tan"), (FLOATING, -2, 2)),
    **dict.fromkeys(("asin", "acos", "atanh"), (FLOATING, -0.9, 0.9)),
    **dict.fromkeys(("atan", "asinh"), (FLOATING, -0.9, 0.9)),
    **dict.fromkeys(("sqrt", "log", "log1p", "log2", "log10", "reciprocal"), (FLOATING, 0.2, 4)),
    "acosh": (FLOATING, 1.1, 4),
    "signbit": (FLOAT, -2, 2),
    "logical_not": (("bool",), 0, 1),
    "bitwise_invert": (("bool", *INTEGER), -5, 5),
    **dict.fromkeys(("real", "imag"), (COMPLEX, -5, 5)),
}

BINARY: dict[str, tuple[tuple[str, ...], float, float]] = {
    **dict.fromkeys(("add", "subtract", "multiply", "equal", "not_equal"), (NUMERIC, -5, 5)),
    **dict.fromkeys(("less", "less_equal", "greater", "greater_equal", "maximum", "minimum"), (REAL, -5, 5)),
    "divide": (FLOATING, 1, 5),
    **dict.fromkeys(("floor_divide", "remainder", "pow"), (REAL, 1, 5)),
    **dict.fromkeys(("atan2", "hypot", "logaddexp", "copysign", "nextafter"), (FLOAT, -3, 3)),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), (("bool",), 0, 1)),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), (("bool", *INTEGER), -5, 5)),
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift"), (INTEGER, 0, 5)),
}

SHAPES: tuple[tuple[int, ...], ...] = ((2, 3), (), (4,), (0,), (2, 0, 3))
PAIRS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((2, 3), (2, 3)),
    ((3,), (2, 1)),
    ((), (2,)),
    ((0, 1), (3,)),
)

REDUCTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("sum", "prod"), NUMERIC),
    **dict.fromkeys(("max", "min"), REAL),
    "mean": FLOAT + COMPLEX,
    **dict.fromkeys(("var", "std"), FLOAT),
    **dict.fromkeys(("any", "all", "count_nonzero"), EVERY),
    **dict.fromkeys(("argmax", "argmin"), REAL),
}

PROMOTIONS = [
    *product(SIGNED, SIGNED),
    *product(UNSIGNED, UNSIGNED),
    *((s, u) for s, u in product(SIGNED, UNSIGNED) if u != "uint64"),
    *product(FLOAT, FLOATING),
    *product(COMPLEX, FLOATING),
]


def unary(name: str, kind: str, shape: tuple[int, ...]) -> Case:
    _, low, high = UNARY[name]
    return lambda xp, a: getattr(xp, name)(a(kind, *shape, low=low, high=high))


def binary(name: str, kinds: tuple[str, str], shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> Case:
    _, low, high = BINARY[name]
    return lambda xp, a: getattr(xp, name)(
        *(a(kind, *shape, low=low, high=high) for kind, shape in zip(kinds, shapes, strict=True))
    )


def reduction(name: str, kind: str, shape: tuple[int, ...], **settings: Any) -> Case:
    return lambda xp, a: getattr(xp, name)(a(kind, *shape, low=-3, high=3), **settings)


def cheap_cases() -> Iterator[tuple[str, Case]]:
    """Each function once or twice, each dtype somewhere."""
    for name, (kinds, *_) in UNARY.items():
        for kind in (kinds[0], kinds[-1]):
            yield f"{name} {kind}", unary(name, kind, SHAPES[0])
    for name, (kinds, *_) in BINARY.items():
        for kind in (kinds[0], kinds[-1]):
            yield f"{name} {kind}", binary(name, (kind, kind), PAIRS[1])
    for name, kinds in REDUCTIONS.items():
        for kind in (kinds[-1], "uint8" if "uint8" in kinds else kinds[0]):
            yield f"{name} {kind}", reduction(name, kind, (2, 3), axis=1)
    yield from PROGRAMS.items()


def swept_cases() -> Iterator[tuple[str, Case]]:
    """Every function over its dtypes and shapes."""
    for name, (kinds, *_) in UNARY.items():
        for kind, shape in product(kinds, SHAPES):
            yield f"{name} {kind}{list(shape)}", unary(name, kind, shape)
    for name, (kinds, *_) in BINARY.items():
        for kind, shapes in product(kinds, PAIRS):
            yield f"{name} {kind}{shapes}", binary(name, (kind, kind), shapes)
    for name in ("add", "multiply"):
        for kinds in PROMOTIONS:
            yield f"{name} {kinds}", binary(name, kinds, PAIRS[1])
    for name, kinds in REDUCTIONS.items():
        axes: list[Any] = [None, 0, -1] + ([] if name.startswith("arg") else [(0, 2)])
        for kind, axis, keepdims in product(kinds, axes, (False, True)):
            case = reduction(name, kind, (2, 3, 4), axis=axis, keepdims=keepdims)
            yield f"{name} {kind} {axis} {keepdims}", case
    for name, kind in product(("sum", "prod", "any", "all"), ("float32", "int32", "uint8")):
        yield f"{name} {kind} of nothing", reduction(name, kind, (2, 0), axis=1)
    for name, kind in product(("sum", "prod", "cumulative_sum", "cumulative_prod"), ("int16", "float32")):
        for to in ("float64", "int64"):
            if (kind, to) != ("float32", "int64"):
                yield f"{name} {kind} in {to}", _held_in(name, kind, to)
    for function, kind, shape in product(MOVED, EVERY, ((2, 3, 4), (1, 3, 2))):
        yield f"{function} {kind}{list(shape)}", _moved(function, kind, shape)


def _held_in(name: str, kind: str, to: str) -> Case:
    return lambda xp, a: getattr(xp, name)(a(kind, 5, low=-3, high=3), dtype=getattr(xp, to))


def _moved(name: str, kind: str, shape: tuple[int, ...]) -> Case:
    return lambda xp, a: MOVED[name](xp, a(kind, *shape))


MOVED: dict[str, Callable[[Any, Any], Any]] = {
    "concat": lambda xp, x: xp.concat([x, x[:, :1, ...]], axis=1),
    "concat flat": lambda xp, x: xp.concat([x, x], axis=None),
    "expand_dims": lambda xp, x: xp.expand_dims(x, axis=-2),
    "flip": lambda xp, x: xp.flip(x),
    "flip an axis": lambda xp, x: xp.flip(x, axis=1),
    "matrix_transpose": lambda xp, x: xp.matrix_transpose(x),
    "mT": lambda xp, x: x.mT,
    "moveaxis": lambda xp, x: xp.moveaxis(x, 0, -1),
    "permute_dims": lambda xp, x: xp.permute_dims(x, (2, 0, 1)),
    "repeat": lambda xp, x: xp.repeat(x, 2, axis=1),
    "repeat flat": lambda xp, x: xp.repeat(x, 3),
    "reshape": lambda xp, x: xp.reshape(x, (-1, 2)),
    "roll": lambda xp, x: xp.roll(x, 2),
    "roll axes": lambda xp, x: xp.roll(x, (1, -1), axis=(0, 2)),
    "squeeze": lambda xp, x: xp.squeeze(x[:1, ...], axis=0),
    "stack": lambda xp, x: xp.stack([x, x], axis=-1),
    "tile": lambda xp, x: xp.tile(x, (2, 1, 2)),
    "unstack": lambda xp, x: xp.unstack(x, axis=1)[2],
    "broadcast_to": lambda xp, x: xp.broadcast_to(x, (2, *x.shape)),
    "take": lambda xp, x: xp.take(x, xp.asarray([1, 0, 2]), axis=1),
    "take_along_axis": lambda xp, x: xp.take_along_axis(x, xp.asarray([[[1], [0]]]), axis=1),
    "tril": lambda xp, x: xp.tril(x, k=-1),
    "triu": lambda xp, x: xp.triu(x, k=1),
    "where": lambda xp, x: xp.where(xp.asarray([True, False, True])[:, None], x, xp.zeros_like(x)),
    "index": lambda xp, x: x[0, ..., 1],
    "slices": lambda xp, x: x[:, ::-1, 1:],
    "new axis": lambda xp, x: x[..., xp.newaxis],
    "diagonal": lambda xp, x: xp.linalg.diagonal(x, offset=1),
    "zeros_like": lambda xp, x: xp.zeros_like(x),
    "ones_like": lambda xp, x: xp.ones_like(x),
    "astype float64": lambda xp, x: xp.astype(x == x, xp.float64),
    "astype complex128": lambda xp, x: xp.astype(x, xp.complex128),
}


def _regular(xp: Any, a: Callable[..., Any]) -> Any:
    return a("float64", 2, 3, 3, low=-1, high=1) + 3 * xp.eye(3, dtype=xp.float64)


def _positive(xp: Any, a: Callable[..., Any]) -> Any:
    x = a("float64", 2, 3, 3, low=-1, high=1)
    return x @ xp.matrix_transpose(x) + xp.eye(3, dtype=xp.float64)


def _vector_norm(ord: float) -> Case:
    return lambda xp, a: xp.linalg.vector_norm(a("float64", 2, 3), axis=1, ord=ord)


def _matrix_norm(ord: Any) -> Case:
    return lambda xp, a: xp.linalg.matrix_norm(a("float64", 2, 3, 4), ord=ord)


def _transform(name: str, kind: str) -> Case:
    return lambda xp, a: getattr(xp.fft, name)(a(kind, 3, 5))


PROGRAMS: dict[str, Case] = {
    **{name: _moved(name, kind, (2, 3, 4)) for name, kind in zip(MOVED, EVERY * 4, strict=False)},
    # creation
    "arange": lambda xp, a: xp.arange(2, 11, 3),
    "arange downwards": lambda xp, a: xp.arange(5, -2, -2),
    "arange of floats": lambda xp, a: xp.arange(0.0, 1.0, 0.3, dtype=xp.float64),
    "asarray": lambda xp, a: xp.asarray([[1, 2], [3, 4]]),
    "asarray of bool": lambda xp, a: xp.asarray([True, False]),
    "asarray in another dtype": lambda xp, a: xp.asarray([1, 2, 3], dtype=xp.float64),
    "empty_like": lambda xp, a: xp.zeros_like(xp.empty_like(a("int16", 2, 3))),
    "eye": lambda xp, a: xp.eye(3, 4, k=1, dtype=xp.float32),
    "full": lambda xp, a: xp.full((2, 3), 7),
    "full of bool": lambda xp, a: xp.full(2, True),
    "full_like": lambda xp, a: xp.full_like(a("float32", 2), 3),
    "linspace": lambda xp, a: xp.linspace(0.0, 1.0, 7, dtype=xp.float64),
    "linspace without its end": lambda xp, a: xp.linspace(-1, 1, 4, dtype=xp.float32, endpoint=False),
    "linspace of complex numbers": lambda xp, a: xp.linspace(0j, 1 + 2j, 5, dtype=xp.complex128),
    "meshgrid": lambda xp, a: xp.meshgrid(a("int32", 3), a("int32", 2)),
    "meshgrid ij": lambda xp, a: xp.meshgrid(a("float32", 3), a("float32", 2), a("float32", 4), indexing="ij"),
    "ones": lambda xp, a: xp.ones((2, 3), dtype=xp.int8),
    "zeros": lambda xp, a: xp.zeros(3, dtype=xp.complex64),
    # accumulation
    "sum of u8": lambda xp, a: xp.sum(xp.asarray([200, 100], dtype=xp.uint8)),
    "sum of u32": lambda xp, a: xp.sum(xp.asarray([2**31, 2**31], dtype=xp.uint32)),
    "sum of i32 in itself": lambda xp, a: xp.sum(a("int32", 2, 3), dtype=xp.int32),
    "prod of i32": lambda xp, a: xp.prod(xp.asarray([2**20, 2**20], dtype=xp.int32)),
    "cumulative_sum of u8": lambda xp, a: xp.cumulative_sum(xp.asarray([200, 100], dtype=xp.uint8)),
    "cumulative_sum from 0": lambda xp, a: xp.cumulative_sum(a("int8", 2, 3), axis=1, include_initial=True),
    "cumulative_sum of floats": lambda xp, a: xp.cumulative_sum(a("float32", 2, 3), axis=0),
    "cumulative_prod of i16": lambda xp, a: xp.cumulative_prod(xp.asarray([300, 300], dtype=xp.int16)),
    "cumulative_prod from 1": lambda xp, a: xp.cumulative_prod(a("float64", 2, 3), axis=-1, include_initial=True),
    "trace of i8": lambda xp, a: xp.linalg.trace(xp.full((2, 2), 100, dtype=xp.int8)),
    "var with a correction": lambda xp, a: xp.var(a("float64", 2, 5), axis=1, correction=1),
    # Python's numbers
    "array + int": lambda xp, a: a("float32", 3) + 1,
    "int - array": lambda xp, a: 1 - a("int8", 3),
    "array * float": lambda xp, a: a("float32", 3) * 2.5,
    "array * complex": lambda xp, a: a("float32", 3) * 2j,
    "array ** int": lambda xp, a: a("int64", 3, low=1, high=4) ** 2,
    "array & bool": lambda xp, a: a("bool", 3) & True,
    "where with a number": lambda xp, a: xp.where(a("bool", 3), a("float32", 3), 0.0),
    "clip": lambda xp, a: xp.clip(a("float32", 5), min=-1.0, max=1.0),
    "clip by arrays": lambda xp, a: xp.clip(a("int32", 2, 3), a("int32", 3, low=-5, high=-1), a("int32", 3, low=1)),
    "result_type": lambda xp, a: xp.zeros(1, dtype=xp.result_type(a("int8", 2), xp.uint8, 3)),
    # searching and order
    "argsort": lambda xp, a: xp.argsort(a("int32", 3, 4), axis=0),
    "argsort descending": lambda xp, a: xp.argsort(a("float32", 7), descending=True),
    "sort": lambda xp, a: xp.sort(a("uint16", 3, 4)),
    "sort descending": lambda xp, a: xp.sort(a("float64", 3, 4), axis=0, descending=True),
    "searchsorted": lambda xp, a: xp.searchsorted(
        xp.asarray([1.0, 2.0, 2.0]), xp.asarray([0.0, 2.0, 3.0]), side="right"
    ),
    "searchsorted by a sorter": lambda xp, a: xp.searchsorted(
        xp.asarray([3, 1, 2]), xp.asarray([1, 2, 4]), sorter=xp.asarray([1, 2, 0])
    ),
    "diff": lambda xp, a: xp.diff(a("int32", 2, 5), n=2),
    "diff of joined": lambda xp, a: xp.diff(a("float32", 2, 3), axis=0, prepend=xp.zeros((1, 3), dtype=xp.float32)),
    # linear algebra
    "matmul": lambda xp, a: a("float32", 2, 3, 4) @ a("float32", 4, 2),
    "matmul of integers": lambda xp, a: xp.matmul(a("int64", 3), a("int64", 3, 2)),
    "tensordot": lambda xp, a: xp.tensordot(a("float64", 2, 3, 4), a("float64", 4, 3), axes=((2, 1), (0, 1))),
    "vecdot": lambda xp, a: xp.vecdot(a("complex64", 2, 3), a("complex64", 3)),
    "vecdot along an axis": lambda xp, a: xp.linalg.vecdot(a("float32", 3, 2), a("float32", 3, 2), axis=-2),
    "outer": lambda xp, a: xp.linalg.outer(a("int32", 3), a("int32", 2)),
    "cross": lambda xp, a: xp.linalg.cross(a("float64", 2, 3), a("float64", 3)),
    "cross along an axis": lambda xp, a: xp.linalg.cross(a("int32", 3, 2), a("int32", 3, 2, low=1), axis=-2),
    "trace": lambda xp, a: xp.linalg.trace(a("float32", 2, 3, 4), offset=-1),
    "matrix_power": lambda xp, a: xp.linalg.matrix_power(a("float64", 2, 3, 3), 5),
    "matrix_power 0": lambda xp, a: xp.linalg.matrix_power(a("float64", 2, 3, 3), 0),
    "matrix_power of the inverse": lambda xp, a: xp.linalg.matrix_power(_regular(xp, a), -2),
    "inv": lambda xp, a: xp.linalg.inv(_regular(xp, a)),
    "det": lambda xp, a: xp.linalg.det(_regular(xp, a)),
    "slogdet": lambda xp, a: list(xp.linalg.slogdet(_regular(xp, a))),
    "solve": lambda xp, a: xp.linalg.solve(_regular(xp, a), a("float64", 2, 3, 2)),
    "solve for a vector": lambda xp, a: xp.linalg.solve(_regular(xp, a), a("float64", 3)),
    "cholesky": lambda xp, a: xp.linalg.cholesky(_positive(xp, a)),
    "cholesky upper": lambda xp, a: xp.linalg.cholesky(_positive(xp, a), upper=True),
    "eigvalsh": lambda xp, a: xp.linalg.eigvalsh(_positive(xp, a)),
    "svdvals": lambda xp, a: xp.linalg.svdvals(a("float64", 2, 3, 4)),
    "pinv": lambda xp, a: xp.linalg.pinv(a("float64", 4, 3)),
    "matrix_rank": lambda xp, a: xp.linalg.matrix_rank(xp.ones((2, 3, 3), dtype=xp.float64)),
    **{f"vector_norm {ord}": _vector_norm(ord) for ord in (2, 1, 0, 3, float("inf"), -float("inf"))},
    "vector_norm of all": lambda xp, a: xp.linalg.vector_norm(a("complex128", 2, 3), keepdims=True),
    **{f"matrix_norm {ord}": _matrix_norm(ord) for ord in ("fro", "nuc", 1, -1, 2, -2, float("inf"), -float("inf"))},
    # Fourier transforms
    **{
        f"fft.{name}": _transform(name, "complex128")
        for name in ("fft", "ifft", "fftn", "ifftn", "irfft", "irfftn", "hfft")
    },
    **{f"fft.{name} of complex64": _transform(name, "complex64") for name in ("fft", "ifftn", "irfft", "hfft")},
    **{f"fft.{name}": _transform(name, "float64") for name in ("rfft", "rfftn", "ihfft")},
    **{f"fft.{name} of float32": _transform(name, "float32") for name in ("rfft", "rfftn", "ihfft")},
    "fft.fft of fewer": lambda xp, a: xp.fft.fft(a("complex64", 3, 4), n=3, axis=0, norm="ortho"),
    "fft.irfft of an odd number": lambda xp, a: xp.fft.irfft(a("complex128", 3, 4), n=7, norm="forward"),
    "fft.fftn of other sizes": lambda xp, a: xp.fft.fftn(a("complex128", 3, 4), s=(2, 6), axes=(1, 0)),
    "fft.irfftn of other sizes": lambda xp, a: xp.fft.irfftn(a("complex128", 3, 4), s=(2, 5), axes=(0, 1)),
    "fft.fftfreq": lambda xp, a: xp.fft.fftfreq(7, d=0.5, dtype=xp.float64),
    "fft.rfftfreq": lambda xp, a: xp.fft.rfftfreq(8, dtype=xp.float32),
    "fft.fftshift": lambda xp, a: xp.fft.fftshift(a("float32", 3, 4)),
    "fft.ifftshift": lambda xp, a: xp.fft.ifftshift(a("complex64", 3, 5), axes=(1,)),
    "matrix_norm kept": lambda xp, a: xp.linalg.matrix_norm(a("float32", 3, 4), keepdims=True),
}
