"""The small twin is short, stands alone, runs, and computes what it says."""

from __future__ import annotations

import ast
import importlib.util
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytestmark = pytest.mark.every_case

FILE = Path(__file__).parents[2] / "docs" / "small.py"
SHAPES = {"x": (5, 1), "t": (5, 1), "w1": (1, 3), "b1": (3,), "w2": (3, 1), "b2": (1,)}


@pytest.fixture(scope="module")
def small() -> ModuleType:
    spec = importlib.util.spec_from_file_location("small", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["small"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["small"]


def arrays(shapes: dict[str, tuple[int, ...]], low: float = -2.0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {name: rng.uniform(low, 2, shape) for name, shape in shapes.items()}


def test_it_can_be_read_whole_and_needs_numpy_alone() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    nodes = list(ast.walk(ast.parse(text)))
    modules = {alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names}
    modules |= {n.module for n in nodes if isinstance(n, ast.ImportFrom)}
    assert {name.split(".")[0] for name in modules} - set(sys.stdlib_module_names) == {"numpy"}


def test_it_names_modules_of_rlx_that_exist() -> None:
    root = FILE.parents[1]
    named = re.findall(r"^# -+ .*\((.*rlx_core.*)\)$", FILE.read_text(encoding="utf-8"), re.MULTILINE)
    places = [place for names in named for place in names.split(", ")]
    assert len(places) == 7
    assert [p for p in places if not ((root / p).is_dir() or (root / f"{p}.py").is_file())] == []


@pytest.mark.medium
def test_as_a_script_it_prints_each_stage_and_learns() -> None:
    out = subprocess.run([sys.executable, "-W", "error", FILE], capture_output=True, text=True, check=True).stdout
    assert [line.split(":")[0].split(" (")[0] for line in out.splitlines() if line.startswith("#")] == [
        "# traced, with its gradient", "# optimised", "# legal", "# planned"
    ]  # fmt: skip
    losses = [float(line.split()[-1]) for line in out.splitlines() if line.startswith("step")]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] / 20  # 0.4, about the variance of the data, to 0.007


def test_the_gradient_of_the_model_agrees_with_finite_differences(small: ModuleType) -> None:
    fed = arrays(SHAPES)
    loss = small.compile(small.trace(small.loss_of, **SHAPES))
    wrt = ("w1", "b1", "w2", "b2")

    def gradients(x, t, w1, b1, w2, b2):
        return small.gradient(small.loss_of(x, t, w1, b1, w2, b2), (w1, b1, w2, b2))

    for name, got in zip(wrt, small.compile(small.trace(gradients, **SHAPES))(**fed), strict=True):
        for place in np.ndindex(fed[name].shape):
            sides = []
            for h in (1e-6, -1e-6):
                moved = fed[name].copy()
                moved[place] += h
                sides.append(loss(**{**fed, name: moved})[0])
            # Central differences of a loss of about 10: truncation h**2, cancellation 10 * 2**-53 / h.
            assert got[place] == pytest.approx((sides[0] - sides[1]) / 2e-6, rel=1e-6, abs=1e-7)


def test_a_training_step_equals_numpy(small: ModuleType) -> None:
    fed = arrays(SHAPES)
    loss, _, _, _, b2 = small.compile(small.trace(small.step, **SHAPES))(**fed)
    error = np.tanh(fed["x"] @ fed["w1"] + fed["b1"]) @ fed["w2"] + fed["b2"] - fed["t"]
    np.testing.assert_allclose(loss, np.mean(error**2), rtol=1e-12)
    np.testing.assert_allclose(b2, fed["b2"] - 0.1 * np.mean(2 * error, axis=0), rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("Add", [(2, 3), (3,)]),
        ("Mul", [(2, 1), (2, 3)]),
        ("Exp", [(2, 3)]),
        ("Reciprocal", [(2, 3)]),
        ("Neg", [(3,)]),
        ("Mean", [(2, 3)]),
        ("Tanh", [(2, 3)]),
        ("MatMul", [(2, 3), (3, 4)]),
        ("Transpose", [(2, 3)]),
    ],
)
def test_the_derivative_of_an_op_agrees_with_finite_differences(small, name, shapes) -> None:
    def f(*x):
        y = getattr(small, name)()(*x)
        return y, *small.gradient(small.SumTo(())(y * y), x)

    inputs = {f"x{i}": shape for i, shape in enumerate(shapes)}
    fed, along = arrays(inputs, low=0.5), arrays(inputs)
    run = small.compile(small.trace({1: lambda x0: f(x0), 2: lambda x0, x1: f(x0, x1)}[len(shapes)], **inputs))
    found = sum(np.sum(g * along[n]) for n, g in zip(fed, run(**fed)[1:], strict=True))
    up, down = ({n: a + h * along[n] for n, a in fed.items()} for h in (1e-6, -1e-6))
    measured = (np.sum(run(**up)[0] ** 2) - np.sum(run(**down)[0] ** 2)) / 2e-6
    assert found == pytest.approx(measured, rel=1e-7, abs=1e-7)  # as above, for sums of at most 200


def test_the_rule_that_is_written_agrees_with_the_derived_one(small, monkeypatch) -> None:
    def gradients(x):
        return small.gradient(small.Mean()(small.Tanh()(x)), [x])

    fed = arrays({"x": (2, 3)})
    (written,) = small.compile(small.trace(gradients, x=(2, 3)))(**fed)
    monkeypatch.setattr(small.Tanh, "vjp", None)
    (derived,) = small.compile(small.trace(gradients, x=(2, 3)))(**fed)
    np.testing.assert_allclose(derived, written, rtol=1e-12)


def test_tanh_is_right_where_exp_overflows(small: ModuleType) -> None:
    def f(x):
        y = small.Tanh()(x)
        return y, *small.gradient(y, [x])

    y, derivative = small.compile(small.trace(f, x=(3,)))(x=[-1000, 0, 1000])
    np.testing.assert_array_equal(y, [-1, 0, 1])
    np.testing.assert_array_equal(derivative, [0, 1, 0])


@pytest.mark.parametrize(
    ("before", "rule"),
    [
        (lambda x: -(-x), "neg-neg"),
        (lambda x: x * 1.0, "mul-one"),
        (lambda x: x.T.T, "transpose-transpose"),
    ],
)
def test_a_rule_fires_where_its_left_side_is_found(small, before, rule) -> None:
    graph, fired = small.optimise(small.trace(before, x=(2, 3)), small.SMALL.rules)
    assert (dict(fired), [str(v.op) for v in graph.values]) == ({rule: 1}, ["input{name=x, shape=(2, 3)}"])


def test_a_rule_that_loses_something_must_be_allowed(small: ModuleType) -> None:
    graph = small.trace(lambda x: x + 0.0, x=(2,))
    assert not small.optimise(graph, small.SMALL.rules)[1]
    assert small.optimise(graph, small.SMALL.rules, ("", "signed zero"))[1] == {"add-zero": 1}


def test_zeros_of_different_sign_are_two_constants(small: ModuleType) -> None:
    """`0.0 == -0.0`, so comparing attributes with == would merge them."""
    graph = small.trace(lambda x: (x * 0.0, x * -0.0), x=())
    found = small.compile(graph)(x=1.0)
    assert [np.signbit(y) for y in found] == [False, True]


def test_results_that_are_alive_together_never_share_bytes(small: ModuleType) -> None:
    program = small.compile(small.trace(small.step, **SHAPES))
    values, offsets = program.graph.values, program.offsets
    last = {x: i for i, v in enumerate(values) for x in (v, *v.operands)} | dict.fromkeys(program.graph.outputs, 10**9)
    first = {v: i for i, v in enumerate(values)}
    for a in offsets:
        for b in offsets:
            if first[a] < first[b] <= last[a]:
                assert offsets[a] + small.nbytes(a) <= offsets[b] or offsets[b] + small.nbytes(b) <= offsets[a]
    assert program.nbytes < sum(map(small.nbytes, offsets))


def test_a_plugin_s_kernel_is_used_instead_of_the_decomposition(small: ModuleType) -> None:
    called = []
    acme = small.Plugin("acme", {small.Tanh: lambda op, x, out: (called.append(op), np.tanh(x, out=out))})
    graph = small.trace(lambda x: small.Tanh()(x), x=(3,))
    run = small.compile(graph, [acme])
    np.testing.assert_array_equal(run(x=[0, 1, 2])[0], np.tanh([0, 1, 2]))
    assert (len(called), len(run.steps)) == (1, 1) < (1, len(small.compile(graph).steps))


def test_what_two_plugins_claim_is_an_error_that_names_both(small: ModuleType) -> None:
    with pytest.raises(ValueError, match="Exp: both small and acme provide it"):
        small.freeze([small.SMALL, small.Plugin("acme", {small.Exp: print})])


@pytest.mark.parametrize(
    ("function", "error", "says"),
    [
        (lambda x: x @ x, ValueError, r"matmul: contracted dims differ \(3 != 2\)"),
        (lambda x: x if x else -x, TypeError, "trace: the truth of input"),
    ],
)
def test_what_cannot_be_traced_is_refused_with_the_difference(small, function, error, says) -> None:
    with pytest.raises(error, match=says):
        small.trace(function, x=(2, 3))


def test_an_op_without_rules_is_refused_by_gradient_and_by_legalisation(small: ModuleType) -> None:
    bare = small.row("Bare", reference=lambda op, x: x)
    with pytest.raises(NotImplementedError, match="bare: it has neither a vjp nor a decomposition"):
        small.trace(lambda x: small.gradient(bare()(x), [x]), x=())
    with pytest.raises(NotImplementedError, match="bare: it has neither a kernel nor a decomposition"):
        small.compile(small.trace(lambda x: bare()(x), x=()))


def test_a_wrong_shape_is_refused_when_it_is_run(small: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"run: x must be \(2,\), not \(3,\)"):
        small.compile(small.trace(lambda x: x + x, x=(2,)))(x=np.ones(3))


def test_importing_it_prints_and_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(FILE), run_name="imported")
    assert capsys.readouterr().out == ""
