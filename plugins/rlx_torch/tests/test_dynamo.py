"""`torch.compile(…, backend="rlx")`: results, gradients, sizes that change, and what is left to torch."""

from __future__ import annotations

import logging
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="pip install 'rlx-torch[torch]'")

from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402  # torch first: without it there is nothing to test

from rlx_core.errors import ConfigError  # noqa: E402
from rlx_torch.dynamo import CompiledModule, rlx_backend  # noqa: E402


def net() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2))


def test_dynamo_knows_the_backend() -> None:
    assert "rlx" in torch._dynamo.list_backends(None)


@pytest.mark.medium
def test_training_has_torchs_gradients_for_any_batch() -> None:
    module = net()
    compiled = torch.compile(module, backend="rlx")
    for batch in (3, 5, 1):
        x = torch.randn(batch, 6, requires_grad=True)
        parameters = [x, *module.parameters()]
        found = torch.autograd.grad(compiled(x).square().sum(), parameters)
        wanted = torch.autograd.grad(module(x).square().sum(), parameters)
        for got, want in zip(found, wanted, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.medium
def test_sizes_become_symbols_and_are_compiled_once() -> None:
    seen = CompileCounterWithBackend(rlx_backend)
    compiled = torch.compile(lambda x: torch.softmax(x.flatten(1) * x.shape[0], -1), backend=seen, dynamic=True)
    for batch in (2, 3, 7):
        x = torch.randn(batch, 3, 4)
        torch.testing.assert_close(compiled(x), torch.softmax(x.flatten(1) * batch, -1))
    assert seen.frame_count == 1


@pytest.mark.medium
def test_an_operation_without_a_handler_is_left_to_torch(caplog: Any) -> None:
    compiled = torch.compile(lambda x: torch.special.airy_ai(x) * 2, backend="rlx")
    x = torch.randn(5)
    with caplog.at_level(logging.WARNING, logger="rlx_torch"):
        torch.testing.assert_close(compiled(x), torch.special.airy_ai(x) * 2)
    assert ["special_airy_ai" in record.message for record in caplog.records] == [True]


@pytest.mark.medium
def test_tensors_that_a_module_makes_of_numbers_are_constants() -> None:
    compiled = torch.compile(lambda x: torch.where(x > 0, x, torch.tensor([0.5, 1.5])), backend="rlx")
    x = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    torch.testing.assert_close(compiled(x), torch.tensor([[1.0, 1.5], [0.5, 1.0]]))


@pytest.mark.medium
def test_what_is_drawn_follows_torchs_seed() -> None:
    drop = torch.compile(lambda x: torch.nn.functional.dropout(x, 0.5), backend="rlx")
    ones = torch.ones(200)
    torch.manual_seed(1)
    first, second = drop(ones), drop(ones)
    torch.manual_seed(1)
    assert (drop(ones) == first).all()
    assert (first != second).any()
    assert set(first.tolist()) == {0.0, 2.0}


@pytest.mark.medium
def test_writes_into_operands_happen() -> None:
    norm = torch.nn.BatchNorm1d(3)
    other = torch.nn.BatchNorm1d(3)
    compiled = torch.compile(norm, backend="rlx")
    x = torch.randn(8, 3)
    torch.testing.assert_close(compiled(x), other(x))
    torch.testing.assert_close(norm.running_var, other.running_var)
    buffer = torch.zeros(3)
    torch.compile(lambda b: b.add_(1), backend="rlx")(buffer)
    assert buffer.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.medium
def test_options_are_rlxs() -> None:
    compiled = torch.compile(lambda x: x + 1, backend="rlx", options={"target": "cpu"})
    assert compiled(torch.zeros(2)).tolist() == [1.0, 1.0]
    with pytest.raises(ConfigError, match="tarket"):
        rlx_backend(torch.fx.symbolic_trace(lambda x: x), [], options={"tarket": "cpu"})
    with pytest.raises(Exception, match="cupu"):
        torch.compile(lambda x: x + 2, backend="rlx", options={"target": "cupu"})(torch.zeros(2))


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [
        lambda: torch.nn.Sequential(
            torch.nn.Conv2d(2, 4, 3), torch.nn.GroupNorm(2, 4), torch.nn.ReLU(), torch.nn.MaxPool2d(2)
        ),
        lambda: torch.nn.Sequential(
            torch.nn.Conv2d(2, 4, 3, stride=2), torch.nn.BatchNorm2d(4), torch.nn.AdaptiveAvgPool2d(2)
        ),
        lambda: torch.nn.Sequential(
            torch.nn.ConvTranspose2d(2, 4, 3, stride=2), torch.nn.InstanceNorm2d(4), torch.nn.SiLU()
        ),
    ],
)
def test_gradients_of_convolutional_nets(module: Any) -> None:
    made = module().double()  # the gradient of a bias before a norm is 0, but for rounding
    x = torch.randn(2, 2, 8, 8, dtype=torch.float64, requires_grad=True)
    parameters = [x, *made.parameters()]
    found = torch.autograd.grad(torch.compile(made, backend="rlx")(x).square().sum(), parameters)
    wanted = torch.autograd.grad(made(x).square().sum(), parameters)
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
def test_attention_trains() -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    x = torch.randn(2, 5, 8, requires_grad=True)
    parameters = [x, *layer.parameters()]
    found = torch.autograd.grad(torch.compile(layer, backend="rlx")(x).square().sum(), parameters)
    wanted = torch.autograd.grad(layer(x).square().sum(), parameters)
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_weights_are_not_copied_on_the_way_back() -> None:
    """What the backward graph reads of the forward one is the tensor itself where it was an input."""
    graph = torch.fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    x.meta["val"], w.meta["val"] = torch.ones(2, 3), torch.ones(3, 4)
    graph.output((graph.call_function(torch.ops.aten.mm.default, (x, w)), w))
    given = [torch.ones(2, 3), torch.ones(3, 4)]
    product, kept = CompiledModule(torch.fx.GraphModule({}, graph), {})(*given)
    assert product.tolist() == [[3.0] * 4] * 2
    assert kept is given[1]


