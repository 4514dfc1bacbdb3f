"""The registry as a value: same content, same hash; conflicts refused by name, settled by configuration."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from rlx_core.contributions import (
    BackendSpec,
    EventSpec,
    ImporterSpec,
    KernelSpec,
    OpFamily,
    OpSpec,
    OptionSpec,
    PassSpec,
    PipelineSpec,
    RuleSpec,
)
from rlx_core.errors import (
    ConfigError,
    CycleError,
    DeviceError,
    DeviceUnavailableError,
    PluginError,
    UnknownNameError,
)
from rlx_core.hooks import HOOKS, hookimpl
from rlx_core.plugins import PluginHost, PluginOrigin, PluginPolicy, Provenance, State


class Square:
    """Stands in for an op class, which carries its own name."""

    name = "acme.square"


FAMILY = {"acme.cube": Square, "acme.root": Square}


def everything():
    """A plugin with a record of many kinds."""

    class Everything:
        @hookimpl
        def rlx_ops(self):
            return [Square, OpSpec("acme.exp", "math:exp"), OpFamily(FAMILY, ["acme.cube", "acme.root"])]

        @hookimpl
        def rlx_rules(self):
            yield RuleSpec("other.op", "vjp", "math:exp")

        @hookimpl
        def rlx_passes(self):
            return PassSpec("acme.tidy", "math:exp", stage="hir", before=["rlx.cse"])

        @hookimpl
        def rlx_backends(self):
            return [BackendSpec("acme", "math:exp", priority=3, devices=["acme:0"])]

        @hookimpl
        def rlx_kernels(self):
            return (KernelSpec("acme", "math:exp"), KernelSpec("elsewhere", "math:log"))

        @hookimpl
        def rlx_importers(self):
            return [ImporterSpec("acme.reader", "math:exp", suffixes=[".acme"])]

        @hookimpl
        def rlx_pipelines(self):
            return [PipelineSpec("acme.fast", {"mir": ["acme.tidy", {"rlx.cse": {"limit": 1.5}}]})]

        @hookimpl
        def rlx_options(self):
            return [OptionSpec("acme.level", int, 2, "How hard to try.", env="ACME_LEVEL")]

        @hookimpl
        def rlx_compile_events(self):
            return [EventSpec("pass-end", "math:log"), EventSpec("pass-end", "math:exp", priority=1)]

    return Everything()


@pytest.fixture
def registry(make):
    return make.host(make.entry("acme", everything())).activate_all()


def test_every_record_arrives_in_its_table(registry):
    assert list(registry.ops) == ["acme.cube", "acme.exp", "acme.root", "acme.square"]
    assert registry.ops["acme.square"].load.resolve() is Square
    assert registry.load("ops", "acme.cube") is Square
    assert registry.rules_for("other.op")["vjp"].load.resolve() is __import__("math").exp
    assert [each.load.text for each in registry.kernels_for("elsewhere")] == ["math:log"]
    assert [each.load.text for each in registry.listeners("pass-end")] == ["math:exp", "math:log"]
    assert registry.require("options", "acme.level").default == 2
    assert {HOOKS[hook] for hook in HOOKS if registry.table(HOOKS[hook])} >= {"pipelines", "importers"}


def test_a_registry_cannot_be_changed(registry):
    with pytest.raises(TypeError):
        registry.ops["acme.other"] = registry.ops["acme.exp"]
    with pytest.raises(AttributeError):
        registry.ops = {}


def test_everything_knows_where_it_comes_from(registry):
    owner = registry.owner("passes", "acme.tidy")

    assert isinstance(owner, Provenance)
    assert (owner.plugin, owner.distribution, owner.version) == ("acme", "acme-rlx", "1.0")
    assert owner.file == __file__
    lines = Path(__file__).read_text().splitlines()
    assert "def rlx_passes" in lines[owner.line]  # the line after that of its decorator


def test_a_misspelt_name_gets_its_hint(registry):
    with pytest.raises(UnknownNameError, match=r"did you mean `acme\.square`"):
        registry.require("ops", "acme.sqare")
    with pytest.raises(DeviceError, match=r"targets +acme") as caught:
        registry.require("backends", "acmee")
    assert caught.value.hint == "did you mean `acme`?"
    with pytest.raises(UnknownNameError, match="`op` is not a kind"):
        registry.require("op", "acme.square")


def test_a_target_of_a_known_package_says_what_installs_it(registry):
    with pytest.raises(DeviceUnavailableError) as caught:
        registry.require("backends", "cpu")
    assert caught.value.hint == "python -m pip install rlx-cpu"


# ---- the hash

ENTRIES = ["alpha", "beta", "gamma", "delta", "epsilon"]


def test_the_hash_does_not_depend_on_the_order_of_registration(make):
    hashes, orders = set(), set()
    for seed in range(20):
        entries = [make.entry(name, make.ops(f"{name}.op", f"{name}.other")) for name in ENTRIES]
        random.Random(seed).shuffle(entries)
        host = make.host(*entries)
        for name in random.Random(seed + 100).sample(ENTRIES, 5):  # activated in another order still
            host.require("ops", f"{name}.op")
        hashes.add(host.registry().hash)
        orders.add(tuple(host.registry().ops))

    assert len(hashes) == 1
    assert len(orders) == 1


@pytest.mark.medium
def test_the_hash_does_not_depend_on_the_hash_seed(site):
    site.install("acme", "@hookimpl\ndef rlx_ops(): return [OpSpec(n, 'math:exp') for n in {'acme.a', 'acme.b'}]")
    program = "from rlx_core.plugins import PluginHost; print(PluginHost(builtin=False).activate_all().hash)"
    root = Path(__file__).parents[2]
    found = set()
    for seed in ("0", "1", "2", "3", "4"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{root}{os.pathsep}{site.path}"}
        ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
        found.add(ran.stdout)

    assert len(found) == 1


def test_the_hash_covers_version_distribution_and_every_field(make):
    def hash_of(record, **fields):
        plugin = make.module("acme", rlx_passes=lambda: [record])
        return make.host(make.entry("acme", plugin, **fields)).activate_all().hash

    base = hash_of(PassSpec("acme.p", "math:exp"))
    others = {
        hash_of(PassSpec("acme.p", "math:exp"), version="1.1"),
        hash_of(PassSpec("acme.p", "math:exp"), distribution="other"),
        hash_of(PassSpec("acme.p", "math:log")),
        hash_of(PassSpec("acme.p", "math:exp", before=["acme.q"])),
        hash_of(PassSpec("acme.p", "math:exp", priority=1)),
        hash_of(PassSpec("acme.q", "math:exp")),
    }

    assert base == hash_of(PassSpec("acme.p", "math:exp"), distribution="Acme_RLX")  # the same distribution
    assert len({base, *others}) == 7


def test_one_record_has_a_digest_that_other_plugins_leave_alone(make):
    entries = [make.entry("acme", make.ops("acme.op")), make.entry("other", make.ops("other.op"))]
    alone, together = make.host(entries[0]).activate_all(), make.host(*entries).activate_all()

    assert alone.hash != together.hash
    assert alone.digest("ops", "acme.op") == together.digest("ops", "acme.op")


# ---- conflicts


@pytest.fixture
def rivals(make):
    """Two plugins with one name in common, and a name of their own each."""
    return (
        make.entry("acme", make.ops("norms.norm", "acme.only"), when=("domain.norms",)),
        make.entry("acme2", make.ops("norms.norm", "acme2.only"), when=("domain.norms",), version="2.5"),
    )


def test_a_name_that_two_claim_is_refused_with_both(make, rivals):
    host = make.host(*rivals)

    with pytest.raises(PluginError, match=r"norms\.norm: 2 plugins define this op") as caught:
        host.require("ops", "norms.norm")

    text = str(caught.value)
    assert "acme-rlx 1.0 (active)" in text
    assert "acme2-rlx 2.5 (active)" in text
    assert text.count("conftest.py:") == 2
    assert '[plugins.override] "norms.norm" = "acme" or "acme2"' in text
    assert host.require("ops", "acme.only")
    assert host.require("ops", "acme2.only")
    rows = host.survey()
    assert [row.contested for row in rows] == [("norms.norm",), ("norms.norm",)]
    assert "norms.norm is also defined by acme2 (acme2-rlx 2.5, " in rows[0].reason
    with pytest.raises(UnknownNameError, match=r"did you mean `norms\.norm`"):
        host.require("ops", "norms.nrm")


def test_two_distributions_with_one_plugin_name_are_told_apart_by_distribution(make):
    entries = [make.entry("acme", make.ops("acme.op"), distribution=name) for name in ("one", "two")]

    with pytest.raises(PluginError, match=r'"acme\.op" = "one" or "two"'):
        make.host(*entries).require("ops", "acme.op")

    host = make.host(*entries, override={"acme.op": "one"})
    host.require("ops", "acme.op")
    assert host.registry().owner("ops", "acme.op").distribution == "one"


@pytest.mark.parametrize("winner", ["acme", "acme2"])
def test_the_configuration_decides_and_every_report_shows_it(make, rivals, winner):
    policy = PluginPolicy.of(override={"norms.norm": winner}, source="rlx.toml")
    host = PluginHost(rivals, policy=policy, builtin=False)

    assert host.require("ops", "norms.norm")
    assert host.registry().owner("ops", "norms.norm").plugin == winner
    rows = {row.name: row for row in host.survey()}
    loser = {"acme": "acme2", "acme2": "acme"}[winner]
    assert rows[loser].state is State.SHADOWED
    assert rows[loser].overridden == {"norms.norm": winner}
    assert f"norms.norm is overridden by {winner} (rlx.toml)" in rows[loser].reason
    assert rows[winner].state is State.ACTIVE
    assert rows[winner].overrides == {"norms.norm": loser}
    assert "rlx.toml" in rows[winner].reason


def test_an_override_activates_the_plugin_it_names(make):
    """Without `rlx.when` nothing else would, and the other plugin's op would be used silently."""
    entries = [make.entry("acme", make.ops("acme.norm")), make.entry("zeta", make.ops("acme.norm"))]
    host = make.host(*entries, override={"acme.norm": "zeta"})

    host.require("ops", "acme.norm")

    assert host.registry().owner("ops", "acme.norm").plugin == "zeta"


