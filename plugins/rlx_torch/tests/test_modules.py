"""`from_torch`: what a module becomes, how it is called, trained, saved, and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="pip install 'rlx-torch[torch]'")

import rlx_core as rlx  # noqa: E402  # torch first: without it there is nothing to test
from rlx_core.errors import ConfigError, GuardError, UnsupportedError  # noqa: E402
from rlx_torch.modules import from_torch  # noqa: E402

BATCH = {0: torch.export.Dim("batch", min=1, max=64)}


class Net(torch.nn.Module):
    """Norms, a convolution, an integer buffer, a dict in and a dict out."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv1d(3, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm1d(4)
        self.head = torch.nn.Linear(4, 2, bias=False)
        self.register_buffer("order", torch.tensor([1, 0]))

    def forward(self, x: Any, more: Any, *, scale: Any = None) -> Any:
        h = torch.relu(self.norm(self.conv(x))).mean(-1)
        return {"y": self.head(h)[:, self.order] * more["weight"], "sizes": (h.shape[0], None), "h": [h]}


@pytest.fixture
def net() -> Any:
    made = Net()
    made.norm.running_mean.normal_()
    return made.eval()


def inputs(batch: int) -> tuple[Any, Any]:
    return torch.randn(batch, 3, 5), {"weight": torch.randn(2)}


def imported(net: Any) -> Any:
    return from_torch(
        net, inputs(2), {"scale": 2}, dynamic_shapes={"x": BATCH, "more": {"weight": None}, "scale": None}
    )


