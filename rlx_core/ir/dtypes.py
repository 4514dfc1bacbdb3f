"""Element types, and promotion between them.

A `DType` is an interned value: `f32 is dtype("f32")`. Promotion is a small join over three ladders (integers,
floats, complexes); it is symmetric, and for several operands independent of their order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, reduce
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from rlx_core.errors import DtypeError, PromotionError, nearest

Kind = Literal["bool", "int", "uint", "float", "complex"]

_INTERNED: dict[str, DType] = {}
_NUMPY_NAMES = {
    "bool": "bool",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
    **{f"i{n}": f"int{n}" for n in (8, 16, 32, 64)},
    **{f"u{n}": f"uint{n}" for n in (8, 16, 32, 64)},
}


@cache
def _numpy_dtype(name: str) -> np.dtype:
    if name == "bf16":
        import ml_dtypes  # only programs that use bfloat16 pay for this import

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(_NUMPY_NAMES[name])


class DType:
    """An element type: its name, its size in bytes and its kind. There is one object for each.

    It equals NumPy's dtype of the same elements and has its hash, so that tables keyed by either serve both. Only the hash of
    bf16 differs: NumPy's is that of ml_dtypes, which programs without bf16 do not import.
    """

    __slots__ = ("_hash", "itemsize", "kind", "name")

    name: str
    itemsize: int
    kind: Kind
    _hash: int

    def __new__(cls, name: str, itemsize: int, kind: Kind) -> DType:
        if name in _INTERNED:
            return _INTERNED[name]
        instance = super().__new__(cls)
        instance.name, instance.itemsize, instance.kind = name, itemsize, kind
        instance._hash = hash(_numpy_dtype(name) if name in _NUMPY_NAMES else name)
        _INTERNED[name] = instance
        return instance

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self is other
        if isinstance(other, np.dtype):
            return bool(self.numpy == other)
        if isinstance(other, type) and issubclass(other, np.generic):
            return self.numpy.type is other
        return NotImplemented

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return dtype, (self.name,)

    def __copy__(self) -> DType:
        return self

    def __deepcopy__(self, memo: object) -> DType:
        return self

    @property
    def is_integer(self) -> bool:
        """Signed or unsigned; `bool` is not an integer."""
        return self.kind in ("int", "uint")

    @property
    def is_float(self) -> bool:
        """A real floating-point type; complex is not."""
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        return self.kind == "complex"

    @property
    def is_real(self) -> bool:
        """Integer or float: ordered, and not complex."""
        return self.is_integer or self.is_float

    @property
    def is_numeric(self) -> bool:
        """Everything but `bool`."""
        return self.kind != "bool"

    @property
    def is_differentiable(self) -> bool:
        """Float or complex: the types that carry tangents."""
        return self.is_float or self.is_complex

    @property
    def is_narrow(self) -> bool:
        """f16 or bf16: stored narrow, computed in f32 and rounded once."""
        return self.is_float and self.itemsize == 2

    @property
    def numpy(self) -> np.dtype:
        """The NumPy dtype of the stored elements (bfloat16 through ml_dtypes)."""
        return _numpy_dtype(self.name)

    @property
    def dtype(self) -> np.dtype:
        """The same as `numpy`: the attribute that NumPy reads on objects that represent a dtype, as in `np.zeros(3, rlx.f32)`."""
        return self.numpy

    @property
    def component(self) -> DType:
        """The real type of a complex type's parts; any other type itself."""
        return {c64: f32, c128: f64}.get(self, self)

    @property
    def accumulator(self) -> DType:
        """The type in which sums and products over this type are accumulated before one rounding."""
        return f32 if self.is_narrow else self

    @property
    def wide(self) -> DType:
        """The type in which the float64 oracle holds values of this type."""
        if self.is_float:
            return f64
        return c128 if self.is_complex else self


