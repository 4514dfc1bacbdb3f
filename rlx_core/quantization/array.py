"""Quantised arrays: the fields of a scheme as a pytree, from which a program computes the values."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from attrs import field

from rlx_core.errors import DtypeError, Fact, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.protocols import EncodedArray
from rlx_core.ir.schemes import Scheme
from rlx_core.ir.types import same_dim
from rlx_core.ops.array_shapes import reshape
from rlx_core.plugins import default_host
from rlx_core.plugins.host import PluginHost
from rlx_core.quantization.lookup import scheme_of
from rlx_core.system.records import frozen
from rlx_core.trees.classes import register_pytree_node


def read_only(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a copy of a mapping that cannot be changed."""
    return MappingProxyType(dict(fields))


@frozen(eq=False)
class QuantizedArray(EncodedArray):
    """An array of f32 values that is stored as the fields of a scheme. It is a pytree: its leaves are the fields.

    A product or a lookup of rows in a compiled program computes the values where it reads them, so that nothing of the size of
    the values is stored (see `docs/how-to/narrow-weights.md`). Gradients reach fields of a float dtype, such as scales.

    Attributes:
        fields: The arrays by name, `[..., blocks, *field.shape]`.
        scheme: How values follow from them.

    Raises:
        ShapeError: A field of the scheme is missing, or a field is not of the scheme; in `dequantize`, fields have different
            numbers of blocks.
    """

    fields: Mapping[str, Any] = field(converter=read_only)
    scheme: Scheme

    def __attrs_post_init__(self) -> None:
        stated = [each.name for each in self.scheme.fields]
        for name in stated:
            if name not in self.fields:
                raise ShapeError(
                    f"{self.scheme.name}: the field `{name}` is missing", Fact("fields", list(self.fields))
                )
        for name in self.fields:
            if name not in stated:
                raise ShapeError(f"{self.scheme.name}: `{name}` is no field of the scheme", Fact("fields", stated))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the values."""
        first = self.scheme.fields[0]
        *outer, blocks = self.fields[first.name].shape[: self.fields[first.name].ndim - len(first.shape)]
        return (*outer, blocks * self.scheme.elements)

    @property
    def nbytes(self) -> int:
        """Bytes of all fields."""
        return sum(int(each.nbytes) for each in self.fields.values())

    def dequantize(self) -> Any:
        """Return the values, `f32[*shape]`."""
        first = self.scheme.fields[0]
        outer = tuple(self.fields[first.name].shape)
        outer = outer[: len(outer) - len(first.shape)]
        for each in self.scheme.fields:
            shape, expected = self.fields[each.name].shape, each.shape if each.is_shared else (*outer, *each.shape)
            if len(shape) != len(expected) or not all(map(same_dim, shape, expected)):
                raise ShapeError(
                    f"{self.scheme.name}: the field `{each.name}` is {list(shape)}, and must be {list(expected)}",
                    Fact(first.name, list(self.fields[first.name].shape)),
                )
        return reshape(self.scheme.decode(self.fields), self.shape)

    def __repr__(self) -> str:
        shape = ", ".join(map(str, self.shape))
        return f"QuantizedArray([{shape}], {self.scheme.name.removeprefix('rlx.')}, block={self.scheme.block})"


def _flatten(array: QuantizedArray) -> tuple[tuple[Any, ...], Scheme, tuple[str, ...]]:
    names = tuple(each.name for each in array.scheme.fields)
    return tuple(array.fields[name] for name in names), array.scheme, names


def _unflatten(scheme: Scheme, children: Any) -> QuantizedArray:
    return QuantizedArray(dict(zip((each.name for each in scheme.fields), children, strict=True)), scheme)


register_pytree_node(QuantizedArray, _flatten, _unflatten)


@checked_call
def quantize(
    values: Any, scheme: str | Scheme, *, block: int | None = None, host: PluginHost | None = None
) -> QuantizedArray:
    """Return an array in a scheme of fewer bits; blocks lie along its last axis. NumPy computes the codes.

    Args:
        values: Finite numbers, such as a weight `[outputs, inputs]`.
        scheme: A name: `int8`, `int4`, `int8_asymmetric`, `int4_asymmetric`, `fp8_e4m3`, `fp8_e5m2`, `fp4_e2m1`, `nvfp4`,
            `mxfp4`, `q4_0` to `q8_0`, `q2_k` to `q8_k`, `iq1_s` to `iq4_xs`, `tq1_0`, `tq2_0`, or a name from a plugin.
        block: Elements that share a scale, where the scheme leaves that open; the last axis for one scale for each row.

    Raises:
        ShapeError: The array has no axis or no elements, or its last axis is not a whole number of blocks.
        DtypeError: The values are not real numbers, or not all finite.
        UnknownNameError: No plugin provides the scheme.
        PluginError: A package that the scheme needs is not installed.

    >>> weight = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 64)
    >>> rlx.quantization.quantize(weight, "q4_0")
    QuantizedArray([1, 64], q4_0, block=32)
    """
    array = np.asarray(values)
    if array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16":
        raise DtypeError("quantize: takes an array of real numbers", Fact("dtype", array.dtype.name))
    if array.ndim == 0 or 0 in array.shape:
        raise ShapeError("quantize: takes an array with elements and at least one axis", Fact("shape", array.shape))
    wide = array.astype(np.float32)
    if not np.isfinite(wide).all():
        raise DtypeError("quantize: NaN and infinities have no code", Fact("elements", int((~np.isfinite(wide)).sum())))
    decided = scheme_of(scheme, block, host or default_host()).for_length(array.shape[-1])
    blocks = wide.reshape(*array.shape[:-1], -1, decided.elements)
    return QuantizedArray(checked(decided, decided.encode(blocks), blocks.shape[:-1]), decided)


def checked(scheme: Scheme, fields: Mapping[str, Any], outer: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Return the fields that a scheme's `encode` returned, in its order.

    Raises:
        ShapeError: One is missing, or has another dtype or shape than the scheme states.
    """
    result = {}
    for each in scheme.fields:
        stated = each.shape if each.is_shared else (*outer, *each.shape)
        encoded = fields.get(each.name)
        if not isinstance(encoded, np.ndarray) or encoded.shape != stated or encoded.dtype != each.dtype.numpy:
            raise ShapeError(
                f"{scheme.name}: field `{each.name}` is not what the scheme states",
                Fact("stated", f"{each.dtype}{list(stated)}"),
                Fact(
                    "encoded", f"{encoded.dtype}{list(encoded.shape)}" if isinstance(encoded, np.ndarray) else "nothing"
                ),
            )
        result[each.name] = encoded
    return result
