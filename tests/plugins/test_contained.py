"""What is wrong with one contribution stops nothing that does not need it, and is named with its owner wherever it shows.

A generator makes a plugin for each kind of record and each way of being wrong; every one of them runs over the same life:
import, list, doctor, and an unrelated compile, gradient and batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from attrs import evolve

import rlx_core as rlx
from rlx_core.cli.checking import checks
from rlx_core.cli.checking.contributions import contribution_faults
from rlx_core.contributions import (
    KINDS,
    BackendSpec,
    BlockSpec,
    CommandSpec,
    Contribution,
    EventSpec,
    ExporterSpec,
    FunctionSpec,
    ImporterSpec,
    KernelSpec,
    LegalizationSpec,
    OpSpec,
    OptionSpec,
    PassSpec,
    PipelineSpec,
    RuleSetSpec,
    RuleSpec,
    SchemeSpec,
)
from rlx_core.errors import DeviceError, LegalizeError, MissingRuleError, PluginError
from rlx_core.ir.block import Block, define_block
from rlx_core.ir.schemes import Scheme
from rlx_core.ops import Op, define_op, op_function
from rlx_core.passes.engine.base import Pass, define_pass
from rlx_core.pipeline.backend import Backend
from rlx_core.pipeline.contributed import EXPECTED
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.plugins import PluginEntry, PluginHost, PluginPolicy, State, default_host

from .guests import EVERYWHERE, X, host_with, plugin_of


@define_op(domain="acme")
class Odd(Op):
    """Its rule takes no cotangent."""

    def decompose(self, x):
        return x + x

    def vjp(self, x):
        return (x,)


@define_block(domain="acme")
class OddBlock(Block):
    """Its rule takes no cotangent."""

    def fusable(self, x):
        return x + x

    def vjp(self, x):
        return (x,)


@define_pass("odd", domain="acme")
class OddPass(Pass):
    """It takes no graph."""

    def run(self):
        return None


class OddScheme(Scheme):
    """It takes no fields."""

    name = "acme.thing"
    fields = ()

    def decode(self):
        return None

    def encode(self):
        return None


class OddBackend(Backend):
    """It takes no program."""

    target: Any = None

    def compile(self):
        return None


def nothing() -> None:
    """A function of nothing."""


odd_table = KernelTable("cpu")
odd_table.register(rlx.exp.op)(nothing)

WRONG_SIGNATURE: dict[str, object] = {
    "ops": Odd,
    "passes": OddPass,
    "rulesets": OddPass,
    "blocks": OddBlock,
    "schemes": OddScheme,
    "backends": OddBackend,
    "kernels": odd_table,
    "functions": "math:tau",
    "commands": "math:tau",  # a command is read by typer, whatever it takes: this one is no function
}


def record(kind: str, load: object, domain: str = "acme", name: str = "thing") -> Contribution:
    """A record of a kind that leads to `load`."""
    full = f"{domain}.{name}"
    made: dict[str, Any] = {
        "ops": lambda: OpSpec("acme.odd" if load is Odd else full, load),
        "rules": lambda: RuleSpec(full if domain == "rlx" else "rlx.exp", "vjp", load),
        "passes": lambda: PassSpec(full, load),
        "rulesets": lambda: RuleSetSpec(full, load),
        "legalizations": lambda: LegalizationSpec("cpu", full, load),
        "backends": lambda: BackendSpec({"acme": "acme", "rlx": "cpu"}.get(domain, "linalg"), load, priority=99),
        "kernels": lambda: KernelSpec("cpu", load),
        "blocks": lambda: BlockSpec(full, load),
        "schemes": lambda: SchemeSpec(full, load),
        "importers": lambda: ImporterSpec(full, load, suffixes=[".safetensors"], priority=99),
        "exporters": lambda: ExporterSpec(full, load, suffixes=[".safetensors"], priority=99),
        "pipelines": lambda: PipelineSpec(full, {"mir": [str(load)]}),
        "options": lambda: OptionSpec(full, int, 3, doc=str(load)),
        "commands": lambda: CommandSpec(name, load),
        "functions": lambda: FunctionSpec(name, load),
        "events": lambda: EventSpec("compile-start", load),
    }
    found: Contribution = made[kind]()
    return found


STANDARD = {
    "ops": "exp", "rules": "exp", "passes": "cse", "rulesets": "algebra", "importers": "safetensors", "blocks": "linear_block",
    "schemes": "int4", "exporters": "safetensors", "pipelines": "inference", "commands": "plugins", "functions": "trace",
}  # fmt: skip


def records(kind: str, fault: str) -> list[Contribution]:
    """What a plugin gives that is wrong in one way."""
    if fault == "does not load":
        return [record(kind, "a_package_nobody_has:thing")]
    if fault == "raises at load":
        return [record(kind, "raises_at_load:thing")]
    if fault == "wrong type":
        return [record(kind, "math:pi")]
    if fault == "wrong signature":
        return [record(kind, WRONG_SIGNATURE.get(kind, nothing))]
    if fault == "duplicate":
        return [record(kind, "math:exp"), record(kind, "math:exp")]
    if fault == "foreign domain":
        return [record(kind, "math:exp", domain="linalg")]
    return [record(kind, "math:exp", domain="rlx", name=STANDARD.get(kind, "thing"))]


FAULTS = (
    "does not load", "raises at load", "wrong type", "wrong signature", "duplicate", "foreign domain", "standard name",
)  # fmt: skip


@pytest.fixture(autouse=True)
def raising(tmp_path, monkeypatch) -> None:
    """A module that cannot be imported because it exits."""
    (tmp_path / "raises_at_load.py").write_text("raise SystemExit('no licence')")
    monkeypatch.syspath_prepend(str(tmp_path))


def works(host: PluginHost) -> None:
    """What has to do with none of it still works."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        np.testing.assert_allclose(rlx.jit(lambda x: rlx.tanh(x) * 2, host=host)(X), np.tanh(X) * 2, rtol=1e-5)
        gradient = rlx.jit(rlx.grad(lambda x: rlx.sum(rlx.exp(x))), host=host)
        np.testing.assert_allclose(gradient(X), np.exp(X), rtol=1e-5)
        np.testing.assert_allclose(rlx.jit(rlx.vmap(rlx.tanh), host=host)(X), np.tanh(X), rtol=1e-5)


