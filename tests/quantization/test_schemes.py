"""Standard schemes: the laws, GGML's values and bytes, other libraries' FP8 numbers, and refusals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from attrs import evolve

import rlx_core as rlx
from rlx_core.builtin import SCHEMES as RECORDS
from rlx_core.contributions import SchemeSpec
from rlx_core.errors import DtypeError, PluginError, RlxError, ShapeError, UnknownNameError
from rlx_core.hooks import hookimpl
from rlx_core.ir.schemes import Scheme, SchemeField
from rlx_core.plugins import PluginHost, default_host
from rlx_core.plugins.entry import given_entry
from rlx_core.quantization import quantize
from rlx_core.quantization.floating import E2M1, E4M3, E5M2, FloatFormat
from rlx_core.quantization.standard import SCHEMES
from rlx_core.system.records import frozen
from rlx_core.testing.laws.schemes import Schemes

RNG = np.random.default_rng(0)
GGML = [scheme for scheme in SCHEMES.values() if scheme.ggml_id is not None and scheme.name != "rlx.q8_k"]
SAME_BYTES = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "tq1_0", "tq2_0")
"""What GGML encodes without a search."""


@pytest.mark.every_case
@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=list(SCHEMES))
class TestStandardSchemes(Schemes):
    """The laws."""


def test_records_and_classes_agree() -> None:
    assert {f"rlx.{name}": ggml_id for name, ggml_id in RECORDS.items()} == {n: s.ggml_id for n, s in SCHEMES.items()}


@pytest.mark.every_case
@pytest.mark.parametrize("scheme", GGML, ids=lambda scheme: scheme.name)
def test_blocks_decode_to_the_bits_of_ggml(scheme: type[Scheme]) -> None:
    """Random bytes: every code, and scales that are NaN, infinite, subnormal and negative."""
    quants = pytest.importorskip("gguf.quants")
    decided = scheme()
    raw = RNG.integers(0, 256, (64, 3 * decided.block_dtype.itemsize), dtype=np.uint8)
    with np.errstate(all="ignore"):
        expected = quants.dequantize(raw, quants.GGMLQuantizationType(scheme.ggml_id))
    found = np.asarray(decided.decode(decided.fields_of(raw))).reshape(expected.shape)
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    is_number = ~np.isnan(expected)
    assert is_number.mean() > 0.5
    assert np.array_equal(found.view(np.uint32)[is_number], expected.view(np.uint32)[is_number])


@pytest.mark.every_case
@pytest.mark.parametrize("name", SAME_BYTES)
def test_codes_have_the_bytes_of_ggml(name: str) -> None:
    quants = pytest.importorskip("gguf.quants")
    values = RNG.standard_normal((5, 512)).astype(np.float32)
    array = quantize(values, name)
    expected = quants.quantize(values, quants.GGMLQuantizationType(array.scheme.ggml_id))
    assert np.array_equal(array.scheme.bytes_of(array.fields).reshape(expected.shape), expected)


@pytest.mark.parametrize(
    ("name", "most"), [("q2_k", 0.29), ("q3_k", 0.15), ("q4_k", 0.075), ("q5_k", 0.038), ("q6_k", 0.019)]
)
def test_searches_of_scales_find_good_ones(name: str, most: float) -> None:
    """Relative errors of normal numbers; those of GGML's own search for Q4_K and Q6_K are 0.071 and 0.018."""
    values = RNG.standard_normal((64, 1024)).astype(np.float32)
    error = np.asarray(quantize(values, name).dequantize()) - values
    assert np.sqrt(np.square(error).mean()) < most


@pytest.mark.parametrize("float_format", [E4M3, E5M2, E2M1])
def test_float_codes_are_those_of_ml_dtypes(float_format: FloatFormat) -> None:
    dtype = float_format.numpy
    codes = np.arange(2 * float_format.sign, dtype=np.uint8)
    assert np.array_equal(np.asarray(float_format.decode(codes)), codes.view(dtype).astype(np.float32), equal_nan=True)
    finite = codes[np.isfinite(codes.view(dtype).astype(np.float32))]
    assert np.array_equal(float_format.encode(np.asarray(float_format.decode(finite))), finite)
    beyond = float_format.decode(float_format.encode(np.float32([1e9, -1e9])))
    assert np.array_equal(beyond, np.float32([float_format.largest, -float_format.largest]))


def test_an_asymmetric_block_reaches_both_ends() -> None:
    values = np.linspace(3, 5, 64, dtype=np.float32)[None]
    for name, steps in (("int4_asymmetric", 15), ("int8_asymmetric", 255)):
        decoded = np.asarray(quantize(values, name, block=64).dequantize())
        assert np.abs(decoded - values).max() <= 2 / steps / 2 * 1.001


