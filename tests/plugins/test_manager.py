"""What pluggy leaves to its users to mend: each test is one mend."""

from __future__ import annotations

from types import ModuleType

import pluggy
import pytest

from rlx_core import hooks
from rlx_core.contributions import KINDS, OpSpec
from rlx_core.errors import PluginError
from rlx_core.hooks import HOOKS, hookimpl
from rlx_core.plugins import PluginEntry, PluginHost, PluginManager


def nothing():
    """A new hook function that contributes nothing."""

    def hook():
        return []

    return hook


def test_every_kind_of_record_has_one_hook_and_every_hook_a_sentence():
    assert list(HOOKS.values()) == list(KINDS)
    assert PluginManager().known == {*HOOKS, "rlx_availability"}
    assert all(vars(hooks)[name].__doc__.rstrip(".").count("\n") == 0 for name in HOOKS)


def test_registration_is_all_or_nothing(make):
    """The second hook is wrong; the first must not stay behind."""
    plugin = make.module("acme", rlx_backends=nothing(), rlx_ops=lambda compiler: [])
    manager = PluginManager()

    with pytest.raises(PluginError, match="arguments differ"):
        manager.register(plugin, "acme")

    assert not manager.holds(plugin)
    assert manager.hook.rlx_backends.get_hookimpls() == []
    assert manager.register(make.module("acme"), "acme") == "acme"  # the name is free again


def test_registration_runs_no_property():
    class Plugin:
        @property
        def explosive(self):
            raise AssertionError("evaluated")

        @hookimpl
        def rlx_ops(self):
            return [OpSpec("acme.op", "math:exp")]

    manager = PluginManager()
    plugin = Plugin()
    manager.register(plugin, "acme")

    (function,) = manager.implementations(plugin)["rlx_ops"]
    assert [record.name for record in function()] == ["acme.op"]


def test_registration_wakes_no_lazy_module_attribute():
    module = ModuleType("lazy")
    woken = []
    module.__getattr__ = woken.append
    module.__dir__ = lambda: ["heavy", "rlx_ops"]
    module.rlx_ops = hookimpl(nothing())

    PluginManager().register(module, "lazy")

    assert woken == []


def test_a_misspelt_hook_is_refused_with_the_nearest_name(make):
    with pytest.raises(PluginError, match="`rlx_backend` is not a hook") as caught:
        PluginManager().register(make.module("acme", rlx_backend=nothing()), "acme")

    assert caught.value.hint == "did you mean `rlx_backends`?"


def test_a_hook_of_a_later_rlx_may_be_marked_optional():
    module = ModuleType("acme")
    module.rlx_dreams = hookimpl(nothing(), optionalhook=True)

    assert PluginManager().register(module, "acme") == "acme"


def test_a_hook_may_have_another_name_in_the_plugin():
    module = ModuleType("acme")
    module.my_ops = hookimpl(lambda: ["mine"], specname="rlx_ops")
    manager = PluginManager()
    manager.register(module, "acme")

    assert [each() for each in manager.implementations(module)["rlx_ops"]] == [["mine"]]


def test_a_function_imported_from_elsewhere_is_no_hook():
    """`from other_plugin import rlx_ops` would contribute the other's ops under this plugin's name."""
    module = ModuleType("acme")
    exec("def rlx_ops(): return []", {"__name__": "elsewhere"}, vars(elsewhere := ModuleType("elsewhere")))
    module.rlx_ops = elsewhere.rlx_ops
    manager = PluginManager()
    manager.register(module, "acme")

    assert dict(manager.implementations(module)) == {}


def test_a_marked_hook_of_another_module_is_not_this_plugins_own(site):
    """It was written for the other plugin, whose ops it returns."""
    site.install("first", "@hookimpl\ndef rlx_ops(): return [OpSpec('first.op', 'math:exp')]")
    site.install("second", "from first_rlx_plugin import rlx_ops")
    site.install("third", "from first_rlx_plugin import rlx_ops as mine\n@hookimpl\ndef rlx_ops(): return mine()")
    host = PluginHost(builtin=False)
    rows = {row.name: row for row in host.survey()}

    assert rows["first"].provides == {"ops": ("first.op",)}
    assert rows["second"].provides == {}
    assert host.registry().owner("ops", "first.op").plugin == "first"


def test_a_plugin_may_spread_its_hooks_over_modules_of_its_package(site):
    package = site.path / "spread"
    package.mkdir()
    (package / "__init__.py").write_text("from spread.hooks import rlx_ops\n")
    (package / "hooks.py").write_text(
        "from rlx_core.hooks import hookimpl\nfrom rlx_core.contributions import OpSpec\n"
        "@hookimpl\ndef rlx_ops(): return [OpSpec('spread.op', 'math:exp')]\n"
    )
    host = PluginHost([PluginEntry("spread", "spread")], builtin=False)

    assert list(host.activate_all().ops) == ["spread.op"]


@pytest.mark.parametrize("option", ["tryfirst", "trylast", "wrapper", "hookwrapper"])
def test_a_marker_that_asks_for_an_order_is_refused(option):
    module = ModuleType("acme")
    module.rlx_ops = hookimpl(nothing(), **{option: True})

    with pytest.raises(PluginError, match=f"marked `{option}`"):
        PluginManager().register(module, "acme")


def test_one_raising_implementation_costs_only_its_own_plugin(make):
    """Through pluggy's own call everything is lost; through the host only the faulty plugin's part is."""

    def faulty():
        raise RuntimeError("no")

    good, bad = make.ops("good.op"), make.module("bad", rlx_ops=faulty)
    plain = pluggy.PluginManager("rlx")
    plain.add_hookspecs(hooks)
    plain.register(good, "good")
    plain.register(bad, "bad")
    with pytest.raises(RuntimeError):
        plain.hook.rlx_ops()

    registry = make.host(make.entry("good", good), make.entry("bad", bad)).activate_all()

    assert list(registry.ops) == ["good.op"]


def test_plugins_need_not_be_hashable_or_compare_sanely():
    class Plugin:
        __hash__ = None

        def __eq__(self, other):
            return True

        @hookimpl
        def rlx_ops(self):
            return []

    manager = PluginManager()
    first = Plugin()
    manager.register(first, "first")

    assert manager.holds(first)
    assert not manager.holds(Plugin())
