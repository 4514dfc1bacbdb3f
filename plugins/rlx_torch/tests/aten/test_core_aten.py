"""Every overload of core ATen: what it gives and its derivative, against torch in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="pip install 'rlx-torch[torch]'")

from torch_core_cases import CASES, ELSEWHERE, RANDOM, SIZES, UNSCALED  # noqa: E402

import rlx_core as rlx  # noqa: E402  # torch first: without it there is nothing to test
from rlx_core import random  # noqa: E402
from rlx_torch.arrays import array_of  # noqa: E402
from rlx_torch.aten.table import TABLE  # noqa: E402
from rlx_torch.coverage import core_overloads  # noqa: E402
from rlx_torch.walk import TorchProgram  # noqa: E402


def overload(name: str) -> Any:
    base, _, form = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), form)


def split(case: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The operands by position and those by name."""
    args = case()
    return (args[:-1], args[-1]) if args and isinstance(args[-1], dict) else (args, {})


def graph_of(op: Any, args: tuple[Any, ...], named: dict[str, Any] | None = None) -> tuple[TorchProgram, list[Any]]:
    """A graph of one node, and the tensors among its operands."""
    graph, tensors = torch.fx.Graph(), []

    def placed(given: Any) -> Any:
        if isinstance(given, torch.Tensor):
            node = graph.placeholder(f"x{len(tensors)}")
            node.meta["val"] = given
            tensors.append(given)
            return node
        return [placed(each) for each in given] if isinstance(given, list) else given

    node = graph.call_function(op, tuple(placed(each) for each in args), named)
    graph.output((node,))
    return TorchProgram(torch.fx.GraphModule({}, graph), "case"), tensors


def results(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple | list) else [found]


def rlx_function(walk: TorchProgram) -> Any:
    def run(*values: Any) -> Any:
        return [each for each in results(walk(*values)[0]) if each is not None]

    return run


PAIRS = [pytest.param(name, case, id=f"{name}-{n}") for name, cases in CASES.items() for n, case in enumerate(cases)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "case"), PAIRS)
def test_a_core_op_gives_what_torch_gives(name: str, case: Any) -> None:
    args, named = split(case)
    walk, tensors = graph_of(overload(name), args, named)

    found = rlx.jit(rlx_function(walk))(*map(array_of, tensors))

    wanted = [y for y in results(overload(name)(*args, **named)) if isinstance(y, torch.Tensor)]
    unread = {"_embedding_bag.default": 1, "_native_batch_norm_legit_no_training.default": 1}.get(name, len(wanted))
    for got, want in list(zip(found, wanted, strict=True))[:unread]:
        assert got.dtype == array_of(want).dtype
        np.testing.assert_allclose(got, array_of(want), rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "case"), [each for each in PAIRS if each.id not in UNSCALED])
def test_a_core_op_has_torchs_derivative(name: str, case: Any) -> None:
    args, named = split(case)
    smooth = [x for each in args for x in (each if isinstance(each, list) else [each])]
    smooth = [x for x in smooth if isinstance(x, torch.Tensor) and x.dtype in (torch.float64, torch.complex128)]
    for x in smooth:
        x.requires_grad_()
    try:
        wanted = [y for y in results(overload(name)(*args, **named)) if isinstance(y, torch.Tensor)]
    except (RuntimeError, NotImplementedError) as problem:
        pytest.skip(f"torch: {problem}")
    places = [i for i, y in enumerate(wanted) if y.requires_grad and y.is_floating_point()]
    places = places[:1] if "norm" in name else places  # kept statistics have no derivative in torch
    if not places or not smooth:
        pytest.skip("no float result of a float operand")
    weights = [torch.randn_like(wanted[i]) for i in places]
    try:
        theirs = torch.autograd.grad([wanted[i] for i in places], smooth, weights, allow_unused=True)
    except (RuntimeError, NotImplementedError) as problem:
        pytest.skip(f"torch: {problem}")
    walk, tensors = graph_of(overload(name), args, named)
    kinds = [x.requires_grad for x in tensors]

    def loss(values: Any, others: Any) -> Any:
        given, rest = iter(values), iter(others)
        every = [next(given) if is_smooth else next(rest) for is_smooth in kinds]
        found = rlx_function(walk)(*every)
        parts = [rlx.sum(found[i] * array_of(w)) for i, w in zip(places, weights, strict=True)]
        return sum(parts[1:], parts[0])

    ours = rlx.grad(loss)(
        [array_of(x) for x, k in zip(tensors, kinds, strict=True) if k],
        [array_of(x) for x, k in zip(tensors, kinds, strict=True) if not k],
    )

    for got, want in zip(ours, theirs, strict=True):
        want = np.zeros_like(got) if want is None else array_of(want)
        got = 2 * got if np.iscomplexobj(got) else got  # torch's gradient is ∂/∂x + i·∂/∂y, ours half of it
        np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_numbers(name: str) -> None:
    x = torch.zeros(2, 3)
    args = SIZES[name](x)
    assert TABLE[name] is not None
    found: list[Any] = []
    walk, _ = graph_of(overload(name), args)
    rlx.trace(lambda v: found.extend(walk(v)) or v, array_of(x))
    assert found == [overload(name)(*args)]


@pytest.mark.medium
@pytest.mark.parametrize(
    ("name", "args", "fits"),
    [
        ("rand.default", ((2000,),), lambda y: y.min() >= 0 and y.max() < 1 and abs(y.mean() - 0.5) < 0.05),
        ("randn.default", ((2000,),), lambda y: abs(y.mean()) < 0.1 and abs(y.std() - 1) < 0.1),
        ("randperm.default", (50,), lambda y: sorted(y.tolist()) == list(range(50)) and y.tolist() != list(range(50))),
    ],
)
def test_what_is_drawn_is_distributed_as_torch_says(name: str, args: Any, fits: Any) -> None:
    graph = torch.fx.Graph()
    graph.output((graph.call_function(overload(name), args),))
    walk = TorchProgram(torch.fx.GraphModule({}, graph), "case")
    assert walk.draws
    drawn = [rlx.jit(lambda key: walk(key=key)[0])(random.key(seed)) for seed in (0, 0, 1)]
    assert fits(drawn[0])
    assert (drawn[0] == drawn[1]).all()
    assert (drawn[0] != drawn[2]).any()


@pytest.mark.medium
def test_every_core_op_has_a_case() -> None:
    tried = {*CASES, *SIZES, *RANDOM, *ELSEWHERE}
    assert sorted(set(core_overloads()) & TABLE.keys() - tried) == []
