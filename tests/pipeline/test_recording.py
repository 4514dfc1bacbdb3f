"""Recorded computations on sizes: the function computes the same numbers, for the sizes that take the same branches."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from rlx_core.ir.dims import call_recorded
from rlx_core.ir.types import TensorType, known_size, spec
from rlx_core.pipeline.recording import RecordedNumber, SizeRecording
from rlx_core.run.plan import BufferId, Location


def recorded(compute: Callable[..., Any], *sizes: int) -> tuple[Callable[..., Any], tuple[str, ...]]:
    recording = SizeRecording(len(sizes))
    result = compute(*recording.sizes(sizes))
    guards = recording.guards
    return recording.compile(result), guards


def mixed(n: Any, m: Any) -> Any:
    return (
        n + 1, 2 * n - m, -(-n // 4), 7 % m, n / m, n << 2, 1 | n, ~n, abs(1 - n), divmod(n, 3), n.bit_length(),
        math.ceil(n / 3), math.floor(n / 3), max(n, m), sum([n, m, n]), math.prod([n, m]), n * 1, 0 + n,
    )  # fmt: skip


def test_a_function_computes_what_was_recorded() -> None:
    function, guards = recorded(mixed, 10, 3)
    assert guards == ("s1 != 0", "s1 <= s0")
    for n, m in [(10, 3), (11, 3), (100, 7), (4, 4)]:
        assert function(n, m) == mixed(n, m)
    assert function(2, 3) is None, "the maximum is the other one"
    assert function(2, 0) is None, "no division by zero"


@pytest.mark.parametrize(
    "compute",
    [lambda n: list(range(n)), lambda n: {10: "a"}.get(n), lambda n: math.sqrt(n), lambda n: [0] * n, lambda n: 1 << n],
)
def test_what_python_computes_itself_needs_the_size(compute: Callable[..., Any]) -> None:
    function, guards = recorded(compute, 10)
    assert guards == ("s0 == (10)",)
    assert function(10) == compute(10)
    assert function(11) is None


def test_comparisons_are_guards() -> None:
    function, guards = recorded(lambda n: "large" if n >= 64 and n % 16 == 0 else "other", 128)
    assert guards == ("s0 >= (64)", "t1 == (0)")
    assert [function(n) for n in (64, 65, 32)] == ["large", None, None]


def test_truth_is_a_guard() -> None:
    function, _ = recorded(lambda n: "some" if n else "none", 3)
    assert [function(n) for n in (3, 4, 0)] == ["some", "some", None]


def test_a_number_has_the_class_of_its_value() -> None:
    (n,) = SizeRecording(1).sizes([3])
    assert isinstance(n, int)
    assert isinstance(n / 2, float)
    assert not isinstance(n, float)
    assert type(n) is RecordedNumber
    assert f"{n} {n!r} {n:3d}" == "3 3   3"


def test_sizes_that_must_be_known_are_no_guards() -> None:
    function, guards = recorded(lambda n: (n.__index__(), known_size(n)), 3)
    assert guards == ()
    assert function(5) == (5, 5)


def test_a_key_with_a_number_is_another_than_that_of_its_value() -> None:
    recording = SizeRecording(1)
    (n,) = recording.sizes([4])
    known = {spec("f32[4]"): 1, TensorType(spec("f32[4]").dtype, (n,)): 2}
    assert known[spec("f32[4]")] == 1
    assert known[TensorType(spec("f32[4]").dtype, (n,))] == 2
    assert recording.guards == ("s0 >= (0)", f"s0 < ({2**63})"), "those of a type"


def test_a_call_is_one_operation() -> None:
    def halved(n: int, least: int) -> tuple[int, int]:
        times = 0
        while n > least:
            n, times = -(-n // 2), times + 1
        return n, times

    function, guards = recorded(lambda n: call_recorded(halved, n, 4), 100)
    assert guards == ()
    assert [function(n) for n in (3, 100, 1000)] == [halved(n, 4) for n in (3, 100, 1000)]
    assert call_recorded(halved, 100, 4) == halved(100, 4)


def test_records_are_made_once_and_constants_kept() -> None:
    constant = object()

    def compute(n: Any) -> Any:
        location = Location(BufferId("arena"), 4 * n, (n, 1))
        return [location, location, constant, {"size": n, "none": None}, BufferId("input", n)]

    function, guards = recorded(compute, 7)
    assert guards == ()
    result = function(9)
    assert result == [
        *[Location(BufferId("arena"), 36, (9, 1))] * 2, constant, {"size": 9, "none": None}, BufferId("input", 9)
    ]  # fmt: skip
    assert result[0] is result[1]
    assert result[2] is constant
    assert type(result[4]) is BufferId


def test_a_closed_recording_answers_nothing() -> None:
    recording = SizeRecording(1)
    (n,) = recording.sizes([4])
    recording.compile(n)
    assert [n].index(n) == 0
    assert n != 4
    assert recording.guards == ()
