"""What a person is told who asks a traced value for its elements: the hint follows what asked."""

import contextlib
import math
import re
from math import floor

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import TraceError

X = np.ones(3, np.float32)
S = np.float32(0.5)
N = np.int32(2)


def refused(function, *args):
    with pytest.raises(TraceError) as caught:
        rlx.jit(function)(*args)
    return caught.value


@pytest.mark.parametrize(
    ("function", "argument", "hint"),
    [
        (lambda x: np.concatenate([x, x]), X, "rlx.concat,"),
        (lambda x: np.sum(x), X, "rlx.sum,"),
        (lambda x: np.sin(x), X, "rlx.sin,"),
        (lambda x: np.add.reduce(x), X, "rlx.sum,"),
        (lambda x: np.arctan2(x, x), X, "rlx.atan2,"),
        (lambda x: np.array([x[0], x[1]]), X, "rlx.stack"),
        (lambda x: math.sin(x), S, "rlx.sin,"),
        (lambda x: floor(x), S, "rlx.floor,"),
        (lambda n: list(range(n)), N, "rlx.fori_loop(0, n"),
        (lambda x: float(x), S, "rlx.astype(x, rlx.f32)"),
        (lambda x: int(x), S, "rlx.astype(x, rlx.i32)"),
        (lambda x: round(x), S, "rlx.round"),
        (lambda x: max(x, 0), S, "rlx.maximum(a, b)"),
        (lambda x: 1 in x, X, "rlx.any(x == value)"),
        (lambda x: 1 if x > 0 else 2, S, "rlx.where"),
        (lambda x: x > 0 and x < 1, S, "use & and |"),
        (lambda x: 0 < x < 1, S, "(a < x) & (x < b)"),
        (lambda n: [1, 2, 3][n], N, "rlx.take"),
        (lambda x: f"{x:.2f}", S, "return it from the traced function"),
        (lambda x: x.item(), S, "return it from the traced function"),
        (lambda x: math.gcd(x, 2), N, "outside the traced function"),
        (lambda x: np.linalg.matrix_rank(x), X, "outside the traced function"),
    ],
)
def test_the_hint_is_about_what_asked(function, argument, hint):
    error = refused(function, argument)
    assert hint in error.hint
    if "rlx.where" not in hint:
        assert "rlx.where" not in error.hint


def test_functions_that_hints_name_exist():
    from rlx_core.ir.graph.elements import BUILTINS, SAME

    named = re.findall(r"rlx\.(\w+)", " ".join(BUILTINS.values()))
    assert all(hasattr(rlx, name) for name in named)
    assert all(hasattr(rlx, name) for name in SAME.values())


def test_an_assignment_to_an_argument_is_refused_with_what_to_write():
    def overwrite(x):
        x[0] = 1
        return x

    error = refused(overwrite, X)
    assert "rlx.asarray(x, copy=True)" in error.hint
    assert any("x[0] = 1" in str(fact.value) for fact in error.facts)


def test_a_line_is_said_once():
    error = refused(lambda x: 1 if x > 0 else 2, S)
    lines = str(error).splitlines()
    assert len([line for line in lines if "test_hints.py" in line]) == 1


def test_a_type_error_that_is_not_numpys_is_left_alone():
    with pytest.raises(TypeError, match="unsupported operand") as caught:
        rlx.jit(lambda x: {} + 1)(X)
    assert not isinstance(caught.value, TraceError)


# -------------------------------------------------------------------------------------------- leaked values


def kept_by(function=lambda x: None):
    kept = []

    def keeping(x):
        kept.append(x * 2)
        function(x)
        return x

    with contextlib.suppress(ZeroDivisionError):
        rlx.jit(keeping)(X)
    return kept[0]


@pytest.mark.parametrize(
    "use",
    [
        lambda v: v + 1,
        lambda v: rlx.sin(v),
        lambda v: np.asarray(v),
        lambda v: float(v),
        lambda v: rlx.jit(lambda x: x)(v),
        lambda v: rlx.jit(lambda x: x + v)(X),
        lambda v: rlx.grad(lambda x: rlx.sum(x * v))(X),
    ],
    ids=["operator", "op", "array", "float", "argument", "other trace", "gradient"],
)
def test_a_leaked_value_is_called_so_with_the_line_that_made_it_and_the_line_that_uses_it(use):
    with pytest.raises(TraceError, match="leaked from keeping") as caught:
        use(kept_by())
    text = str(caught.value)
    assert "kept.append(x * 2)" in text
    assert text.count("test_hints.py") == 2


def test_a_value_has_leaked_too_if_its_trace_ended_in_an_error():
    with pytest.raises(TraceError, match="leaked from keeping"):
        kept_by(lambda x: 1 // 0) + 1


# --------------------------------------------------------------------------- tensors of other libraries


class Tensor:
    """Says of itself what a torch tensor says, and refuses as one does."""

    def __init__(self, **said):
        self.__dict__.update({"requires_grad": False, "dtype": "torch.float32", "layout": "torch.strided"})
        self.__dict__.update(said)

    def __dlpack_device__(self):
        return self.__dict__.get("place", 1), 0

    def __dlpack__(self, **options):
        raise BufferError("no")

    def __array__(self, *args, **options):
        raise RuntimeError("Can't call numpy() on this tensor")


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ({"requires_grad": True}, "pass x.detach() instead of x"),
        ({"dtype": "torch.bfloat16"}, "pass x.float() instead of x"),
        (
            {"requires_grad": True, "dtype": "torch.bfloat16", "place": 2},
            "pass x.detach().cpu().float() instead",
        ),
        ({"layout": "torch.sparse_coo"}, "pass x.to_dense() instead of x"),
    ],
)
def test_a_tensor_that_gives_nothing_away_is_told_how_it_would(said, hint):
    for call in (rlx.sin, rlx.jit(lambda x: x)):
        with pytest.raises(TraceError) as caught:
            call(Tensor(**said))
        assert hint in caught.value.hint
