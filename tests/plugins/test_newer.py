"""Plugins that were made for a newer rlx-core, or for other versions of other plugins."""

from __future__ import annotations

import pytest

from rlx_core.contributions import OpSpec
from rlx_core.plugins import PluginHost, State


def row_of(host: PluginHost):
    return next(row for row in host.survey() if row.name == "acme")


def test_a_hook_of_a_newer_core_is_skipped_and_the_rest_is_used(make):
    plugin = make.module("acme", rlx_shardings=lambda: [object()], rlx_ops=lambda: [OpSpec("acme.one", "math:pi")])
    host = make.host(make.entry("acme", plugin))
    row = row_of(host)
    assert row.state is State.ACTIVE
    assert row.reason == "made for a newer rlx-core: the hook rlx_shardings is skipped"
    assert host.require("ops", "acme.one").name == "acme.one"


def test_a_field_of_a_newer_core_is_skipped_and_the_rest_is_used(make):
    plugin = make.module("acme", rlx_ops=lambda: [OpSpec("acme.one", "math:pi", cost_hint=3)])
    host = make.host(make.entry("acme", plugin))
    row = row_of(host)
    assert (row.state, row.counts) == (State.ACTIVE, {"ops": 1})
    assert "made for a newer rlx-core: the field OpSpec.cost_hint is skipped" in row.reason


@pytest.mark.parametrize("hook", ["rlx_pases", "rlx_kernel"])
def test_a_misspelt_hook_is_an_error_all_the_same(make, hook):
    host = make.host(make.entry("acme", make.module("acme", **{hook: lambda: []})))  # noqa: PIE807 - `list` cannot be marked
    assert row_of(host).state is State.FAILED


def test_a_misspelt_field_is_an_error_all_the_same(make):
    plugin = make.module("acme", rlx_ops=lambda: [OpSpec("acme.one", "math:pi", sumary="one")])
    row = row_of(make.host(make.entry("acme", plugin)))
    assert row.state is State.FAILED
    assert "sumary" in row.reason


def test_outside_of_a_plugin_an_unknown_field_is_an_error():
    with pytest.raises(TypeError, match="cost_hint"):
        OpSpec("acme.one", "math:pi", cost_hint=3)


def test_requirements_on_other_plugins_are_compared_with_what_is_installed(site):
    site.install("other", version="1.0")
    site.install("acme", requires=("rlx-core>=0", "other-rlx>=2", "no-such-library>=9"))
    row = row_of(PluginHost())
    assert row.state is State.ACTIVE
    assert row.reason == "needs other-rlx >=2, and 1.0 is installed"


def test_a_misspelt_condition_is_a_note_of_the_listing(make):
    entry = make.entry("acme", make.module("acme"), when=("targt.cpu", "compile", "domain.rlx", "target"))
    (note,) = make.host(entry).notes
    assert "rlx.when has `targt.cpu`, which is no condition; did you mean `target`?" in note