def life(host: PluginHost) -> Iterator[str]:
    """List, doctor and use; what is said of the plugin on the way."""
    rows = {row.name: row for row in host.survey()}
    yield f"{rows['acme'].label}: {rows['acme'].reason}"
    found = [*checks.plugins(host, True), *checks.contributions(host, True)]
    yield from (f"{each.verdict}: {each.found}; {each.mend}" for each in found if each.name == "acme")
    works(host)
    assert rows["rlx"].state is rows["cpu"].state is State.ACTIVE


def expected(kind: str, fault: str) -> str | None:
    """What must be said; `None` where there is nothing wrong with it."""
    if kind not in EXPECTED and fault in ("does not load", "raises at load", "wrong type", "wrong signature"):
        return None  # such a record leads nowhere
    if fault == "does not load":
        return "ModuleNotFoundError: No module named 'a_package_nobody_has'"
    if fault == "raises at load":
        return "SystemExit: no licence"
    if fault == "duplicate":
        return "is defined twice by the same plugin"
    if fault == "foreign domain" and kind not in ("rules", "kernels", "events", "commands", "functions"):
        return "the name belongs to linalg"
    if fault == "standard name":
        if kind in ("options", "legalizations", "backends"):
            return "the name belongs to"
        if kind == "commands":
            return "is never reached: rlx has one of that name"
        if kind == "functions":
            return "it is never reached: rlx has a name like that of its own"
        return {"rules": "its vjp rule", "kernels": "not a KernelTable", "events": None}.get(kind, "defines already")
    return "wrong: " if fault != "foreign domain" else None


def one_life(kind: str, fault: str) -> None:
    said = "\n".join(life(host_with(plugin_of((kind, records(kind, fault))))))
    wanted = expected(kind, fault)
    if wanted is not None:
        assert wanted in said
        assert "acme-rlx 1.0" in said


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_record_may_be_wrong_in_every_way(kind, fault):
    one_life(kind, fault)