@pytest.mark.medium
def test_a_model_gives_what_the_module_gives_for_any_batch(net: Any) -> None:
    model = imported(net)
    assert str(model.inputs) == "{'x': f32[batch, 3, 5], 'more': {'weight': f32[2]}}"
    for batch in (1, 3, 64):
        x, more = inputs(batch)
        found, wanted = model(x.numpy(), {"weight": more["weight"].numpy()}), net(x, more)
        np.testing.assert_allclose(found["y"], wanted["y"].detach(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found["h"][0], wanted["h"][0].detach(), rtol=1e-5, atol=1e-6)
        assert found["sizes"] == (batch, None)
    with pytest.raises(GuardError, match="batch"):
        model(*(np.ones((65, 3, 5), np.float32), {"weight": np.ones(2, np.float32)}))


@pytest.mark.medium
def test_parameters_are_the_modules_own_memory_under_its_names(net: Any) -> None:
    model = imported(net)
    assert sorted(model.parameters) == sorted(name for name, _ in net.named_parameters())
    for name, parameter in net.named_parameters():
        assert np.shares_memory(model.parameters[name], parameter.detach().numpy())
    half = from_torch(torch.nn.Linear(3, 2).bfloat16(), (torch.ones(1, 3, dtype=torch.bfloat16),))
    assert str(half.inputs["input"]) == "bf16[1, 3]"
    assert half(np.ones((1, 3), half.parameters["weight"].dtype)).dtype == half.parameters["weight"].dtype


@pytest.mark.medium
def test_gradients_are_torchs(net: Any) -> None:
    model = imported(net)
    x, more = inputs(3)

    def loss(parameters: Any, x: Any, weight: Any) -> Any:
        return rlx.sum(rlx.square(model.function(parameters, x, {"weight": weight})["y"]))

    value, grads = rlx.value_and_grad(loss)(model.parameters, x.numpy(), more["weight"].numpy())
    wanted = net(x, more)["y"].square().sum()
    wanted.backward()
    np.testing.assert_allclose(value, wanted.detach(), rtol=1e-5)
    for name, parameter in net.named_parameters():
        np.testing.assert_allclose(grads[name], parameter.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.medium
def test_buffers_that_are_written_are_state(net: Any) -> None:
    model = imported(net.train())
    assert sorted(model.state) == ["norm.num_batches_tracked", "norm.running_mean", "norm.running_var"]
    x, more = inputs(4)
    weight = {"weight": more["weight"].numpy()}
    step = rlx.jit(model.function, donate="state")
    found, state = step(
        model.parameters, {name: array.copy() for name, array in model.state.items()}, x.numpy(), weight
    )
    wanted = net(x, more)
    np.testing.assert_allclose(found["y"], wanted["y"].detach(), rtol=1e-5, atol=1e-6)
    for name, buffer in net.named_buffers():
        if name in state:
            np.testing.assert_allclose(state[name], buffer, rtol=1e-5, atol=1e-6)


@pytest.mark.medium
def test_what_draws_takes_a_key() -> None:
    model = from_torch(torch.nn.Dropout(0.5).train(), (torch.ones(400),))
    ones = np.ones(400, np.float32)
    first, again, other = (model(ones, key=rlx.random.key(seed)) for seed in (0, 0, 1))
    assert set(first.tolist()) == {0.0, 2.0}
    assert 120 < (first == 0).sum() < 280
    assert (first == again).all()
    assert (first != other).any()


class Noisy(torch.nn.Module):
    """Noise from a generator of its own, which here is the key."""

    def forward(self, x: Any, generator: Any = None) -> Any:
        return x + torch.randn(x.shape, generator=generator)


@pytest.mark.medium
def test_what_draws_by_a_generator_of_its_own_takes_a_key() -> None:
    model = from_torch(Noisy(), (torch.zeros(400),))
    found = model(np.zeros(400, np.float32), key=rlx.random.key(0))
    assert abs(float(found.std()) - 1) < 0.15


@pytest.mark.medium
def test_a_model_is_saved_and_read(net: Any, tmp_path: Path) -> None:
    model = imported(net)
    rlx.save(tmp_path / "net.rlx", model)
    x, more = inputs(2)
    given = (x.numpy(), {"weight": more["weight"].numpy()})
    np.testing.assert_array_equal(rlx.load(tmp_path / "net.rlx")(*given)["y"], model(*given)["y"])


@pytest.mark.medium
def test_everything_that_is_missing_is_named_at_once() -> None:
    class Odd(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.special.airy_ai(x) + torch.linalg.ldl_factor(x)[0] + torch.special.airy_ai(x + 1)

    with pytest.raises(UnsupportedError) as caught:
        from_torch(Odd(), (torch.eye(3),))
    assert "2 operations are not supported" in str(caught.value)
    facts = {fact.label: str(fact.value) for fact in caught.value.facts}
    assert facts["special_airy_ai.default"] == "2 uses"
    assert "test_modules.py" in str(caught.value.facts[0].where)


@pytest.mark.medium
def test_operands_that_no_handler_takes_are_named_too() -> None:
    class Odd(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.linalg.lu_factor(x)[0]

    with pytest.raises(UnsupportedError, match="linalg_lu_factor"):
        from_torch(Odd(), (torch.ones(2, 3),))


@pytest.mark.medium
def test_mistakes_are_said() -> None:
    with pytest.raises(ConfigError, match="no example inputs"):
        from_torch(torch.nn.ReLU())
    with pytest.raises(ConfigError, match="ReLU takes other example inputs: missing a required argument: 'input'"):
        from_torch(torch.nn.ReLU(), ())
    with pytest.raises(ConfigError, match=r"no torch\.nn\.Module"):
        from_torch(lambda x: x, (torch.ones(1),))
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(1),))
    assert from_torch(program)(np.float32([-1])).tolist() == [0.0]
    with pytest.raises(ConfigError, match="has its inputs already"):
        from_torch(program, (torch.ones(1),))


class Recurrent(torch.nn.Module):
    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        return self.layer(x)


@pytest.mark.slow
@pytest.mark.parametrize(
    "layer",
    [
        lambda: torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True),
        lambda: torch.nn.GRU(3, 4, batch_first=True, bias=False),
        lambda: torch.nn.RNN(3, 4, num_layers=2, nonlinearity="relu"),
        lambda: torch.nn.TransformerEncoderLayer(3, 1, 8, batch_first=True),
    ],
)
def test_recurrent_layers_stay_whole(layer: Any) -> None:
    module = Recurrent(layer()).eval()
    x = torch.randn(2, 5, 3)
    found, wanted = from_torch(module, (x,))(x.numpy()), module(x)
    for got, want in zip(flat(found), flat(wanted), strict=True):
        np.testing.assert_allclose(got, want.detach(), rtol=1e-5, atol=1e-6)


def flat(found: Any) -> list[Any]:
    return [leaf for each in found for leaf in flat(each)] if isinstance(found, tuple | list) else [found]


@pytest.mark.slow
def test_control_flow_is_a_node() -> None:
    class Branch(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x - 1, (x,))

    model = from_torch(Branch(), (torch.ones(3),))
    for x in (np.float32([1, 2, 3]), np.float32([-1, -2, -3])):
        np.testing.assert_allclose(model(x), np.sin(x) if x.sum() > 0 else x - 1, rtol=1e-6)


@pytest.mark.medium
def test_training_leaves_the_modules_weights_and_returns_torchs() -> None:
    """`rlx.train_step` donates the parameters that it is given; torch's tensors are copied and not overwritten."""
    module, other = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
    other.load_state_dict(module.state_dict())
    first = {name: each.clone() for name, each in module.state_dict().items()}
    model = from_torch(module, (torch.ones(4, 3),))
    step = rlx.train_step(lambda p, x: rlx.mean(rlx.square(model.function(p, x) - 1)), rlx.optim.sgd(0.1))
    parameters, state = dict(model.parameters), rlx.optim.sgd(0.1).init(model.parameters)
    optimiser = torch.optim.SGD(other.parameters(), lr=0.1)
    for _ in range(3):
        x = torch.randn(4, 3)
        parameters, state, loss = step(parameters, state, x.numpy())
        optimiser.zero_grad()
        wanted = (other(x) - 1).square().mean()
        wanted.backward()
        optimiser.step()
        np.testing.assert_allclose(loss, wanted.detach(), rtol=1e-5)
    torch.testing.assert_close(module.state_dict(), first, rtol=0, atol=0)
    module.load_state_dict({name: torch.from_dlpack(each) for name, each in parameters.items()}, strict=False)
    torch.testing.assert_close(module.state_dict(), other.state_dict())


@pytest.mark.medium
def test_the_examples_in_the_docstrings_are_right() -> None:
    import doctest

    from rlx_torch import modules, operators

    assert [doctest.testmod(each).failed for each in (modules, operators)] == [0, 0]


class Loop(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        more = torch._higher_order_ops.while_loop
        return more(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.5), (torch.tensor(0), x))[1]


class Scan(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch._higher_order_ops.scan(lambda c, a: (c + a, c * a), torch.zeros(4), x, dim=0)


class Map(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch._higher_order_ops.map(lambda a, b: a.sin() + b, x, x.sum(0))


@pytest.mark.slow
@pytest.mark.parametrize("module", [Loop, Scan, Map])
def test_loops_are_nodes(module: Any) -> None:
    x = torch.randn(3, 4)
    made = module()
    for got, want in zip(flat((from_torch(made, (x,))(x.numpy()),)), flat((made(x),)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


class Tail(torch.nn.Module):
    """The last columns of a table, as many as a text is long, as MPT writes its biases."""

    def forward(self, x: Any) -> Any:
        length, table = x.shape[1], torch.arange(2048.0)[None]
        return x + table[max(0, 1 - length) :, max(0, 2048 - length) :]


@pytest.mark.medium
def test_bounds_of_sizes_decide_which_is_larger() -> None:
    length = {1: torch.export.Dim("length", min=1, max=60)}
    model = from_torch(Tail(), (torch.randn(3, 5),), dynamic_shapes=(length,))
    for n in (5, 1, 60):
        given = torch.randn(3, n)
        np.testing.assert_allclose(model(given.numpy()), Tail()(given), rtol=1e-6)
    with pytest.raises(GuardError, match="61"):
        model(np.zeros((3, 61), np.float32))


def branches(x: Any) -> Any:
    return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("function", "raised"),
    [
        (branches, "GuardOnDataDependentSymNode"),
        (lambda x: torch.arange(int(x[0])), "GuardOnDataDependentSymNode"),
        (lambda x: torch.linalg.lstsq(x[None], x[None]).solution, "DynamicOutputShapeException"),
        (lambda x: torch.from_numpy(x.numpy() * 2), "RuntimeError"),
    ],
)
def test_what_torch_does_not_export_is_refused_with_its_reason(function: Any, raised: str) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return function(x)

    with pytest.raises(UnsupportedError, match=f"torch.export cannot export Module(.|\n)*{raised}"):
        rlx.from_torch(Module(), (torch.ones(3),))


def test_errors_of_a_module_are_its_own() -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return {}["missing"]

    with pytest.raises(KeyError, match="missing"):
        rlx.from_torch(Module(), (torch.ones(3),))
