"""Sessions: one device and configuration, checked at once; graphs, modules and functions compile in them."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn
from rlx_core.contributions import BackendSpec
from rlx_core.errors import (
    ConfigError,
    DeviceError,
    DeviceUnavailableError,
    ShapeError,
    UnknownNameError,
    WrongInputCountError,
    WrongStageError,
)
from rlx_core.hooks import hookimpl
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.module import Module
from rlx_core.plugins import PluginEntry, PluginHost, default_host

X = np.float32([[1, 2, 3]])


def model(x):
    return nn.linear(x, np.ones((3, 2), np.float32), activation="gelu")


@pytest.fixture
def graph():
    return rlx.trace(model, rlx.spec("f32[n, 3]"))


@pytest.mark.medium
def test_devices_are_listed_and_a_session_says_what_it_is():
    assert "cpu" in rlx.available_devices()
    assert rlx.is_available("cpu")
    session = rlx.Session("cpu")
    assert repr(session) == "Session('cpu', precision='f32')"
    assert session.devices()
    assert rlx.Session().device == "cpu"


def test_an_unknown_device_is_a_value_error_with_the_nearest():
    for act in (rlx.Session, rlx.is_available):
        with pytest.raises(DeviceError, match="cpuu") as caught:
            act("cpuu")
        assert isinstance(caught.value, ValueError)
        assert caught.value.hint == "did you mean `cpu`?"


class Absent:
    """A backend whose driver is missing."""

    @hookimpl
    def rlx_availability(self):
        return "no driver; install acme-driver"

    @hookimpl
    def rlx_backends(self):
        return [BackendSpec("acme", load="acme:Backend")]


def test_a_known_device_that_cannot_be_used_is_a_runtime_error_with_the_remedy():
    host = PluginHost([PluginEntry("acme", plugin=Absent())])

    assert not rlx.is_available("acme", host)
    assert "acme" not in rlx.available_devices(host)
    with pytest.raises(DeviceUnavailableError, match="acme-driver") as caught:
        rlx.Session("acme", host=host)
    assert isinstance(caught.value, RuntimeError)


def test_a_device_whose_package_is_not_installed_says_how_to_install_it():
    with pytest.raises(DeviceUnavailableError) as caught:
        rlx.Session("metal", host=PluginHost([]))
    assert caught.value.hint == "python -m pip install rlx-metal"


def test_an_unknown_precision_or_key_is_refused():
    with pytest.raises(ConfigError, match="precision 'f33'"):
        rlx.Session(precision="f33")
    with pytest.raises(ConfigError, match=r"fusion\.polcy"):
        rlx.Session(config={"fusion.polcy": "direct"}).compile(model, rlx.spec("f32[1, 3]"))


def test_one_graph_compiles_twice_and_is_not_consumed(graph):
    before, session = str(rlx.trace(model, rlx.spec("f32[n, 3]")).structure), rlx.Session()
    first, second = session.compile(graph), session.compile(graph)

    np.testing.assert_array_equal(first.run({"x": X})[0], second.run({"x": X})[0])
    assert str(graph.structure) == before


@pytest.mark.parametrize("policy", ["direct", "fusable"])
def test_modules_and_functions_compile_to_the_same(graph, policy):
    session = rlx.Session()
    (expected,) = session.compile(graph).run({"x": X})
    hir = Module.of_hir(graph, policy)

    np.testing.assert_allclose(session.compile(hir).run({"x": X})[0], expected, rtol=1e-6)
    np.testing.assert_allclose(session.compile(hir.lower()).run({"x": X})[0], expected, rtol=1e-6)
    np.testing.assert_array_equal(session.compile(model, rlx.spec("f32[n, 3]"))(X), expected)


def test_a_modules_policy_holds_unless_the_session_has_one(graph):
    def plan(config, policy):
        return rlx.Session(config=config).compile(Module.of_hir(graph, policy)).report.plan_hash

    assert plan(None, "direct") != plan(None, "fusable")
    assert plan({"fusion.policy": "direct"}, "fusable") == plan(None, "direct")


def test_a_plan_is_not_compiled_again(graph):
    session = rlx.Session()
    lir = Module.of_lir(session.compile(graph).lir)
    with pytest.raises(WrongStageError, match="LIR"):
        session.compile(lir)


@pytest.mark.parametrize("binding", [{"n": 1}, DimBinding.of(n=1)], ids=["by name", "as a value"])
def test_sizes_may_be_bound_before_compiling(graph, binding):
    executable = rlx.Session().compile(graph, binding=binding)

    assert str(executable.inputs["x"]) == "f32[1, 3]"
    with pytest.raises(ShapeError, match=r"f32\[1, 3\], not f32\[2, 3\]"):
        executable.run({"x": np.ones((2, 3), np.float32)})


@pytest.mark.medium
def test_a_graph_is_compiled_without_a_session_too(graph):
    executable = rlx.compile(graph)
    fed = {"x": np.ones((2, 3), np.float32)}

    assert repr(executable) == repr(rlx.Session().compile(graph))
    for found, wanted in zip(executable.run(fed), rlx.Session().compile(graph).run(fed), strict=True):
        np.testing.assert_array_equal(found, wanted)
    with pytest.raises(WrongInputCountError, match="a Graph takes no arguments, not 1"):
        rlx.compile(graph, X)


def test_options_of_the_wrong_kind_of_program_are_refused(graph):
    session = rlx.Session()
    with pytest.raises(ConfigError, match="for graphs and modules"):
        session.compile(model, rlx.spec("f32[1, 3]"), donations={"x": 0})
    with pytest.raises(WrongInputCountError, match="takes no arguments, not 1"):
        session.compile(graph, X)
    with pytest.raises(UnknownNameError, match="has no symbol 'm'"):
        session.compile(graph, binding={"m": 3})


def test_other_devices_agree_with_the_cpu(graph):
    (expected,) = rlx.Session("cpu").compile(graph).run({"x": X})
    for device in rlx.available_devices(default_host()):
        np.testing.assert_allclose(rlx.Session(device).compile(graph).run({"x": X})[0], expected, rtol=1e-5)