bool_ = DType("bool", 1, "bool")
i8, i16, i32, i64 = (DType(f"i{8 * n}", n, "int") for n in (1, 2, 4, 8))
u8, u16, u32, u64 = (DType(f"u{8 * n}", n, "uint") for n in (1, 2, 4, 8))
f16, f32, f64 = (DType(f"f{8 * n}", n, "float") for n in (2, 4, 8))
bf16 = DType("bf16", 2, "float")
c64, c128 = DType("c64", 8, "complex"), DType("c128", 16, "complex")

ALL = (bool_, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64, c64, c128)
FLOATS = (f16, bf16, f32, f64)
INTEGERS = (i8, i16, i32, i64, u8, u16, u32, u64)
COMPLEXES = (c64, c128)
INEXACT = (*FLOATS, *COMPLEXES)
"""The dtypes whose arithmetic rounds, as NumPy calls them."""

_BY_NUMPY_NAME = {numpy_name: _INTERNED[name] for name, numpy_name in _NUMPY_NAMES.items()} | {"bfloat16": bf16}


def dtype(spelling: DType | str | DTypeLike) -> DType:
    """The `DType` for an rlx name, a NumPy name or a NumPy dtype, in either byte order.

    Raises:
        DtypeError: rlx has no such element type.

    >>> dtype("f32"), dtype(np.int64), dtype("bfloat16")
    (f32, i64, bf16)
    """
    if isinstance(spelling, DType):
        return spelling
    if isinstance(spelling, str) and spelling in _INTERNED:
        return _INTERNED[spelling]
    if isinstance(spelling, str) and spelling == "bfloat16":
        return bf16
    if isinstance(spelling, str) and spelling in _BYTE_CODES:
        raise _ambiguous(spelling)
    if isinstance(spelling, str) and not _SPELLING.fullmatch(spelling):
        raise _unknown(spelling)
    met = _MET.get(spelling) if isinstance(spelling, np.dtype) else None
    if met is not None:
        return met
    try:
        # NumPy takes `None` for float64; a missing dtype is an error here.
        result = None if spelling is None else _BY_NUMPY_NAME.get(np.dtype(spelling).newbyteorder("=").name)
    except (TypeError, ValueError, SyntaxError):  # NumPy parses a text as a list of formats, and evaluates parts of it
        result = None
    if result is None:
        raise _unknown(spelling)
    if isinstance(spelling, np.dtype):
        _MET[spelling] = result
    return result


_MET: dict[np.dtype[Any], DType] = {}
"""Cache of NumPy's dtypes: finding their names takes NumPy microseconds, and eager ops need it for each operand."""

_SPELLING = re.compile(r"[<>=|]?(\?|[bBhHiIlLqQefdFD]|[biufc]\d{1,2})|[a-z]{3,}\w*")
"""Texts that may be passed to NumPy: its language of dtypes has more, which raises SyntaxError and deprecations."""


_BYTE_CODES = {f"{kind}{n}" for kind, sizes in {"i": (2, 4), "u": (2, 4), "f": (2, 4, 8)}.items() for n in sizes}
"""NumPy's codes that count bytes and would be types of as many bits here, where i8 has 8 bits and not 8 bytes."""


def _ambiguous(code: str) -> DtypeError:
    kind, size = code[0], int(code[1:])
    return DtypeError(
        f"dtype: {code!r} has {size} bytes in NumPy's notation and {size} bits in rlx's",
        hint=f"write {kind}{8 * size} for {size} bytes; there is no element type of {size} bits"
        if size < 8
        else f"write {kind}{8 * size} for {size} bytes; there is no floating-point type of {size} bits",
    )


def _unknown(spelling: object) -> DtypeError:
    known = ", ".join(d.name for d in ALL)
    return DtypeError(
        f"dtype: {spelling!r} is not an element type of rlx (known: {known})",
        hint=nearest(str(spelling), [*_INTERNED, *_BY_NUMPY_NAME]),
    )


