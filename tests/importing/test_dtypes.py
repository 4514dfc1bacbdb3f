"""Element types of another system, here letters, and dtypes."""

from __future__ import annotations

import pytest

import rlx_core as rlx
from rlx_core.errors import DtypeError, FormatError
from rlx_core.importing.dtypes import DtypeMap

LETTERS = DtypeMap({"F": rlx.f32, "D": rlx.f64})


def test_dtypes_map_in_both_directions() -> None:
    for letter, dtype in LETTERS.items():
        assert LETTERS.dtype(letter, "x") is dtype
        assert LETTERS.element(dtype) == letter


def test_other_element_types_are_refused_with_the_supported_ones() -> None:
    with pytest.raises(DtypeError, match="input x: rlx has no dtype for elements of Q") as caught:
        LETTERS.dtype("Q", "input x")
    assert [str(fact.value) for fact in caught.value.facts] == ["F, D"]
    with pytest.raises(DtypeError, match="no element type for i8"):
        LETTERS.element(rlx.i8)


def test_labels_and_the_class_of_the_error_are_the_importers() -> None:
    numbers = DtypeMap({1: rlx.f32}, label=lambda number: f"type {number}", error=FormatError)
    with pytest.raises(FormatError, match="tensor w: rlx has no dtype for elements of type 7"):
        numbers.dtype(7, "tensor w")
