"""Without a backend programs run on the reference interpreter, which one warning reports; one that cannot be used is named."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.contributions import BackendSpec
from rlx_core.errors import DeviceError
from rlx_core.hooks import hookimpl
from rlx_core.pipeline import interpreted
from rlx_core.plugins import PluginHost, builtin_entry, given_entry, set_default_host

X = np.arange(3.0)


@pytest.fixture
def bare(monkeypatch):
    """A process with rlx-core alone."""
    monkeypatch.setattr(interpreted, "_has_warned", False)
    before = set_default_host(PluginHost([builtin_entry()]))
    yield
    set_default_host(before)


PROGRAMS = {
    "grad": (lambda: rlx.grad(lambda x: rlx.sum(x**3))(X), 3 * X**2),
    "jit": (lambda: rlx.jit(lambda x: x @ np.eye(3) + 1)(X), X + 1),
    "vmap": (lambda: rlx.vmap(lambda x: x * 2)(X), 2 * X),
    "scan": (lambda: rlx.scan(lambda c, x: (c + x, c), np.float64(0), X)[1], np.array([0.0, 0.0, 1.0])),
    "unknown sizes": (lambda: rlx.compile(lambda x: x * 2, rlx.spec("f64[n]"))(X), 2 * X),
    "parameters": (lambda: rlx.compile(lambda w, x: w * x, X, rlx.spec("f64[3]"))(X), X * X),
    "an argument returned": (lambda: rlx.jit(lambda x: x)(X), X),
}


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(("program", "expected"), PROGRAMS.values(), ids=PROGRAMS.keys())
def test_programs_run_without_a_backend_and_one_warning_says_how(program, expected):
    with pytest.warns(
        RuntimeWarning, match=r"no backend is installed.*reference interpreter.*pip install rlx-cpu"
    ) as caught:
        found = program()
    assert len(caught) == 1
    np.testing.assert_allclose(found, expected, rtol=1e-15)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = program()
    assert not np.shares_memory(found, again)
    assert not np.shares_memory(found, X)


class Absent:
    """A plugin whose driver is missing here."""

    @hookimpl
    def rlx_availability(self):
        return "the driver of Acme is not loaded: install acme-driver"

    @hookimpl
    def rlx_backends(self):
        return [BackendSpec("acme", load="acme.backend:AcmeBackend", summary="Nothing.")]


def test_a_backend_that_cannot_be_used_is_named_with_what_it_lacks():
    host = PluginHost([builtin_entry(), given_entry(Absent())])
    with pytest.raises(DeviceError, match="no backend can be used") as caught:
        rlx.jit(lambda x: x + 1, host=host)(X)
    assert [str(fact.value) for fact in caught.value.facts] == [
        "acme: the driver of Acme is not loaded: install acme-driver"
    ]
    assert "no backend is installed" not in str(caught.value)