def test_a_block_may_be_any_part_of_a_row() -> None:
    values = RNG.standard_normal((4, 96)).astype(np.float32)
    for block in (2, 48, 96):
        assert quantize(values, "int8", block=block).fields["scale"].shape == (4, 96 // block)
    assert quantize(values, "fp8_e4m3").fields["scale"].shape == (4, 1)


@pytest.mark.parametrize(
    ("values", "scheme", "block", "error", "message"),
    [
        (np.ones((2, 33)), "q4_0", None, ShapeError, "no whole number of blocks"),
        (np.ones((2, 64)), "q4_0", 64, ShapeError, "blocks of 32 elements"),
        (np.ones((2, 9)), "int4", 3, ShapeError, "a multiple of 2 elements"),
        (np.ones((2, 9)), "int8", 0, ShapeError, "no whole number of blocks"),
        (np.float32(1), "int8", None, ShapeError, "at least one axis"),
        (np.ones((0, 32)), "int8", None, ShapeError, "with elements"),
        (np.full((2, 32), np.nan), "int8", None, DtypeError, "no code"),
        (np.ones((2, 32), complex), "int8", None, DtypeError, "real numbers"),
        (np.ones((2, 32)), "q4_9", None, UnknownNameError, "q4_9"),
    ],
)
def test_what_has_no_codes_is_refused(
    values: Any, scheme: str, block: int | None, error: type[RlxError], message: str
) -> None:
    with pytest.raises(error, match=message):
        quantize(values, scheme, block=block)


@frozen
class HalfNumbers(Scheme):
    """A scheme of a plugin: f16 numbers."""

    block: int | None = 16
    name: ClassVar[str] = "acme.halves"

    @property
    def fields(self) -> tuple[SchemeField, ...]:
        return (SchemeField("halves", rlx.f16, (self.elements,)),)

    def decode(self, fields: Mapping[str, Any]) -> Any:
        return rlx.astype(fields["halves"], "f32")

    def encode(self, values: np.ndarray) -> Mapping[str, np.ndarray]:
        return {"halves": values.astype(np.float16)}


@frozen
class Misstated(HalfNumbers):
    """A scheme whose fields have another dtype than it states."""

    name: ClassVar[str] = "acme.misstated"

    def encode(self, values: np.ndarray) -> Mapping[str, np.ndarray]:
        return {"halves": values}


def host_with(*records: SchemeSpec) -> PluginHost:
    class Acme:
        @hookimpl
        def rlx_schemes(self) -> list[SchemeSpec]:
            return list(records)

    return PluginHost([*default_host().entries, given_entry(Acme())])


@pytest.mark.medium
def test_a_plugin_adds_a_scheme() -> None:
    values = RNG.standard_normal((2, 32)).astype(np.float32)
    array = quantize(values, "acme.halves", host=host_with(SchemeSpec("acme.halves", HalfNumbers)))
    assert np.array_equal(array.dequantize(), values.astype(np.float16).astype(np.float32))
    for name in (
        "test_scheme_represents_values",
        "test_decoding_compiled_is_decoding",
        "test_bytes_of_a_file_are_kept",
    ):
        getattr(Schemes(), name)(HalfNumbers)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (SchemeSpec("acme.halves", "math:pi"), "no Scheme"),
        (SchemeSpec("acme.halves", Scheme), "lacks decode, encode, fields"),
        (SchemeSpec("acme.halves", HalfNumbers, ggml_id=99), "unlike its record"),
        (SchemeSpec("acme.halves", "nowhere_to_be_found:X"), "nowhere_to_be_found"),
    ],
)
def test_a_record_without_a_scheme_is_named_where_it_is_used(record: SchemeSpec, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        quantize(np.ones((2, 32), np.float32), "acme.halves", host=host_with(record))


def test_fields_that_are_not_as_stated_are_an_error() -> None:
    with pytest.raises(ShapeError, match="field `halves` is not what the scheme states"):
        quantize(np.ones((2, 32), np.float32), Misstated())


def test_the_laws_detect_a_scheme_that_loses_values() -> None:
    @frozen
    class Zeros(HalfNumbers):
        def encode(self, values: np.ndarray) -> Mapping[str, np.ndarray]:
            return {"halves": np.zeros(values.shape, np.float16)}

    with pytest.raises(AssertionError, match="the squared error of normal numbers"):
        Schemes().test_scheme_represents_values(Zeros)


def test_a_scheme_is_a_value() -> None:
    assert evolve(SCHEMES["rlx.int4"](), block=64) == SCHEMES["rlx.int4"](64)
    assert SCHEMES["rlx.int4"](64) != SCHEMES["rlx.int4_asymmetric"](64)
