"""A plugin is activated when it is needed, and not before."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rlx_core.contributions import (
    BackendSpec,
    CommandSpec,
    EventSpec,
    ImporterSpec,
    KernelSpec,
    OpSpec,
)
from rlx_core.errors import PluginError, UnknownNameError
from rlx_core.hooks import hookimpl
from rlx_core.plugins import (
    PluginHost,
    PluginPolicy,
    State,
    default_host,
    set_default_host,
)

ROOT = Path(__file__).parents[2]


def active(host):
    return {row.name for row in host.survey(load=False) if row.state is State.ACTIVE}


def test_nothing_is_active_until_something_is_asked_for(make):
    host = make.host(make.entry("acme", make.ops("acme.op")), make.entry("other", make.ops("other.op")))

    assert active(host) == set()
    host.require("ops", "acme.op")
    assert active(host) == {"acme"}


def test_a_registry_does_not_change_when_a_plugin_is_activated_later(make):
    host = make.host(make.entry("acme", make.ops("acme.op")), make.entry("other", make.ops("other.op")))
    host.require("ops", "acme.op")
    before = host.registry()

    host.require("ops", "other.op")

    assert list(before.ops) == ["acme.op"]
    assert list(host.registry().ops) == ["acme.op", "other.op"]
    assert host.registry() is host.registry()


@pytest.mark.parametrize(
    ("when", "kind", "name"),
    [
        ("target", "backends", "gpu"),
        ("target.gpu", "backends", "gpu"),
        ("domain.acme", "ops", "acme.op"),
        ("domain.acme", "rules", "acme.op:vjp"),
        ("command.bench", "commands", "bench"),
        ("import.reader", "importers", "acme.reader"),
        ("export", "exporters", "acme.writer"),
        ("option.level", "options", "acme.level"),
        ("target.gpu", "kernels", "gpu:math:exp"),
        ("compile", "events", "pass-end:math:exp"),
    ],
)
def test_a_declared_condition_activates(make, when, kind, name):
    """The name exists elsewhere, so that it is not the search for an unknown name that activates."""
    provider = make.module(
        "p",
        rlx_ops=lambda: [OpSpec("acme.op", "math:exp")],
        rlx_backends=lambda: [BackendSpec("gpu", "math:exp")],
        rlx_commands=lambda: [CommandSpec("bench", "math:exp")],
    )
    extension = make.module("e", rlx_kernels=lambda: [KernelSpec("gpu", "math:log")])
    host = make.host(
        make.entry("provider", provider, when=("target.gpu", "domain.acme", "command.bench")),
        make.entry("extension", extension, when=(when,)),
        make.entry("idle", make.ops("idle.op"), when=("target.other", "command.other", "domain.other")),
    )
    conditions = __import__("rlx_core.plugins.conditions", fromlist=["x"]).conditions_of(kind, name)

    host.activate_for(*conditions)

    assert "extension" in active(host)
    assert "idle" not in active(host)


def test_a_compilation_activates_who_extends_the_target_or_listens(make):
    host = make.host(
        make.entry("gpu", make.module("g", rlx_backends=lambda: [BackendSpec("gpu", "math:exp")])),
        make.entry(
            "kernels",
            make.module("k", rlx_kernels=lambda: [KernelSpec("gpu", "math:exp")]),
            when=("target.gpu",),
        ),
        make.entry(
            "watch",
            make.module("w", rlx_compile_events=lambda: [EventSpec("pass-end", "math:exp")]),
            when=("compile",),
        ),
        make.entry("idle", make.ops("idle.op")),
    )

    registry = host.activate_for_compile("gpu")

    assert active(host) == {"gpu", "kernels", "watch"}
    assert len(registry.kernels_for("gpu")) == len(registry.listeners("pass-end")) == 1


def test_what_nobody_active_has_is_looked_for_in_everyone_before_it_is_unknown(make):
    host = make.host(make.entry("acme", make.ops("other.op")), make.entry("more", make.ops("more.op")))

    assert host.require("ops", "other.op")
    with pytest.raises(UnknownNameError, match="no plugin provides this op"):
        host.require("ops", "third.op")


def test_a_file_is_a_plugin(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from rlx_core.hooks import hookimpl\n"
        "class Twice:\n    name = 'mine.twice'\n"
        "@hookimpl\ndef rlx_ops(): return [Twice]\n"
    )
    host = PluginHost([], policy=PluginPolicy.of(enable=[str(file)], source="--plugin"), builtin=False)

    assert host.load("ops", "mine.twice").name == "mine.twice"
    owner = host.registry().owner("ops", "mine.twice")
    assert owner.file == str(file)
    assert owner.version.startswith("sha256:")


def test_where_a_file_lies_does_not_change_the_hash(tmp_path):
    hashes = set()
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        file = tmp_path / folder / "mine.py"
        file.write_text(
            "from rlx_core.hooks import hookimpl\n"
            "class Twice: name = 'mine.twice'\n"
            "@hookimpl\ndef rlx_ops(): return [Twice]\n"
        )
        host = PluginHost([], policy=PluginPolicy.of(enable=[str(file)]), builtin=False)
        hashes.add(host.activate_all().hash)

    assert len(hashes) == 1


def test_a_module_with_an_attribute_is_a_plugin(site):
    (site.path / "toolbox.py").write_text(
        "from rlx_core.hooks import hookimpl\nfrom rlx_core.contributions import OpSpec\n"
        "class Plugin:\n    @hookimpl\n    def rlx_ops(self): return [OpSpec('box.op', 'math:exp')]\n"
        "plugin = Plugin()\n"
    )
    host = PluginHost([], policy=PluginPolicy.of(enable=["box=toolbox:plugin"]), builtin=False)

    assert host.registry().owner("ops", "box.op").plugin == "box"


def test_a_missing_file_is_a_failed_plugin(tmp_path):
    host = PluginHost([], policy=PluginPolicy.of(enable=[str(tmp_path / "gone.py")]), builtin=False)

    (row,) = host.survey()
    assert row.state is State.FAILED
    assert "there is no file" in row.reason


def test_a_program_passes_modules_and_objects_directly(make):
    class Acme:
        @hookimpl
        def rlx_ops(self):
            return [OpSpec("acme.op", "math:exp")]

    host = PluginHost([Acme(), make.ops("other.op")], policy=PluginPolicy(), builtin=False)

    assert sorted(row.name for row in host.survey()) == ["acme", "ops_of"]
    assert host.require("ops", "acme.op")


def test_two_objects_of_one_name_must_be_given_names(make):
    with pytest.raises(PluginError, match="two of the plugins passed in are called ops_of"):
        PluginHost([make.ops("acme.op"), make.ops("other.op")], policy=PluginPolicy(), builtin=False)


def test_enabling_an_installed_plugin_by_its_module_makes_no_second_one(site):
    module = site.install("acme", "@hookimpl\ndef rlx_ops(): return [OpSpec('acme.op', 'math:exp')]")
    host = PluginHost(policy=PluginPolicy.of(enable=[f"mine={module}"]), builtin=False)

    assert host.registry().owner("ops", "acme.op").distribution == "acme-rlx"


def test_two_entry_points_of_one_module_are_one_plugin(make):
    plugin = make.ops("acme.op")
    host = make.host(make.entry("acme", plugin), make.entry("acme-too", plugin, distribution="acme-rlx"))

    assert host.activate_all().owner("ops", "acme.op").plugin == "acme"
    assert active(host) == {"acme", "acme-too"}


def test_a_plugin_may_ask_for_names_while_it_is_imported(make):
    answers = []

    def rlx_ops():
        answers.append(host.require("ops", "other.op").name)
        return [OpSpec("acme.op", "math:exp")]

    host = make.host(
        make.entry("acme", make.module("acme", rlx_ops=rlx_ops)), make.entry("other", make.ops("other.op"))
    )

    assert host.require("ops", "acme.op").name == "acme.op"
    assert answers == ["other.op"]


def test_many_threads_activate_a_plugin_once(make):
    calls = []

    def rlx_ops():
        calls.append(1)
        return [OpSpec("acme.op", "math:exp")]

    host = make.host(make.entry("acme", make.module("acme", rlx_ops=rlx_ops)))
    found = []
    threads = [threading.Thread(target=lambda: found.append(host.require("ops", "acme.op"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(calls) == 1
    assert len(found) == 8


def test_a_reader_is_chosen_by_suffix(make):
    def reader(name, **fields):
        return make.module("r", rlx_importers=lambda: [ImporterSpec(name, "math:exp", suffixes=[".acme"], **fields)])

    host = make.host(
        make.entry("one", reader("one.reader")),
        make.entry("two", reader("two.reader", priority=1), when=("import.acme",)),
    )

    assert host.importers_for(".acme")[0].name == "two.reader"
    assert active(host) == {"two"}
    with pytest.raises(UnknownNameError, match="no plugin can import such files") as caught:
        host.importers_for(".acmee")
    assert caught.value.hint == "did you mean `.acme`?"


def test_the_counts_of_the_listing(make):
    (row,) = make.host(make.entry("acme", make.ops("acme.a", "acme.b"))).survey()

    assert row.counts == {"ops": 2}
    assert row.provides == {"ops": ("acme.a", "acme.b")}
    assert row.label == "active"


def test_the_default_host_is_built_once_and_can_be_replaced(make):
    mine = make.host()
    before = set_default_host(mine)
    try:
        assert default_host() is mine
    finally:
        set_default_host(before)


@pytest.mark.medium
def test_every_third_party_plugin_broken_and_the_listing_still_works(site):
    """What a recovery command needs: a fresh process, the real index, and no help from any plugin."""
    for number in range(10):
        site.install(f"broken{number}", "raise SystemExit('no')" if number % 2 else "import nothing_like_this")
    program = (
        "from rlx_core.plugins import PluginHost\n"
        "host = PluginHost(builtin=False)\n"
        "assert {row.state for row in host.survey(load=False)} == {None}\n"
        "print(*(f'{row.name} {row.label} {row.mend}' for row in host.survey()), sep='\\n')\n"
    )
    environment = {"PYTHONPATH": f"{ROOT}:{site.path}", "RLX_CACHE_DIR": str(site.path)}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)

    assert ran.returncode == 0, ran.stderr
    # Whatever else is installed beside them is nobody's business here.
    rows = [row for row in ran.stdout.splitlines() if row.startswith("broken")]
    assert len(rows) == 10
    assert all(" failed python -m pip install --upgrade broken" in row for row in rows)


@pytest.mark.medium
def test_of_a_hundred_idle_plugins_two_are_imported(site):
    """What two names need is two modules; the rest stay on disk, and the index is read in a fresh process."""
    for number in range(100):
        site.install(
            f"idle{number}",
            f"@hookimpl\ndef rlx_ops(): return [OpSpec('idle{number}.op', 'math:exp')]\n"
            f"@hookimpl\ndef rlx_backends(): return [BackendSpec('idle{number}', 'math:exp')]\n",
            requires=("rlx-core>=0.1,<1",),
        )
    program = (
        "import sys\nfrom rlx_core.plugins import PluginHost\n"
        "host = PluginHost(builtin=False)\n"
        "host.activate_for_compile('idle7')\n"
        "host.require('backends', 'idle7'); host.require('ops', 'idle42.op')\n"
        "print(*sorted(name for name in sys.modules if name.endswith('_rlx_plugin')))\n"
        "print(sum(row.name.startswith('idle') for row in host.survey(load=False)))\n"
    )
    environment = {"PYTHONPATH": f"{ROOT}:{site.path}", "RLX_CACHE_DIR": str(site.path.parent / "cache")}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["idle42_rlx_plugin", "idle7_rlx_plugin", "100"]


def test_importing_the_plugin_layer_reads_no_metadata_and_no_heavy_library():
    program = (
        "import sys, rlx_core.plugins\n"
        "heavy = {'numpy', 'packaging', 'rich', 'typer', 'email', 'rlx_core.builtin'}\n"
        "print(*sorted(heavy & set(sys.modules)))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout.split() == []