def test_an_override_to_a_plugin_without_the_name_is_an_error(make, rivals):
    with pytest.raises(ConfigError, match=r"`zeta` does not provide norms\.norm"):
        make.host(*rivals, override={"norms.norm": "zeta"}).require("ops", "norms.norm")


def test_rlx_own_names_cannot_be_taken_by_being_installed(make):
    own = make.entry("rlx", make.ops("rlx.op"), origin=PluginOrigin.BUILTIN, distribution="rlx-core")
    thief = make.entry("acme", make.ops("rlx.op", "acme.op"))
    host = make.host(own, thief)

    assert host.activate_all().owner("ops", "rlx.op").plugin == "rlx"
    row = next(row for row in host.survey() if row.name == "acme")
    assert row.state is State.FAILED
    assert "defines rlx.op, which rlx-core 1.0 defines already" in row.reason
    with pytest.raises(PluginError, match="defines already"):
        host.require("ops", "acme.op")


@pytest.mark.parametrize("policy", [{}, {"enable": ["acme"]}])
def test_rlx_own_names_can_be_given_away(make, policy):
    own = make.entry("rlx", make.ops("rlx.op"), origin=PluginOrigin.BUILTIN, distribution="rlx-core")
    host = make.host(own, make.entry("acme", make.ops("rlx.op")), override={"rlx.op": "acme"}, **policy)

    host.require("ops", "rlx.op")

    assert host.registry().owner("ops", "rlx.op").plugin == "acme"