_SIGNED = {1: i8, 2: i16, 4: i32, 8: i64}


def _join_ints(a: DType, b: DType) -> DType:
    if a.kind == b.kind:
        return max(a, b, key=lambda d: d.itemsize)
    unsigned, signed = (a, b) if a.kind == "uint" else (b, a)
    nbytes = max(2 * unsigned.itemsize, signed.itemsize)
    if nbytes > 8:
        raise PromotionError(
            f"promotion: u64 and {signed} have no common integer type", hint="cast one of them explicitly"
        )
    return _SIGNED[nbytes]


def _join_floats(a: DType, b: DType) -> DType:
    if a is b:
        return a
    return f32 if a.is_narrow and b.is_narrow else max(a, b, key=lambda d: d.itemsize)


def _join_int_float(integer: DType, floating: DType) -> DType:
    return f64 if floating is f64 or integer.itemsize == 8 else f32


def _join_real_complex(real: DType, cplx: DType) -> DType:
    component = promote(cplx.component, real)
    return c128 if component is f64 else c64


def promote(*dtypes: DType) -> DType:
    """Return the type to which all of `dtypes` promote.

    Integers join first, then floats, then complexes, then the three with one another, so that the order of the
    operands never matters. `bool` promotes to any other type.

    Raises:
        PromotionError: `u64` meets a signed integer.

    >>> promote(u8, i8), promote(f16, bf16), promote(i64, f32), promote(c64, f64)
    (i16, f32, f64, c128)
    """
    assert dtypes, "promote needs at least one dtype"
    distinct = sorted(set(dtypes), key=lambda d: d.name)
    if len(distinct) == 1:
        return distinct[0]
    ints = [d for d in distinct if d.is_integer]
    floats = [d for d in distinct if d.is_float]
    complexes = [d for d in distinct if d.is_complex]
    # Unsigned types join among themselves first: (u32, i8, u8) must not depend on which pair meets first.
    unsigned, signed = [d for d in ints if d.kind == "uint"], [d for d in ints if d.kind == "int"]
    widest = [max(group, key=lambda d: d.itemsize) for group in (unsigned, signed) if group]
    result: DType | None = reduce(_join_ints, widest) if widest else None
    if floats:
        joined = reduce(_join_floats, floats)
        result = joined if result is None else _join_int_float(result, joined)
    if complexes:
        cplx = max(complexes, key=lambda d: d.itemsize)
        result = cplx if result is None else _join_real_complex(result, cplx)
    return bool_ if result is None else result


_RANK = {"bool": 0, "int": 1, "uint": 1, "float": 2, "complex": 3}


def weak_dtype(scalar: complex, others: Iterable[DType] = ()) -> DType:
    """Return the type that a Python scalar takes next to tensors of types `others`.

    A scalar whose kind is not higher than the tensors' takes their type, so `x + 1` never widens `x`; otherwise
    it acts as `i64`, `f32` or `c64` of its kind, and takes the type of the result, so that 0.1 next to an i64 is
    not rounded to f32 first. Alone it is `bool`, `i64`, `f32` or `c64`.

    Raises:
        DtypeError: The value does not fit the type (300 next to `i8`).

    >>> weak_dtype(1, [f16]), weak_dtype(1.5, [i64]), weak_dtype(2.0), weak_dtype(True, [i32])
    (f16, f64, f32, i32)
    """
    default = {bool: bool_, int: i64, float: f32, complex: c64}[type(scalar)]
    present = list(others)
    if not present:
        return default
    target = promote(*present)
    if _RANK[default.kind] > _RANK[target.kind]:
        return promote(default, target)
    if target.is_integer:
        limits = np.iinfo(target.numpy)
        if not limits.min <= int(scalar.real) <= limits.max:
            raise DtypeError(
                f"scalar: {scalar} does not fit {target} ({limits.min}..{limits.max})",
                hint="cast the tensor to a wider type first",
            )
    return target
