"""Each law fails on an op that breaks it: a law that cannot fail is not one."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rlx_core.errors import ShapeError
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.samples import Case, Rejected, Sample
from rlx_core.ir.types import TensorType
from rlx_core.ops.activation import tanh
from rlx_core.ops.arithmetic import multiply
from rlx_core.testing.cases import Program, ops_of, rejections, select
from rlx_core.testing.laws import EveryOp


class Square(Op):
    """x², right in every respect; the ops below break one rule each."""

    def infer(self, x: TensorType) -> TensorType:
        return x

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x * x

    def decompose(self, x):
        return multiply(x, x)

    def vjp(self, g, x, *, y):
        return (g * 2.0 * x,)

    def jvp(self, t, x, *, y):
        return t[0] * 2.0 * x

    def batch(self, size, x, is_batched):
        return self(x[0])

    @classmethod
    def samples(cls):
        yield Sample("f32[3, 2]")


@define_op(domain="test")
class Right(Square):
    """The square itself."""


@define_op(domain="test")
class WrongShape(Square):
    """Infers a dim too few."""

    def infer(self, x: TensorType) -> TensorType:
        return x.with_shape(x.shape[1:])


@define_op(domain="test")
class WrongKind(Square):
    """Its reference leaves the reals."""

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x * x + 0j


@define_op(domain="test")
class Rough(Square):
    """Its reference keeps three digits of f32 results, and all of f64 ones."""

    def reference(self, x: np.ndarray) -> np.ndarray:
        return (x * x).astype(np.float16) if x.dtype == np.float32 else x * x


@define_op(domain="test")
class OtherMeaning(Square):
    """Decomposes into something else."""

    def decompose(self, x):
        return multiply(x, x) * 1.001


@define_op(domain="test")
class WrongVjp(Square):
    """Forgets the factor 2 in reverse."""

    def vjp(self, g, x, *, y):
        return (g * x,)


@define_op(domain="test")
class WrongBoth(Square):
    """Wrong in the same way in both modes, so only differences can tell."""

    decompose = None

    def vjp(self, g, x, *, y):
        return (g * 2.001 * x,)

    def jvp(self, t, x, *, y):
        return t[0] * 2.001 * x


@define_op(domain="test")
class OnceOnly(Square):
    """The first derivative is right where it is evaluated, and has another derivative than it should."""

    decompose = None

    def vjp(self, g, x, *, y):
        return (g * Frozen()(x),)

    def jvp(self, t, x, *, y):
        return t[0] * Frozen()(x)


@define_op(domain="test")
class Frozen(Op):
    """2x, declared to have another derivative."""

    def infer(self, x: TensorType) -> TensorType:
        return x

    def reference(self, x: np.ndarray) -> np.ndarray:
        return 2 * x

    def vjp(self, g, x, *, y):
        return (tanh(g),)

    def jvp(self, t, x, *, y):
        return tanh(t[0])


@define_op(domain="test")
class WrongBatch(Square):
    """Mixes the examples of a batch."""

    def batch(self, size, x, is_batched):
        return multiply(x[0], x[0]) * (self(x[0]) * 0.0 + 2.0)


@define_op(domain="test")
class Lenient(Square):
    """Accepts what it promises to refuse."""

    @classmethod
    def samples(cls):
        yield Rejected("f32[2]", error=ShapeError, says="two axes")


LAWS = {name: getattr(EveryOp(), name) for name in dir(EveryOp) if name.startswith("test_")}


def program(op: type[Op]) -> Program:
    sample = next(iter(op.samples()))
    return Program(Case(op, sample))


@pytest.mark.parametrize(
    ("op", "law"),
    [
        (WrongShape, "test_inferred_type_is_the_type_computed"),
        (WrongKind, "test_inferred_type_is_the_type_computed"),
        (Rough, "test_typed_result_is_close_to_the_float64_oracle"),
        (OtherMeaning, "test_decomposition_means_the_same"),
        (WrongVjp, "test_vjp_agrees_with_finite_differences"),
        (WrongVjp, "test_vjp_and_jvp_are_transposes"),
        (WrongVjp, "test_own_rule_agrees_with_derived_rule"),
        (WrongBoth, "test_vjp_agrees_with_finite_differences"),
        (OnceOnly, "test_second_derivative_agrees_with_differences_of_the_gradient"),
        (WrongBatch, "test_vmap_agrees_with_a_loop"),
    ],
)
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_a_law_fails_on_an_op_that_breaks_it(op, law):
    LAWS[law](program(Right))
    with pytest.raises((AssertionError, ValueError)):
        LAWS[law](program(op))


def test_a_promise_to_refuse_is_held_against_the_op():
    (case,) = rejections([Lenient])
    with pytest.raises(AssertionError, match="is accepted"):
        LAWS["test_rejection_says_what_it_promised"](case)


def test_a_backend_that_computes_something_else_is_caught():
    def run(graph, arrays):
        return [(np.asarray(arrays[0]) ** 2 * (1 + 1e-3)).astype(np.float32)]

    with pytest.raises(AssertionError):
        LAWS["test_backend_agrees_with_the_interpreter"](program(Right), run)


def test_ops_are_chosen_by_name_with_or_without_their_domain():
    ops = ops_of("rlx_core.ops.arithmetic")
    assert select(ops, ["add"]) == select(ops, ["rlx.add"])
    with pytest.raises(KeyError, match="did you mean `add`"):
        select(ops, ["ad"])


PLUGIN = '''
import numpy as np
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.samples import Sample
from rlx_core.ops.arithmetic import multiply

@define_op(domain="acme")
class Cube(Op):
    """x³."""

    def decompose(self, x):
        return multiply(x, multiply(x, x))

    @classmethod
    def samples(cls):
        yield Sample("f32[3]")

OPS = (Cube,)

def run(graph, arrays):
    return [np.asarray(a, np.float32) ** 3 for a in arrays]
'''


def test_a_third_party_runs_the_laws_over_its_own_ops_and_backend(tmp_path: Path):
    (tmp_path / "acme_ops.py").write_text(PLUGIN)
    root = Path(__file__).parents[2]
    options = ["--rlx-plugin=acme_ops", "--rlx-backend=acme_ops:run", "--pyargs", "rlx_core.testing"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "rlx_core.testing.plugin", *options],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{root}:{tmp_path}", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout
    assert "failed" not in ran.stdout