@pytest.mark.medium
def test_queries_share_heads_at_every_length() -> None:
    def attend(q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    torch._dynamo.reset()
    compiled = torch.compile(attend, backend="rlx", options={"strict": True})
    for length in (5, 7, 9):
        q, k, v = (torch.randn(2, heads, length, 8, requires_grad=True) for heads in (4, 2, 2))
        found, wanted = compiled(q, k, v), attend(q, k, v)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        gradients = [torch.autograd.grad(each.square().sum(), (q, k, v)) for each in (found, wanted)]
        for got, want in zip(*gradients, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.medium
def test_a_size_that_only_a_call_knows_is_left_to_torch_where_rlx_cannot_compile_it(caplog: Any) -> None:
    from rlx_core.errors import ShapeError

    def refuse(*_: object) -> Any:
        raise ShapeError("repeat: not this one")

    def grown(x: Any, n: int) -> Any:
        return x.repeat(n) + 1

    torch._dynamo.reset()
    compiled = torch.compile(grown, backend="rlx", dynamic=True)
    x = torch.randn(4)
    torch.testing.assert_close(compiled(x, 3), grown(x, 3))
    original = CompiledModule._compile
    try:
        CompiledModule._compile = refuse  # type: ignore[method-assign]
        with caplog.at_level(logging.WARNING, logger="rlx_torch"):
            torch.testing.assert_close(compiled(x, 5), grown(x, 5))
    finally:
        CompiledModule._compile = original  # type: ignore[method-assign]
    left = [record.message for record in caplog.records if record.name == "rlx_torch"]
    assert left == ["left to torch: repeat: not this one"]


def test_strict_refuses_what_would_be_left_to_torch() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: torch.special.airy_ai(x) * 2, backend="rlx", options={"strict": True})
    with pytest.raises(Exception, match="special_airy_ai"):
        compiled(torch.randn(5))
