"""The closed set of attribute kinds, and their one canonical form.

An attribute is `None`, a bool, int, float, complex or str, a dtype, dim or type, literal data, a nested graph or op, an
enum member, a tuple of these, or a frozen attrs record whose fields are such. The canonical form is JSON: self-describing
tags, floats as exact hex, constant bytes handed to a *blob store*. The file format keeps that form and the fingerprint
hashes it, so both cover the same data.
"""

from __future__ import annotations

from typing import Any

from rlx_core.ir.decoding import Decoder, OpTable, find_op, make_op
from rlx_core.ir.encoding import Encoder, exact_float, flat_bytes, literal_bytes, literal_from, read_float
from rlx_core.ir.forms import Json, make_record

__all__ = [
    "Decoder",
    "Encoder",
    "OpTable",
    "decode",
    "encode",
    "exact_float",
    "find_op",
    "flat_bytes",
    "literal_bytes",
    "literal_from",
    "make_op",
    "make_record",
    "read_float",
]


def encode(value: object) -> Json:
    """An attribute value in canonical form, constant data inside it as base64.

    >>> encode((1, -0.0, DType("f32", 4, "float")))
    [1, {'float': '-0x0.0p+0'}, {'dtype': 'f32'}]
    """
    return Encoder().value(value)


def decode(form: Json, ops: OpTable, owner: type[Any] | None = None) -> Any:
    """The attribute value that `encode` wrote."""
    return Decoder(ops).value(form, owner)
