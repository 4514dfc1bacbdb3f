"""Schemes of quantised weights that are wrong in one way each."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

import rlx_core as rlx
from rlx_core.contributions import SchemeSpec
from rlx_core.hooks import hookimpl
from rlx_core.ir.schemes import Scheme, SchemeField
from rlx_core.system.records import frozen
from seeded.seeds import Seeds

SEEDS = Seeds()
VALUES, COMPILED = "scheme_represents_values", "decoding_compiled_is_decoding"
BYTES = "bytes_of_a_file_are_kept"


@frozen
class Halves(Scheme):
    """What the wrong ones should have been: f16 numbers."""

    block: int | None = 16
    name: ClassVar[str] = "seed.halves"

    @property
    def fields(self):
        return (SchemeField("halves", rlx.f16, (self.elements,)),)

    def decode(self, fields):
        return rlx.astype(fields["halves"], "f32")

    def encode(self, values):
        return {"halves": values.astype(np.float16)}


class LosesValues(Halves):
    """All codes are 0."""

    def encode(self, values):
        return {"halves": np.zeros(values.shape, np.float16)}


class DecodesToDoubles(Halves):
    """Values of another dtype."""

    def decode(self, fields):
        return rlx.astype(fields["halves"], "f64")


class ForgetsTheSign(Halves):
    """Magnitudes."""

    def decode(self, fields):
        return rlx.abs(Halves.decode(self, fields))


class EncodesFloats(Halves):
    """A field of another dtype than it states."""

    def encode(self, values):
        return {"halves": values}


class DecodesWithNumpy(Halves):
    """What a program traces is not what an eager call computes."""

    def decode(self, fields):
        halves = fields["halves"]
        return rlx.astype(halves, "f32") * (1 if isinstance(halves, np.ndarray) else 2)


class SwapsBytes(Halves):
    """Fields are read in another byte order than they are written."""

    def fields_of(self, raw):
        return {name: field.byteswap() for name, field in Halves.fields_of(self, raw).items()}


def plugin_of_scheme(name: str, scheme: Any) -> Any:
    class Plugin:
        @hookimpl
        def rlx_schemes(self):
            return [SchemeSpec(scheme.name, scheme)]

    return type(name, (Plugin,), {})


for _law, _scheme, _says in (
    (VALUES, LosesValues, "the squared error of normal numbers"),
    (VALUES, DecodesToDoubles, "decodes to float64"),
    (VALUES, ForgetsTheSign, "the squared error of"),
    (VALUES, EncodesFloats, "is not what the scheme states"),
    (COMPILED, DecodesWithNumpy, "has other bits in a compiled program"),
    (BYTES, SwapsBytes, "the bytes of blocks change"),
):
    SEEDS.plugin(_law, _says)(plugin_of_scheme(f"Plugin{_scheme.__name__}", _scheme))