@pytest.mark.medium
@pytest.mark.parametrize(("kind", "fault"), [("rules", "does not load"), ("kernels", "raises at load")])
def test_one_contribution_that_does_not_load_stops_nobody(kind, fault):
    one_life(kind, fault)


def test_everything_may_be_unloadable_at_once():
    given = [(kind, records(kind, "does not load")) for kind in KINDS]
    host = host_with(plugin_of(*given))
    said = "\n".join(life(host))

    assert said.count("No module named 'a_package_nobody_has'") == len(EXPECTED)
    assert {fault.owner.plugin for fault in contribution_faults(host)} == {"acme"}


def test_importing_rlx_loads_none_of_it():
    host = host_with(plugin_of(("kernels", records("kernels", "does not load"))))

    assert host.registry().left_out == {}
    assert rlx.exp(X).shape == (2,)


# ---- what needs the broken thing is told its cause


def test_an_op_whose_only_rule_does_not_load_is_told_why():
    @define_op(domain="mine")
    class Plain(Op):
        def infer(self, x):
            return x

        def reference(self, x):
            return x

    plain = op_function(Plain)
    host = host_with(plugin_of(("rules", [RuleSpec("mine.plain", "vjp", "raises_at_load:rule")])))

    with (
        pytest.warns(RuntimeWarning, match=r"rule mine\.plain:vjp of acme .*SystemExit: no licence.*left out"),
        pytest.raises(MissingRuleError, match=r"left out +rule mine\.plain:vjp of acme \(acme-rlx 1\.0\)") as caught,
    ):
        rlx.jit(rlx.grad(lambda x: rlx.sum(plain(x))), host=host)(X)
    assert isinstance(caught.value.__cause__, SystemExit)
    assert "RLX_PLUGINS_BLOCK=acme" in caught.value.hint


def test_an_op_whose_only_kernel_does_not_load_is_told_why():
    @define_op(domain="mine")
    class Alone(Op):
        def infer(self, x):
            return x

    host = host_with(plugin_of(("kernels", [KernelSpec("cpu", "raises_at_load:table")])))
    with (
        pytest.warns(RuntimeWarning, match=r"kernel cpu:raises_at_load:table of acme"),
        pytest.raises(LegalizeError, match=r"left out +kernel cpu:raises_at_load:table of acme") as caught,
    ):
        # The standard kernels run any op by its reference, and this one has none.
        rlx.jit(lambda x: op_function(Alone)(x), host=host, config={"dispatch.policy": "prefer-native"})(X)
    assert isinstance(caught.value.__cause__, SystemExit)


def test_a_warning_is_given_once_and_the_report_keeps_it():
    host = host_with(plugin_of(("kernels", [KernelSpec("cpu", "raises_at_load:table")])))
    function = rlx.jit(lambda x: rlx.tanh(x) * 3, host=host)

    with pytest.warns(RuntimeWarning, match="raises_at_load") as caught:
        function(X)
    function(np.ones(3, np.float32))  # warnings are errors here
    assert len([each for each in caught if "raises_at_load" in str(each.message)]) == 1
    assert "left out: kernel cpu:raises_at_load:table of acme (acme-rlx 1.0)" in str(function.report)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("ops", "acme.thing"), ("passes", "acme.thing"), ("backends", "acme"), ("commands", "thing")],
)
def test_asking_for_exactly_that_raises_its_cause_with_its_owner(kind, name):
    host = host_with(plugin_of((kind, records(kind, "raises at load"))))

    with pytest.raises(PluginError, match=r"acme-rlx 1\.0") as caught:
        host.load(kind, name)
    assert isinstance(caught.value.__cause__, SystemExit)
    assert "RLX_PLUGINS_BLOCK=acme" in caught.value.hint


