"""Executables: named arrays in, arrays out, everything checked first, and nobody's memory touched that is not theirs."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import (
    BindingError,
    DtypeError,
    FormatError,
    GuardError,
    LengthMismatchError,
    MissingInputError,
    ShapeError,
    UnknownNameError,
)
from rlx_core.ir.array import HostArray
from rlx_core.runtime.bound import prepared
from rlx_core.runtime.executable import Executable

from .executables import address, executable_of, read_only

X = np.float32([[1, 2, 3]])
W = np.float32([[1, 0], [0, 1], [1, 1]])


@pytest.fixture
def linear() -> Executable:
    return executable_of(lambda g: g.input("x", "f32[batch, 3]") @ g.param("w", "f32[3, 2]"))


@pytest.fixture
def bound(linear: Executable) -> Executable:
    linear.set_param("w", W)
    return linear


# ------------------------------------------------------------------------------------------ what it says


def test_an_executable_says_what_it_takes_and_returns(linear):
    assert {n: str(t) for n, t in linear.inputs.items()} == {"x": "f32[batch, 3]"}
    assert {n: str(t) for n, t in linear.params.items()} == {"w": "f32[3, 2]"}
    assert [str(t) for t in linear.outputs.values()] == ["f32[batch, 2]"]
    assert "model(x: f32[batch, 3])" in repr(linear)
    assert repr(linear).endswith("on cpu>")


def test_the_report_is_that_of_the_latest_run():
    program = executable_of(lambda g: g.sum(g.sort(g.input("x", "f32[n]"))[0], axes=(0,)))
    assert "memory is planned when n is bound" in str(program.report)
    sizes = []
    for n in (100, 1000, 100):
        program.run({"x": np.zeros(n, np.float32)})
        assert str(program.report.lir.graph.input_types["x"]) == f"f32[{n}]"
        sizes.append(program.report.lir.arena_nbytes)
    assert sizes[0] == sizes[2] < sizes[1]
    assert str(program.lir.graph.input_types["x"]) == "f32[n]", "the plan itself stays the template"


# ----------------------------------------------------------------------------------------------- running


@pytest.mark.medium
def test_every_way_to_run_gives_the_same(bound):
    (expected,) = bound.run({"x": X})

    np.testing.assert_array_equal(expected, X @ W)
    np.testing.assert_array_equal(bound.run_slots([X])[0], expected)
    np.testing.assert_array_equal(bound.run_flat({"x": X})[0], expected.ravel())
    ((data, of, dims),) = bound.run_typed({"x": (X.tobytes(), "f32")})
    assert (data, of, dims) == (expected.tobytes(), rlx.f32, (1, 2))


@pytest.mark.parametrize("name", ["bool", "i8", "u16", "i64", "f16", "bf16", "f32", "f64", "c64", "c128"])
def test_every_dtype_goes_in_and_out_as_itself(name):
    of = rlx.spec(f"{name}[3]").dtype
    identity = executable_of(lambda g: g.input("x", f"{name}[3]"))
    data = np.array([0, 1, 1]).astype(of.numpy)

    (found,) = identity.run({"x": data})
    assert found.dtype == of.numpy
    assert found.tobytes() == data.tobytes()
    assert identity.run_typed({"x": (data.tobytes(), of)}) == [(data.tobytes(), of, (3,))]


class OnlyDlpack:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


LAYOUTS = {
    "as it is": lambda a: a,
    "strided": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "reversed": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "column-major": np.asfortranarray,
    "broadcast": lambda a: np.broadcast_to(a, a.shape),
    "big-endian": lambda a: a.astype(">f4"),
    "read-only": read_only,
    "misaligned": lambda a: np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:].view(np.float32).reshape(a.shape),
    "DLPack": OnlyDlpack,
    "buffer": memoryview,
    "subclass": np.asmatrix,
}


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_inputs_and_weights_of_any_layout_and_library_are_taken(linear, layout):
    x = np.float32([[1, 2, 3], [4, 5, 6]])
    linear.set_param("w", layout(W))
    (found,) = linear.run({"x": layout(x)})

    assert isinstance(found, HostArray)
    np.testing.assert_array_equal(found, x @ W)


def test_inputs_are_never_written(bound):
    chain = executable_of(lambda g: g.exp(g.input("x", "f32[64]") + 1) * 2)
    x = np.arange(64, dtype=np.float32) / 64
    before = x.copy()
    chain.run({"x": x})

    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize(
    "build",
    [
        lambda g: g.input("x", "f32[4]"),
        lambda g: (g.input("x", "f32[4]"),) * 2,
        lambda g: (g.exp(g.input("x", "f32[4]")),) * 2,
        lambda g: g.reshape(g.input("x", "f32[4]"), (2, 2)),
        lambda g: g.constant(np.arange(4, dtype=np.float32)),
        lambda g: g.param("w", "f32[4]"),
        lambda g: g.exp(g.param("w", "f32[4]")),
        lambda g: (lambda y: (y, g.reshape(y, (2, 2)), y[1:3]))(g.exp(g.input("x", "f32[4]"))),
    ],
    ids=[
        "input",
        "input twice",
        "value twice",
        "view of input",
        "constant",
        "param",
        "of param only",
        "value and views",
    ],
)
def test_outputs_belong_to_the_caller(build):
    program = executable_of(build)
    x, w = np.arange(4, dtype=np.float32), np.arange(4, dtype=np.float32)
    program.set_params({"w": w} if program.params else {})
    inputs = {"x": x} if program.inputs else {}
    first = program.run(inputs)
    kept = [np.array(a) for a in first]
    for a in first:
        a[...] = a + 100  # a caller may assign to what is theirs, each output by itself
        with pytest.raises(ValueError, match="read-only"):
            np.asarray(a)[...] = 0
    second = program.run(inputs)

    for a, k in zip(second, kept, strict=True):
        np.testing.assert_array_equal(a, k)
    for a, k in zip(first, kept, strict=True):
        np.testing.assert_array_equal(a, k + 100)
    np.testing.assert_array_equal(x, np.arange(4))
    np.testing.assert_array_equal(w, np.arange(4))


def test_an_unused_input_is_fed_and_checked():
    program = executable_of(lambda g: (g.input("unused", "f32[2]"), g.exp(g.input("x", "f32[1]")))[1])

    np.testing.assert_array_equal(
        program.run({"unused": np.zeros(2, np.float32), "x": np.zeros(1, np.float32)})[0], [1]
    )
    with pytest.raises(ShapeError, match="unused must be f32\\[2\\], not f32\\[3\\]"):
        program.run({"unused": np.zeros(3, np.float32), "x": np.zeros(1, np.float32)})


# ------------------------------------------------------------------------------------- what is refused

REFUSED = [
    (lambda e: e.run({}), MissingInputError, "x is not given"),
    (lambda e: e.run(), MissingInputError, "x is not given"),
    (lambda e: e.run({"x": X, "y": X}), UnknownNameError, "no input 'y'"),
    (lambda e: e.run({"x": X, "w": W}), UnknownNameError, "no input 'w'; it is a parameter"),
    (lambda e: e.run({"x": X.astype(np.float64)}), DtypeError, "x must be f32, not f64"),
    (lambda e: e.run({"x": X[0]}), ShapeError, "x must be f32\\[batch, 3\\], not f32\\[3\\]"),
    (lambda e: e.run({"x": X[:, :2]}), ShapeError, "x must be f32\\[batch, 3\\], not f32\\[1, 2\\]"),
    (lambda e: e.run_slots([]), MissingInputError, "takes 1 inputs \\(x\\), not 0"),
    (lambda e: e.run_slots([X, X]), MissingInputError, "takes 1 inputs \\(x\\), not 2"),
    (lambda e: e.run_flat({"x": X[0, :2]}), BindingError, "x has 2 elements, not a multiple of 3"),
    (lambda e: e.run_flat({}), MissingInputError, "x is not given"),
    (lambda e: e.run_flat({"z": X}), UnknownNameError, "no input 'z'"),
    (lambda e: e.run_typed({"x": (b"12345", "f32")}), LengthMismatchError, "x has 5 bytes, not a multiple of the 4"),
    (lambda e: e.run_typed({"x": (X.tobytes(), "i32")}), DtypeError, "x must be f32, not i32"),
    (lambda e: e.run_typed({"x": (X.tobytes(), "f33")}), DtypeError, "'f33' is not an element type"),
    (lambda e: e.set_param("w", W.T), ShapeError, "w must be f32\\[3, 2\\], not f32\\[2, 3\\]"),
    (lambda e: e.set_param("w", W.astype(np.int32)), DtypeError, "w must be f32, not i32"),
    (lambda e: e.set_param("x", X), UnknownNameError, "no parameter 'x'; it is an input"),
    (lambda e: e.set_params({"w": 9 * W, "v": W}), UnknownNameError, "no parameter 'v'"),
    (lambda e: e.set_params({"w": 9 * W, "x": X}), UnknownNameError, "no parameter 'x'"),
    (lambda e: e.set_param_typed("w", W.tobytes()[:-1], "f32"), LengthMismatchError, "24 bytes, not 23"),
    (lambda e: e.set_param_typed("w", W.tobytes() + b"\0", "f32"), LengthMismatchError, "24 bytes, not 25"),
    (lambda e: e.set_param_typed("w", W.tobytes(), "f64"), DtypeError, "w must be f32, not f64"),
    (lambda e: e.bind_handle("x", X[0]), ShapeError, "x must be"),
    (lambda e: e.bind_handle("y", X), UnknownNameError, "no input 'y'"),
    (lambda e: e.bind_handle("out1", X), UnknownNameError, "out1 is output 1, and there are 1"),
    (lambda e: e.read_handle("x"), UnknownNameError, "nothing is bound to 'x'"),
]


@pytest.mark.parametrize(
    ("act", "error", "says"), REFUSED, ids=[f"{i} {says}" for i, (_, _, says) in enumerate(REFUSED)]
)
def test_what_is_wrong_is_named_and_changes_nothing(bound, act, error, says):
    with pytest.raises(error, match=says):
        act(bound)
    np.testing.assert_array_equal(bound.run({"x": X})[0], X @ W)


def test_an_error_shows_the_line_that_declared_the_input(bound):
    with pytest.raises(ShapeError) as caught:
        bound.run({"x": X[0]})
    assert "test_executable.py:" in str(caught.value)
    assert 'g.input("x", "f32[batch, 3]")' in str(caught.value)


def test_a_parameter_that_was_never_bound_is_named(linear):
    with pytest.raises(MissingInputError, match=r"parameter w was never bound \(1 of 1\)"):
        linear.run({"x": X})
    linear.set_param_typed("w", W.tobytes(), rlx.f32)
    np.testing.assert_array_equal(linear.run({"x": X})[0], X @ W)


def test_bytes_are_counted_as_bytes_whatever_holds_them(linear):
    for held in (W.tobytes(), bytearray(W.tobytes()), memoryview(W), memoryview(W).cast("B")):
        linear.set_param_typed("w", held, "f32")
        np.testing.assert_array_equal(linear.run({"x": X})[0], X @ W)


def test_bytes_do_not_tell_several_unknown_sizes():
    program = executable_of(lambda g: g.input("x", "f32[m, n]") + g.param("p", "f32[m, n]"))
    with pytest.raises(BindingError, match="cannot determine more than one"):
        program.run_typed({"x": (X.tobytes(), "f32")})
    with pytest.raises(FormatError, match="cannot be told from bytes"):
        program.set_param_typed("p", X.tobytes(), "f32")


# ---------------------------------------------------------------------------------------------- symbols


@pytest.mark.medium
def test_sizes_are_read_off_the_arrays_and_must_agree():
    program = executable_of(lambda g: g.input("x", "f32[n, 2]") @ g.input("y", "f32[2, n]"))
    for n in (1, 3, 0, 3):
        x, y = np.ones((n, 2), np.float32), np.ones((2, n), np.float32)
        np.testing.assert_array_equal(program.run({"x": x, "y": y})[0], x @ y)
    with pytest.raises(BindingError, match="n is 3 in x axis 0 and 4 in y axis 1"):
        program.run({"x": np.ones((3, 2), np.float32), "y": np.ones((2, 4), np.float32)})


def test_a_guard_that_does_not_hold_is_an_error_with_its_line():
    program = executable_of(lambda g: g.input("x", "f32[a]") + g.input("y", "f32[b]"))

    np.testing.assert_array_equal(program.run({"x": np.ones(2, np.float32), "y": np.ones(2, np.float32)})[0], [2, 2])
    with pytest.raises(GuardError, match=r"a == b|b == a") as caught:
        program.run({"x": np.ones(2, np.float32), "y": np.ones(3, np.float32)})
    assert "test_executable.py:" in str(caught.value)
    np.testing.assert_array_equal(program.run({"x": np.ones(3, np.float32), "y": np.ones(3, np.float32)})[0], [2, 2, 2])


def test_a_parameter_may_have_symbolic_sizes():
    program = executable_of(lambda g: g.input("x", "f32[2]") @ g.param("w", "f32[2, n]"))
    for n in (3, 1):
        w = np.ones((2, n), np.float32)
        program.set_param("w", w)
        np.testing.assert_array_equal(program.run({"x": np.ones(2, np.float32)})[0], np.ones(2) @ w)


# -------------------------------------------------------------------------------------------- parameters


def test_rebinding_reaches_every_size_and_every_clone(bound):
    clone = bound.clone()
    for each in (bound, clone):
        for rows in (1, 2):
            each.run({"x": np.ones((rows, 3), np.float32)})
    clone.set_param("w", 2 * W)

    for each in (bound, clone):
        for rows in (1, 2):
            x = np.ones((rows, 3), np.float32)
            np.testing.assert_array_equal(each.run({"x": x})[0], x @ (2 * W))


def test_the_programs_of_the_last_sizes_are_kept_and_no_more(bound, monkeypatch):
    monkeypatch.setattr("rlx_core.runtime.bound._PROGRAMS_KEPT", 3)
    fresh = Executable(bound._compiled)
    fresh.set_param("w", W)
    for size in (1, 2, 1, 3, 4, 5, 1, 2):
        x = np.float32([[1, 2, 3]] * size)
        np.testing.assert_array_equal(fresh.run({"x": x})[0], x @ W)

    kept = fresh._shared.programs.keys()
    assert [list(binding.sizes.values()) for binding in kept] == [[5], [1], [2]]


def test_work_on_parameters_is_done_when_they_are_bound():
    program = executable_of(lambda g: g.input("x", "f32[2]") + g.exp(g.param("w", "f32[2]")))
    for w in ([0, 0], [1, 2]):
        program.set_param("w", np.float32(w))
        for _ in range(2):
            np.testing.assert_allclose(program.run({"x": np.zeros(2, np.float32)})[0], np.exp(np.float32(w)), rtol=1e-6)
    prepare = program.lir.prepare
    assert prepare is not None
    assert [node.op.name for node in prepare.nodes if not node.is_leaf] == ["rlx.exp"]
    assert [node.op.name for node in program.lir.graph.nodes if not node.is_leaf] == ["rlx.add"]


def test_work_on_parameters_is_done_once_for_all_sizes(monkeypatch):
    program = executable_of(lambda g: g.input("x", "f32[n, 2]") + g.exp(g.param("w", "f32[2]")))
    ran = []
    monkeypatch.setattr("rlx_core.runtime.bound.prepared", lambda *given: ran.append(prepared(*given)) or ran[-1])
    for w in (np.float32([0, 1]), np.float32([2, 3])):
        program.set_param("w", w)
        for size in (1, 2, 1, 3):
            x = np.ones((size, 2), np.float32)
            np.testing.assert_allclose(program.run({"x": x})[0], x + np.exp(w), rtol=1e-6)
    assert len(ran) == 2, "once a binding of parameters"


def test_bound_weights_are_used_where_they_lie():
    """By a tier that does not pack them: a packed copy would not see the change."""
    build = lambda g: g.input("x", "f32[batch, 3]") @ g.param("w", "f32[3, 2]")  # noqa: E731
    linear = executable_of(build, options={"cpu.tier": "numpy"})
    w = W.copy()
    linear.set_param("w", w)
    linear.run({"x": X})
    w *= 2  # what a caller is told not to do shows that nothing was copied

    np.testing.assert_array_equal(linear.run({"x": X})[0], X @ (2 * W))


# ----------------------------------------------------------------------------------------------- handles


def test_a_handle_is_the_default_for_its_input_and_out_n_holds_output_n():
    program = executable_of(lambda g: (g.input("x", "f32[2]") + g.input("y", "f32[2]"), g.input("z", "f32[1]")))
    program.bind_handle("y", np.float32([10, 20]))
    program.bind_handle("out0", np.zeros(2, np.float32))
    program.bind_handle("z", np.zeros(1, np.float32))

    np.testing.assert_array_equal(program.run({"x": np.float32([1, 2])})[0], [11, 22])
    np.testing.assert_array_equal(program.read_handle("out0"), [11, 22])
    np.testing.assert_array_equal(program.run({"x": np.float32([1, 2]), "y": np.float32([0, 0])})[0], [1, 2])
    np.testing.assert_array_equal(program.read_handle("y"), [10, 20])
    np.testing.assert_array_equal(program.run_flat({"x": np.float32([1, 2])})[0], [11, 22])
    assert len(program.run_typed({"x": (np.float32([1, 2]).tobytes(), "f32")})) == 2


def test_clones_have_handles_of_their_own():
    program = executable_of(lambda g: g.exp(g.input("x", "f32[1]")))
    program.bind_handle("x", np.zeros(1, np.float32))

    with pytest.raises(MissingInputError, match="x is not given"):
        program.clone().run()
    np.testing.assert_array_equal(program.run()[0], [1])


def test_a_donated_handle_is_a_cache_that_stays_where_it_is():
    program = executable_of(lambda g: g.input("cache", "f32[4]") + g.input("x", "f32[4]"), donations={"cache": 0})
    program.bind_handle("cache", np.zeros(4, np.float32))
    place = None
    for step in range(1, 4):
        (found,) = program.run({"x": np.ones(4, np.float32)})
        np.testing.assert_array_equal(program.read_handle("cache"), [step] * 4)
        assert place in (None, address(found))
        place = address(found)


# ---------------------------------------------------------------------------------------------- threads


def in_threads(count, work):
    """Run `work(i)` in threads that start together; errors are raised here."""
    gate = threading.Barrier(count)

    def call(i):
        gate.wait()
        work(i)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(call, range(count)))


@pytest.mark.medium
def test_eight_threads_run_one_executable_while_others_compile_and_specialise():
    program = executable_of(lambda g: g.sum(g.exp(g.input("x", "f32[n, 4]") @ g.param("w", "f32[4, 4]")), axes=(0,)))
    w = np.eye(4, dtype=np.float32)
    program.set_param("w", w)

    def work(i):
        if i >= 8:
            for k in range(3):
                other = executable_of(lambda g: g.exp(g.input("x", f"f32[{i}, {k + 1}]")))  # noqa: B023
                assert other.run({"x": np.zeros((i, k + 1), np.float32)})[0].sum() == i * (k + 1)
            return
        for step in range(20):
            n = 1 + (i + step) % 5
            x = np.full((n, 4), i, np.float32)
            np.testing.assert_allclose(program.run({"x": x})[0], n * np.exp(np.float32([i] * 4)), rtol=1e-5)

    in_threads(10, work)


def test_a_run_sees_one_state_of_all_parameters():
    program = executable_of(lambda g: g.input("x", "f32[256]") + g.param("a", "f32[256]") + g.param("b", "f32[256]"))
    program.set_params({"a": np.zeros(256, np.float32), "b": np.zeros(256, np.float32)})
    clones = [program.clone() for _ in range(4)]

    def work(i):
        for k in range(50):
            if i < 2:
                value = np.float32(1000 * i + k)
                clones[i].set_params({"a": np.full(256, value), "b": np.full(256, -value)})
            else:
                np.testing.assert_array_equal(clones[i].run({"x": np.zeros(256, np.float32)})[0], 0)

    in_threads(4, work)
