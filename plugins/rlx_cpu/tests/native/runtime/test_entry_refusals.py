"""What takes the checked road: arguments that are not plain, profiles, and programs that have no entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from entries import HOST, X, entry_of, jitted, opened, program

import rlx_core as rlx
from rlx_core.errors import DtypeError, RlxError, ShapeError, WrongInputCountError
from rlx_core.ir.graph import Builder
from rlx_core.ops.arithmetic import add
from rlx_core.pipeline.compile import compile_graph
from rlx_core.pipeline.compiled import CompiledProgram
from rlx_core.pipeline.profile import profiled
from rlx_core.runtime.executable import Executable
from rlx_cpu.native.runtime import interpreter

pytestmark = pytest.mark.usefixtures("without_poison")


def misaligned(array: np.ndarray) -> np.ndarray:
    raw = np.zeros(array.nbytes + 1, np.uint8)
    found = raw[1:].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


class Own(np.ndarray):
    """A subclass, which may give anything another meaning."""


NOT_PLAIN: dict[str, Callable[[np.ndarray], Any]] = {
    "another dtype": lambda x: x.astype("f8"),
    "big-endian": lambda x: x.astype(">f4"),
    "strided": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "transposed": lambda x: np.asfortranarray(x),
    "misaligned": misaligned,
    "a subclass": lambda x: x.view(Own),
    "a list": lambda x: x.tolist(),
    "another shape": lambda x: x[:2],
    "another rank": lambda x: x[None],
    "one rank less": lambda x: x[0],
    "rank zero": lambda x: np.float32(1.0),
    "no elements": lambda x: x[:0],
    "a dtype with metadata": lambda x: x.view(np.dtype("f4", metadata={"unit": "m"})),
    "nothing": lambda x: None,
    "a number": lambda x: 1.5,
}


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_what_is_not_plain_is_refused_and_served_by_the_checked_road(name: str) -> None:
    """Compiled ahead, another type is an error; converted or copied, it gives the same numbers."""
    fast = rlx.compile(lambda x: rlx.exp(x) * 2.0, rlx.spec("f32[4, 16]"), host=HOST, target="cpu")
    expected = np.copy(fast(X))
    fast(X)
    entry = fast.executable.entry_cell.entry
    assert entry is not None
    odd = NOT_PLAIN[name](X)

    assert entry(odd) is NotImplemented
    wrong = {
        "another dtype": DtypeError, "another shape": ShapeError, "another rank": ShapeError, "one rank less": ShapeError,
        "rank zero": ShapeError, "no elements": ShapeError, "a list": RlxError, "nothing": RlxError, "a number": RlxError,
    }.get(name)  # fmt: skip
    if wrong is not None:
        with pytest.raises(wrong):
            fast(odd)
    else:
        np.testing.assert_array_equal(fast(odd), expected)
    np.testing.assert_array_equal(fast(X), expected)


def test_read_only_and_repeated_arguments_are_plain_where_nothing_is_donated() -> None:
    fast = jitted(lambda x, y: x + y)
    kept = X.copy()
    kept.flags.writeable = False
    expected = np.copy(fast(kept, kept))
    np.testing.assert_array_equal(entry_of(fast)(kept, kept)[0], expected)


@pytest.mark.parametrize("part", [np.s_[:], np.s_[1:], np.s_[2:]], ids=["all", "some", "none"])
def test_a_donated_numpy_array_is_copied_whether_or_not_a_parameter_overlaps_it(part: Any) -> None:
    fast = Executable(with_parameter({"x": 0}))
    room = np.ones((4, 3), "f4")
    fast.set_params({"w": room[:2]})
    for _ in range(4):
        x = room[part][:2]
        (found,) = fast.run({"x": x})
        np.testing.assert_array_equal(found, np.full((2, 3), 2, "f4"))
        assert not np.shares_memory(found, room)
        np.testing.assert_array_equal(room, 1)
    assert fast.entry_cell.entry is not None


def test_a_program_that_writes_to_a_parameter_has_no_entry() -> None:
    fast = Executable(with_parameter({"w": None}))
    fast.set_params({"w": np.ones((2, 3), "f4")})
    for _ in range(3):
        fast.run({"x": X[:2, :3].copy()})
    assert fast.entry_cell.entry is None
    assert fast.report.checked == "parameter w is donated"


def with_parameter(donations: dict[str, int | None]) -> CompiledProgram:
    """x + w, where w is a parameter."""
    builder = Builder()
    x, w = builder.input("x", rlx.spec("f32[2, 3]")), builder.param("w", rlx.spec("f32[2, 3]"))
    return compile_graph(builder.finish([add(x, w)]), target="cpu", host=HOST, donations=donations)


def test_another_number_of_arguments_is_refused() -> None:
    fast = rlx.compile(lambda x, y: x + y, rlx.spec("f32[4]"), rlx.spec("f32[4]"), host=HOST, target="cpu")
    x = np.ones(4, "f4")
    for _ in range(3):
        fast(x, x)
    for wrong in ((), (x,), (x, x, x)):
        with pytest.raises(WrongInputCountError):
            fast(*wrong)
    np.testing.assert_array_equal(fast(x, y=x), [2, 2, 2, 2])
    np.testing.assert_array_equal(fast(y=x, x=x), [2, 2, 2, 2])


def test_bfloat16_arrays_are_plain_if_their_program_is_native() -> None:
    fast = jitted(lambda x: x + x)
    x = np.ones(8, ml_dtypes.bfloat16)
    for _ in range(4):
        np.testing.assert_array_equal(fast(x).astype("f32"), np.full(8, 2, "f4"))


def test_a_profile_keeps_calls_on_the_checked_road() -> None:
    fast = opened(jitted(lambda x: rlx.exp(x)), X)
    entry = fast.executables[0].entry_cell.entry
    with profiled() as profile:
        assert entry(X) is NotImplemented
        fast(X)
    assert len(profile.times) == 1
    assert entry(X) is not NotImplemented


def test_another_layout_of_objects_means_no_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = jitted(lambda x: rlx.exp(x))
    fast(X)
    monkeypatch.setattr(interpreter, "reason_against", lambda: "NumPy's arrays have another layout")
    assert program(fast).entry("lambda") is None
    assert program(fast).reason_without_entry == "NumPy's arrays have another layout"


def test_layouts_are_read_and_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(interpreter._differences()) == []
    monkeypatch.setattr(interpreter.ARRAY, "dims", 40)  # where strides are
    assert list(interpreter._differences()) == ["NumPy's arrays have another layout"]


def test_a_program_with_a_numpy_step_has_no_entry_and_its_report_says_why() -> None:
    fast = jitted(lambda x: rlx.solve(x, rlx.exp(x)))
    x = np.eye(40, dtype="f4") * 2
    for _ in range(3):
        np.testing.assert_allclose(fast(x), np.exp(x) / 2, rtol=1e-5)
    (kernel,) = [k for _, k, _ in fast.report.kernels if not k.startswith("native_")]
    assert program(fast).entry("lambda") is None
    assert f"every call is checked in Python: {kernel} runs with NumPy" in str(fast.report)
