"""One broken plugin never stops the listing or the use of others, and says its own cause when asked for."""

from __future__ import annotations

import pytest

from rlx_core.contributions import OpSpec
from rlx_core.errors import DeviceUnavailableError, PluginError, UnknownNameError
from rlx_core.hooks import hookimpl
from rlx_core.plugins import PluginHost, State

GOOD = """
@hookimpl
def rlx_ops():
    return [OpSpec("good.op", "math:exp")]
"""

# name -> (source, requirements, state, what the reason says)
BROKEN = {
    "raises": ("raise ValueError('half installed')", (), State.FAILED, "ValueError: half installed"),
    "exits": ("import sys; sys.exit(3)", (), State.FAILED, "SystemExit: 3"),
    "lacks": ("import a_library_nobody_has", (), State.FAILED, "ModuleNotFoundError"),
    "unparsable": ("def f(:", (), State.FAILED, "SyntaxError"),
    "outside": ("class Odd(BaseException): pass\nraise Odd('no')", (), State.FAILED, "Odd: no"),
    "older": (
        "raise AssertionError('imported')",
        ("rlx-core<0.1",),
        State.INCOMPATIBLE,
        "needs rlx-core <0.1",
    ),
    "newer": (
        "raise AssertionError('imported')",
        ("rlx_core>=99",),
        State.INCOMPATIBLE,
        "needs rlx_core >=99",
    ),
    "garbled": ("", ("rlx-core>>1",), State.INCOMPATIBLE, "cannot be read"),
    "misspelt": ("@hookimpl\ndef rlx_opps(): return []", (), State.FAILED, "`rlx_opps` is not a hook"),
    "unmarked": ("def rlx_ops(): return []", (), State.FAILED, "lacks its `@hookimpl`"),
    "arguments": ("@hookimpl\ndef rlx_ops(compiler): return []", (), State.FAILED, "arguments differ"),
    "reordered": (
        "@hookimpl(tryfirst=True)\ndef rlx_ops(): return []",
        (),
        State.FAILED,
        "marked `tryfirst`",
    ),
    "throws": ("@hookimpl\ndef rlx_ops(): raise KeyError('gone')", (), State.FAILED, "KeyError: 'gone'"),
    "late": (
        "@hookimpl\ndef rlx_ops():\n    yield OpSpec('late.op', 'math:exp')\n    raise OSError('disk')",
        (),
        State.FAILED,
        "OSError: disk",
    ),
    "mistyped": (
        "@hookimpl\ndef rlx_ops(): return [PassSpec('mistyped.p', 'math:exp')]",
        (),
        State.FAILED,
        "rlx_ops returned PassSpec, not OpSpec",
    ),
    "text": (
        "@hookimpl\ndef rlx_passes(): return 'text.pass'",
        (),
        State.FAILED,
        "returned str, not PassSpec",
    ),
    "ill": (
        "@hookimpl\ndef rlx_ops(): return [OpSpec('Ill', 'math:exp')]",
        (),
        State.FAILED,
        "name is 'Ill'",
    ),
    "twice": (
        "@hookimpl\ndef rlx_ops(): return [OpSpec('twice.op', 'math:exp')] * 2",
        (),
        State.FAILED,
        "defined twice by the same plugin",
    ),
    "nodriver": (
        "@hookimpl\ndef rlx_availability(): return 'no driver'\n"
        "@hookimpl\ndef rlx_backends(): return [BackendSpec('nodriver', 'math:exp')]",
        (),
        State.UNAVAILABLE,
        "no driver",
    ),
    "nolibrary": (
        "@hookimpl\ndef rlx_availability():\n    import a_driver_nobody_has",
        (),
        State.UNAVAILABLE,
        "ModuleNotFoundError",
    ),
}


@pytest.fixture
def host(site) -> PluginHost:
    """Every kind of broken plugin at once, and one that works."""
    site.install("good", GOOD)
    for name, (source, requires, _, _) in BROKEN.items():
        site.install(name, source, requires=requires)
    return PluginHost(builtin=False)