def test_a_preferred_target_that_does_not_load_gives_way():
    host = host_with(plugin_of(("backends", records("backends", "does not load"))))

    with pytest.warns(RuntimeWarning, match="target acme of acme"):
        assert rlx.Session(host=host).device == "cpu"
    with pytest.raises(PluginError, match="loading it raised ModuleNotFoundError"):
        rlx.Session("acme", host=host)


# ---- whose names are whose


def test_a_stranger_that_claims_cpu_neither_takes_it_nor_takes_it_away():
    host = host_with(plugin_of(("backends", [BackendSpec("cpu", "math:exp", priority=99)])))

    works(host)
    assert host.registry().owner("backends", "cpu").plugin == "cpu"
    (fault,) = host.registry().faults
    assert (fault.owner.plugin, "belongs to cpu" in fault.reason) == ("acme", True)
    assert "[plugins.override]" not in fault.mend  # nobody is advised to give the processor to a stranger


def test_a_stranger_that_is_called_cpu_as_well_does_not_take_it_away():
    entries = [each for each in default_host().entries if each.name == "cpu"]
    assert [each.distribution for each in entries] == ["rlx-cpu"]
    intruder = PluginEntry(
        "cpu", plugin=plugin_of(("backends", [BackendSpec("cpu", "math:exp")])), distribution="cpu-rlx", when=EVERYWHERE
    )
    host = PluginHost([*default_host().entries, intruder], policy=PluginPolicy())

    works(host)
    assert host.registry().owner("backends", "cpu").distribution == "rlx-cpu"


def test_a_blocked_backend_says_who_blocked_it_and_not_what_to_install():
    host = host_with(plugin_of(("backends", [BackendSpec("cpu", "math:exp")])), allow=["acme"], source="--allow")

    with pytest.raises(DeviceError, match="not allowed by --allow") as caught:
        rlx.Session(host=host)
    assert caught.value.hint == "add `cpu` to --allow"
    with pytest.raises(PluginError, match="its plugin cpu is blocked") as caught:
        rlx.Session("cpu", host=host)
    assert caught.value.hint == "add `cpu` to --allow"
    (check,) = [each for each in checks.targets(host, True) if each.name == "(none)"]
    assert (check.verdict, check.mend) == ("wrong", "add `cpu` to --allow")


def test_a_configuration_may_accept_a_name_in_the_domain_of_another():
    spec = OpSpec("linalg.thing", "math:exp")
    host = host_with(plugin_of(("ops", [spec])))
    with pytest.raises(PluginError, match=r"linalg\.thing: acme offers this op, and the name belongs to linalg"):
        host.require("ops", "linalg.thing")

    accepting = host_with(plugin_of(("ops", [spec])), override={"linalg.thing": "acme"})
    assert accepting.require("ops", "linalg.thing").load.text == "math:exp"


# ---- readers and writers


def test_a_reader_of_a_stranger_does_not_take_a_standard_suffix(tmp_path):
    rlx.save(tmp_path / "w.safetensors", {"w": X})
    host = host_with(plugin_of(("importers", records("importers", "raises at load"))))

    assert rlx.load(tmp_path / "w.safetensors", host=host)["w"].tolist() == X.tolist()
    chosen = host_with(
        plugin_of(("importers", [ImporterSpec("acme.st", lambda path, host: "mine", suffixes=[".safetensors"])])),
        override={".safetensors": "acme"},
    )
    assert rlx.load(tmp_path / "w.safetensors", host=chosen) == "mine"


@pytest.mark.medium
def test_of_two_readers_the_one_that_works_reads(tmp_path):
    good = ImporterSpec("other.lines", lambda path, host: path.read_text(), suffixes=[".lines"])
    bad = evolve(good, name="acme.lines", load="raises_at_load:read", priority=9)
    (tmp_path / "a.lines").write_text("text")
    host = host_with(plugin_of(("importers", [bad])), plugin_of(("importers", [good])))

    with pytest.warns(RuntimeWarning, match=r"importer acme\.lines of acme"):
        assert rlx.load(tmp_path / "a.lines", host=host) == "text"
    with pytest.raises(PluginError, match="SystemExit"):
        rlx.load(tmp_path / "a.lines", host=host_with(plugin_of(("importers", [bad]))))
