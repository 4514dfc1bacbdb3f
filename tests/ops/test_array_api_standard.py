"""The namespace beside array-api-strict, call by call: the same dtype, shape and elements, outside of a trace and inside."""

from __future__ import annotations

import inspect
import zlib
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import RlxError

from .array_api_cases import Case, cheap_cases, swept_cases

strict = pytest.importorskip("array_api_strict", reason="it compares with array-api-strict, which `make test` installs")

TOLERANCE = {"float32": 2e-5, "complex64": 2e-5, "float64": 1e-11, "complex128": 1e-11}
"""Between two implementations of one function: some ulp of each, times the condition of the small systems."""

BEYOND = {
    # Names of array-api-strict that the standard does not have, or has not in 2024.12.
    *("ArrayAPIStrictFlags", "Device", "get_array_api_strict_flags", "reset_array_api_strict_flags"),
    *("set_array_api_strict_flags", "broadcast_shapes", "isin"),
}


def data(dtype: str, *shape: int, low: float = -5, high: float = 5) -> np.ndarray:
    """The same elements for the same arguments."""
    rng = np.random.default_rng(zlib.crc32(repr((dtype, shape, low, high)).encode()))
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.startswith(("int", "uint")):
        return rng.integers(max(low, 0) if dtype.startswith("u") else low, high + 1, shape).astype(dtype)
    x = rng.uniform(low, high, shape)
    return np.asarray(x + 1j * rng.uniform(low, high, shape) if dtype.startswith("complex") else x).astype(dtype)


def in_strict(case: Case) -> Any:
    strict.set_array_api_strict_flags(api_version="2024.12")
    return case(strict, lambda *given, **limits: strict.asarray(data(*given, **limits)))


def in_trace(case: Case) -> Any:
    """The case as a program, run by the interpreter."""
    graph = rlx.trace(lambda: case(rlx, lambda *given, **limits: rlx.asarray(data(*given, **limits))))
    return rlx.interpret(graph, {})


def compare(found: Any, wanted: Any) -> None:
    results = found if isinstance(found, list | tuple) else [found]
    expected = wanted if isinstance(wanted, list | tuple) else [wanted]
    assert len(results) == len(expected)
    for one, other in zip(results, expected, strict=True):
        array = np.asarray(one)
        assert (array.dtype.name, array.shape) == (other._array.dtype.name, other.shape)
        close = TOLERANCE.get(array.dtype.name, 0)
        np.testing.assert_allclose(array, other._array, rtol=close, atol=close)


CHEAP = dict(cheap_cases())


@pytest.mark.parametrize("name", CHEAP)
def test_a_function_does_as_the_standard_says(name: str) -> None:
    wanted = in_strict(CHEAP[name])
    compare(CHEAP[name](rlx, data), wanted)
    compare(in_trace(CHEAP[name]), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_every_function_does_so_for_every_dtype_and_shape(part: int) -> None:
    """In eight parts; what fails is listed by name, all of it."""
    failed: list[str] = []
    for name, case in list(swept_cases())[part::8]:
        wanted = in_strict(case)
        try:
            compare(case(rlx, data), wanted)
            compare(in_trace(case), wanted)
        except (AssertionError, RlxError, TypeError, ValueError) as error:
            failed.append(f"{name}: {type(error).__name__} {str(error).strip().splitlines()[0]}")
    assert not failed, "\n".join([f"{len(failed)} failed", *failed[:40]])


def namespaces() -> list[tuple[str, Any, Any]]:
    strict.set_array_api_strict_flags(api_version="2024.12")
    return [("rlx", rlx, strict), ("rlx.linalg", rlx.linalg, strict.linalg), ("rlx.fft", rlx.fft, strict.fft)]


def test_every_name_of_the_standard_is_there() -> None:
    for name, ours, theirs in namespaces():
        missing = {n for n in theirs.__all__ if not hasattr(ours, n)} - BEYOND
        assert not missing, name


def test_every_argument_of_the_standard_has_its_name() -> None:
    for name, ours, theirs in namespaces():
        for function in theirs.__all__:
            wanted, found = getattr(theirs, function), getattr(ours, function, None)
            if not inspect.isfunction(wanted) or found is None:
                continue
            named = {
                p.name
                for p in inspect.signature(wanted).parameters.values()
                if p.kind not in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL, p.VAR_KEYWORD)
            }
            assert named <= set(inspect.signature(found).parameters), f"{name}.{function}"


def test_a_value_has_the_attributes_and_methods_of_an_array() -> None:
    theirs = {n for n in dir(strict.ones(2)) if not n.startswith("_") or n in ("__array_namespace__", "__dlpack__")}
    assert theirs <= set(dir(rlx.Value))
