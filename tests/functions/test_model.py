"""Models of other systems: called, compiled, differentiated, saved like functions of one's own."""

import keyword

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlx_core as rlx
from rlx_core.contributions import ImporterSpec
from rlx_core.errors import ShapeError, WrongInputCountError
from rlx_core.functions.model import PARAMETERS, argument_names
from rlx_core.hooks import hookimpl
from rlx_core.plugins import PluginHost


@pytest.fixture
def model() -> rlx.Model:
    weights = {"layer.weight": np.float32([[1, 2], [3, 4], [5, 6]]), "layer.bias": np.float32([1, -1])}

    def function(parameters, x, scale):
        return {"y": (x @ parameters["layer.weight"] + parameters["layer.bias"]) * scale}

    inputs = {"x": rlx.spec("f32[batch, 3]"), "scale": rlx.spec("f32[]")}
    return rlx.Model(name="tiny", function=function, parameters=weights, inputs=inputs)


def expected(x, scale):
    return (x @ np.float32([[1, 2], [3, 4], [5, 6]]) + np.float32([1, -1])) * scale


@pytest.mark.parametrize("rows", [1, 4])
def test_it_is_called_with_inputs_in_order_or_by_name(model, rows) -> None:
    x, scale = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3), np.float32(0.5)
    np.testing.assert_array_equal(model(x, scale)["y"], expected(x, scale))
    np.testing.assert_array_equal(model(scale=scale, x=x)["y"], expected(x, scale))


def test_a_wrong_call_says_what_it_takes(model) -> None:
    with pytest.raises(WrongInputCountError, match="tiny: missing a required argument: 'scale'"):
        model(np.ones((1, 3), np.float32))
    with pytest.raises(ShapeError, match=r"x must be f32\[batch, 3\]") as caught:
        model(np.ones((1, 4), np.float32), np.float32(1))
    assert "test_model.py" in str(caught.value)


def test_inside_a_function_it_is_part_of_the_program(model) -> None:
    x = np.float32([[1, 2, 3]])
    doubled = rlx.jit(lambda x: 2 * model(x, scale=np.float32(1))["y"])
    np.testing.assert_array_equal(doubled(x), 2 * expected(x, 1))


def test_its_function_is_differentiated_by_the_parameters(model) -> None:
    x = np.float32([[1, 2, 3], [4, 5, 6]])
    gradients = rlx.grad(lambda p: rlx.sum(model.function(p, x, np.float32(1))["y"]))(model.parameters)
    np.testing.assert_array_equal(gradients["layer.weight"], np.broadcast_to(x.sum(0)[:, None], (3, 2)))
    np.testing.assert_array_equal(gradients["layer.bias"], np.float32([2, 2]))


def test_compiled_it_has_names_for_reports_and_parameters_to_bind(model) -> None:
    compiled = model.compile(target="cpu")
    assert "tiny" in repr(compiled)
    compiled.rebind(parameters={name: np.zeros_like(each) for name, each in model.parameters.items()})
    assert not compiled(np.ones((2, 3), np.float32), np.float32(1))["y"].any()
    assert [str(value.type) for value in model.trace().inputs][-2:] == ["f32[batch, 3]", "f32[]"]


def test_it_is_saved_with_its_parameters(model, tmp_path) -> None:
    rlx.save(tmp_path / "m.rlx", model)
    x = np.float32([[1, 2, 3]])
    np.testing.assert_array_equal(rlx.load(tmp_path / "m.rlx")(x, np.float32(2))["y"], expected(x, 2))


def test_a_reader_of_models_compiles_for_a_target_that_is_named(model, tmp_path) -> None:
    class Reader:
        @hookimpl
        def rlx_importers(self):
            return [ImporterSpec("acme.model", lambda path, host: model, suffixes=[".acme"])]

    host, path = PluginHost([Reader()]), tmp_path / "m.acme"
    path.touch()
    assert rlx.load(path, host=host) is model


@given(st.lists(st.text(max_size=6)))
def test_names_of_inputs_become_different_arguments(names) -> None:
    found = argument_names(names)
    assert len(set(found)) == len(names)
    assert all(each.isidentifier() and not keyword.iskeyword(each) and each != PARAMETERS for each in found)
    assert argument_names(found) == found