def test_two_backends_of_one_target_do_not_conflict_where_only_one_can_run(make):
    def backend(reason):
        return make.module("b", rlx_backends=lambda: [BackendSpec("gpu", "math:exp")], rlx_availability=lambda: reason)

    entries = [
        make.entry("one", backend("no driver"), when=("target.gpu",)),
        make.entry("two", backend(None), when=("target.gpu",)),
    ]
    host = make.host(*entries)
    host.require("backends", "gpu")

    assert host.registry().owner("backends", "gpu").plugin == "two"
    assert [row.state for row in host.survey()] == [State.UNAVAILABLE, State.ACTIVE]


# ---- order


def test_a_cycle_is_refused_by_name_and_spares_the_rest(make):
    def passes():
        yield PassSpec("acme.a", "math:exp", before=["acme.b"])
        yield PassSpec("acme.b", "math:exp", before=["acme.a"])
        yield PassSpec("acme.c", "math:exp")

    host = make.host(make.entry("acme", make.module("acme", rlx_passes=passes)))

    with pytest.raises(CycleError, match=r"acme\.a → acme\.b → acme\.a is a cycle"):
        host.require("passes", "acme.a")
    assert list(host.registry().passes) == ["acme.c"]


def test_a_plugin_cannot_draw_rlx_own_passes_into_a_cycle(make):
    own = make.module(
        "rlx",
        rlx_passes=lambda: [PassSpec("rlx.a", "math:exp", before=["rlx.b"]), PassSpec("rlx.b", "math:exp")],
    )
    other = make.module("acme", rlx_passes=lambda: [PassSpec("acme.p", "math:exp", before=["rlx.a"], after=["rlx.b"])])
    host = make.host(make.entry("rlx", own, origin=PluginOrigin.BUILTIN), make.entry("acme", other))

    assert list(host.activate_all().passes) == ["rlx.a", "rlx.b"]
    with pytest.raises(CycleError, match=r"acme\.p"):
        host.require("passes", "acme.p")


def test_kernel_tables_that_two_plugins_offer_at_one_address_have_their_plugins_names(make):
    def offers(name):
        return make.entry(name, make.module(name, rlx_kernels=lambda: [KernelSpec("cpu", "json:loads")]))

    host = make.host(offers("acme"), offers("other"))
    registry = host.activate_all()

    assert [spec.name for spec in registry.kernels_for("cpu")] == ["cpu:json:loads@acme", "cpu:json:loads@other"]
    assert [registry.owner("kernels", spec.name).plugin for spec in registry.kernels_for("cpu")] == ["acme", "other"]
    assert registry.load("kernels", "cpu:json:loads@other") is json.loads
    assert registry.kernels_for("tpu") == []
    assert not registry.refused


def test_a_kernel_table_that_one_plugin_offers_keeps_its_name(make):
    host = make.host(make.entry("acme", make.module("acme", rlx_kernels=lambda: [KernelSpec("cpu", "json:loads")])))
    assert [spec.name for spec in host.activate_all().kernels_for("cpu")] == ["cpu:json:loads"]
