"""Functions that plugins offer as attributes of `rlx_core`."""

from collections.abc import Iterator
from typing import Any

import pytest

import rlx_core as rlx
from rlx_core.errors import AbsentNameError, PluginError, UnknownNameError
from rlx_core.plugins import PluginHost
from rlx_core.plugins.host import set_default_host

OFFERS = """
@hookimpl
def rlx_functions():
    yield FunctionSpec("from_acme", f"{__name__}:from_acme", summary="A model of acme's.")

def from_acme(model):
    return ("acme", model)
"""


@pytest.fixture
def installed(site: Any) -> Iterator[Any]:
    """A site whose plugins are those that `rlx_core` asks, from the first question on."""
    before = set_default_host(None)
    yield site
    set_default_host(before)


def test_a_function_that_a_package_declares_is_an_attribute(installed) -> None:
    installed.install("acme", OFFERS, when=("function.from_acme",))
    assert rlx.from_acme("m") == ("acme", "m")


def test_other_names_are_absent_and_import_no_plugin(installed) -> None:
    installed.install("acme", "raise AssertionError('imported')", when=("function.from_acme",))
    with pytest.raises(AbsentNameError, match="rlx_core has no from_acmee"):
        rlx.from_acmee
    assert not hasattr(rlx, "_repr_latex_")


def test_a_package_that_fails_says_why(installed) -> None:
    installed.install("acme", "import nothing_of_this_name", when=("function.from_acme",))
    with pytest.raises(PluginError, match="nothing_of_this_name"):
        rlx.from_acme


def test_a_package_that_declares_what_it_does_not_have_is_named(installed) -> None:
    installed.install("acme", "", when=("function.from_acme",))
    with pytest.raises(UnknownNameError, match="from_acme"):
        rlx.from_acme


def test_what_is_known_but_not_installed_says_what_installs_it(installed) -> None:
    set_default_host(PluginHost([]))
    with pytest.raises(AbsentNameError) as caught:
        rlx.from_torch
    assert caught.value.hint == "python -m pip install rlx-torch"
