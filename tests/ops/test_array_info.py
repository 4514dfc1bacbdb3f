"""What a program may ask of the namespace: kinds, limits and promotion of dtypes, and where its arrays are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import DeviceError, DtypeError, PromotionError, TraceError, UnknownNameError
from rlx_core.ir.array import HostArray

NUMPY_NAMES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]


@pytest.mark.parametrize("name", NUMPY_NAMES)
def test_a_dtype_equals_numpys_and_has_its_hash(name: str) -> None:
    ours, theirs = getattr(rlx, name), np.dtype(name)

    assert ours == theirs
    assert theirs == ours
    assert ours == theirs.type
    assert hash(ours) == hash(theirs)
    assert {theirs: "found"}[ours] == "found"
    assert ours != np.dtype("m8[s]")
    assert np.zeros(2, ours).dtype == theirs


def test_the_names_of_the_standard_are_the_same_objects() -> None:
    assert rlx.float32 is rlx.f32
    assert rlx.bool is rlx.bool_
    assert rlx.bfloat16 is rlx.bf16
    assert rlx.f32 != rlx.f64


def test_a_dtype_compares_alike_inside_a_trace() -> None:
    seen: list[bool] = []

    def f(x: Any) -> Any:
        seen.extend([x.dtype == np.float32, np.float32 == x.dtype, x.dtype in {np.dtype("f4")}, x.dtype == rlx.float64])
        return x

    rlx.trace(f, np.ones(2, np.float32))
    assert seen == [True, True, True, False]


@pytest.mark.parametrize(
    ("dtype", "kind", "answer"),
    [
        ("f32", "real floating", True),
        (np.dtype("f2"), "real floating", True),
        ("bf16", "numeric", True),
        (np.uint8, "unsigned integer", True),
        (np.uint8, ("bool", "signed integer"), False),
        ("bool", "numeric", False),
        ("c64", ("integral", "complex floating"), True),
        ("i64", np.int64, True),
        ("i64", (rlx.i32, rlx.i64), True),
    ],
)
def test_isdtype(dtype: Any, kind: Any, answer: bool) -> None:
    assert rlx.isdtype(dtype, kind) is answer


def test_limits_are_python_numbers() -> None:
    for name in ("float16", "float32", "float64"):
        ours, theirs = rlx.finfo(name), np.finfo(name)
        assert (ours.bits, ours.eps, ours.max, ours.min) == (theirs.bits, theirs.eps, theirs.max, theirs.min)
        assert ours.smallest_normal == theirs.smallest_normal
        assert type(ours.eps) is float
    assert rlx.finfo(rlx.bf16).eps == 2**-7
    assert rlx.finfo(np.ones(2, np.complex64)).dtype is rlx.f32
    assert (rlx.iinfo("u16").max, rlx.iinfo(np.int8).min, rlx.iinfo("i64").bits) == (65535, -128, 64)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ((rlx.i8, rlx.u8), rlx.i16),
        ((np.float32(1), 2.5), rlx.f32),
        ((np.ones(2, np.int8), 300), rlx.i8),  # a number has no say, whatever its value
        ((np.ones(2, np.int8), 1.5), rlx.f32),
        ((rlx.f32, 1j), rlx.c64),
        ((rlx.f64, np.complex64), rlx.c128),
        ((True,), rlx.bool_),
    ],
)
def test_result_type(given: tuple[Any, ...], wanted: Any) -> None:
    assert rlx.result_type(*given) is wanted


def test_can_cast_follows_promotion() -> None:
    assert rlx.can_cast(rlx.i8, rlx.i64)
    assert rlx.can_cast(np.ones(1, np.float32), rlx.c64)
    assert not rlx.can_cast(rlx.f64, rlx.f32)
    assert not rlx.can_cast(rlx.u64, rlx.i64)


def test_what_cannot_be_answered_is_refused() -> None:
    with pytest.raises(DtypeError, match="'real' is not a kind"):
        rlx.isdtype(rlx.f32, "real")
    with pytest.raises(DtypeError, match="not a float dtype"):
        rlx.finfo(rlx.i32)
    with pytest.raises(DtypeError, match="not an integer dtype"):
        rlx.iinfo(rlx.f32)
    with pytest.raises(DtypeError, match="at least one"):
        rlx.result_type()
    with pytest.raises(PromotionError, match="u64 and i8"):
        rlx.result_type(rlx.u64, rlx.i8)


def test_a_value_leads_to_its_namespace_and_its_device() -> None:
    found: dict[str, Any] = {}

    def f(x: Any) -> Any:
        xp = x.__array_namespace__(api_version="2024.12")
        info = xp.__array_namespace_info__()
        found.update(xp=xp, device=x.device, devices=info.devices(), same=x.to_device(x.device) is x)
        with pytest.raises(UnknownNameError, match="version '2031'"):
            x.__array_namespace__(api_version="2031")
        with pytest.raises(DeviceError, match="on 'target', not on 'cuda:0'"):
            xp.zeros(2, device="cuda:0")
        with pytest.raises(TraceError, match="DLPack"):
            np.from_dlpack(x)
        return x + xp.ones(2, dtype=x.dtype, device=x.device)

    rlx.trace(f, np.ones(2, np.float32))
    assert found == {"xp": rlx, "device": "target", "devices": ["target"], "same": True}


def test_outside_of_a_trace_arrays_lie_in_the_host_memory() -> None:
    made = rlx.linspace(0, 1, 3, device="cpu")
    assert isinstance(made, HostArray)
    assert made.device == rlx.__array_namespace_info__().default_device()


def test_the_namespace_describes_itself() -> None:
    info = rlx.__array_namespace_info__()
    assert rlx.__array_api_version__ == "2024.12"
    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}
    traced = []
    rlx.trace(lambda x: (traced.append(info.capabilities()), x)[1], rlx.spec("f32[2]"))
    assert traced == [{"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}]
    assert info.default_dtypes()["integral"] is rlx.int64
    assert rlx.asarray([1]).dtype == info.default_dtypes()["integral"]
    assert rlx.asarray(1.5).dtype == rlx.zeros(1).dtype == info.default_dtypes()["real floating"]
    assert rlx.asarray([1, 2j]).dtype == info.default_dtypes()["complex floating"]
    assert info.dtypes(kind=("bool", "real floating")) == {"bool": rlx.bool, "float32": rlx.f32, "float64": rlx.f64}
    assert len(info.dtypes()) == 13
    assert (rlx.newaxis, rlx.inf, rlx.pi) == (None, np.inf, np.pi)


def test_asarray_joins_values_and_copies_where_it_is_asked() -> None:
    x = np.ones(3, np.float32)
    assert np.shares_memory(rlx.asarray(x), x)
    assert not np.shares_memory(rlx.asarray(x, copy=True), x)
    with pytest.raises(DtypeError, match="copy=False"):
        rlx.asarray(x, rlx.f64, copy=False)
    graph = rlx.trace(lambda x: rlx.asarray([[x[0], 2.0], [x[1], x.shape[0]]]), x)
    assert graph.output_types[0] == rlx.spec("f32[2, 2]")


def test_lists_are_nested_no_deeper_than_arrays_have_axes() -> None:
    def f(x: Any) -> Any:
        for _ in range(5000):
            x = [x]
        return rlx.asarray(x)

    with pytest.raises(TraceError, match="nested more than 64 deep"):
        rlx.trace(f, np.ones(3))