@pytest.mark.parametrize("name", BROKEN)
def test_each_kind_of_fault_has_its_state_and_its_reason(host, name):
    _, _, state, reason = BROKEN[name]

    rows = {row.name: row for row in host.survey()}

    assert rows[name].state is state
    assert reason in rows[name].reason
    assert rows[name].distribution == f"{name}-rlx"
    assert rows["good"].state is State.ACTIVE


def test_the_plugin_that_works_can_be_used_among_all_that_do_not(host):
    assert host.require("ops", "good.op").load.resolve() is __import__("math").exp


def test_a_listing_without_loading_runs_no_code(host):
    rows = {row.name: row for row in host.survey(load=False)}

    assert rows["raises"].state is None
    assert rows["older"].state is State.INCOMPATIBLE  # decided from metadata alone


def test_asking_for_what_a_failed_plugin_has_gives_its_own_cause(host):
    with pytest.raises(PluginError) as caught:
        host.require("ops", "raises.op")

    text = str(caught.value)
    assert "raises.op: its plugin raises failed" in text
    assert "raises-rlx 1.0" in text
    assert "ValueError: half installed" in text
    assert "raises_rlx_plugin.py:3" in text
    assert "pip install --upgrade raises-rlx" in text
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_incompatible_plugin_says_both_versions_and_the_command(host):
    with pytest.raises(PluginError, match=r"needs rlx-core <0.1, and this is 0\.1") as caught:
        host.require("ops", "older.op")

    assert caught.value.hint == "python -m pip install --upgrade older-rlx, or install an rlx-core that it takes"


def test_a_misspelt_hook_is_told_the_nearest_one(host):
    row = next(row for row in host.survey() if row.name == "misspelt")

    assert row.failure.error.hint == "did you mean `rlx_ops`?"


def test_a_target_without_its_driver_says_what_is_missing(host):
    with pytest.raises(DeviceUnavailableError, match="no driver"):
        host.require("backends", "nodriver")


def test_a_plugin_that_fails_late_leaves_nothing_behind(host):
    registry = host.activate_all()

    assert "late.op" not in registry.ops
    assert not any(claim.entry.name == "late" for claim in registry.claims.values())


def test_a_name_nobody_has_mentions_the_plugins_that_failed(host):
    with pytest.raises(UnknownNameError, match="raises: ValueError"):
        host.require("ops", "somewhere.else")


def test_ctrl_c_is_not_contained_and_the_plugin_gets_another_chance(make):
    answers = [KeyboardInterrupt(), None]

    def rlx_ops():
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    host = make.host(make.entry("acme", make.module("acme", rlx_ops=rlx_ops)))
    with pytest.raises(KeyboardInterrupt):
        host.activate_all()

    assert [row.state for row in host.survey()] == [State.ACTIVE]


def test_a_lazy_reference_that_exits_is_an_error_with_its_plugin(site):
    site.install("acme", "@hookimpl\ndef rlx_backends(): return [BackendSpec('acme', 'acme_heavy:Backend')]")
    (site.path / "acme_heavy.py").write_text("raise SystemExit(1)")

    with pytest.raises(PluginError, match="acme_heavy:Backend: loading it raised SystemExit") as caught:
        PluginHost(builtin=False).load("backends", "acme")

    assert "acme-rlx 1.0" in str(caught.value)


def test_a_plugin_that_lacked_memory_is_tried_again():
    """It says nothing of the plugin, and the next program may have the memory."""
    lacking = [1]

    class Acme:
        @hookimpl
        def rlx_ops(self):
            if lacking:
                raise MemoryError
            return [OpSpec("acme.op", "math:exp")]

    host = PluginHost([Acme()])
    with pytest.raises(PluginError, match="its plugin acme failed"):
        host.require("ops", "acme.op")
    lacking.clear()

    assert host.require("ops", "acme.op").name == "acme.op"
