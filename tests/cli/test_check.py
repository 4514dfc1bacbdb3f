"""`rlx check`: what it says of a package that works, and of those that do not."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from attrs import evolve

from rlx_core.cli import checking
from rlx_core.cli.checking.package import Package, absence, own_claims
from rlx_core.cli.session import CliSession
from rlx_core.plugins import PluginHost, PluginOrigin

WORKS = """
    from rlx_core.ops import define_op, Op, Sample

    @define_op(domain="kit")
    class Halve(Op):
        def decompose(self, x):
            return x - x * 0.5

        @classmethod
        def samples(cls):
            yield Sample("f32[4]")

    @hookimpl
    def rlx_ops():
        return [OpSpec("kit.halve", Halve)]
"""
FOR_OTHERS = """
    from rlx_core.ops.activation import exp
    from rlx_core.pipeline.kernels import KernelTable

    table = KernelTable("cpu")

    @table.register(exp.op, dtypes="f32")
    def exponentials(op, x, *, out, workspace):
        out[...] = op.reference(x)

    def exp_vjp(op, g, x, *, y):
        return (g * y,)

    @hookimpl
    def rlx_kernels():
        return [KernelSpec("cpu", table)]

    @hookimpl
    def rlx_rules():
        return [RuleSpec("rlx.exp", "vjp", exp_vjp)]
"""
BY_ORDER = """
    from rlx_core.passes.engine.base import define_pass, Pass, Result
    from rlx_core.ir.rewrite import rebuild
    from rlx_core.ops.activation import exp
    from rlx_core.ops.arithmetic import multiply

    @define_pass("shuffle", domain="kit")
    class Shuffle(Pass):
        '''What it does depends on the hash seed.'''

        def run(self, graph, context):
            scale = float(hash("shuffle") % 1000)

            def replace(node, operands):
                return multiply(node.op(operands[0]), scale) if isinstance(node.op, exp.op) else None

            made, values = rebuild(graph, replace, by=self.name)
            return Result(made, values)

    @hookimpl
    def rlx_passes():
        return [PassSpec("kit.shuffle", Shuffle)]
"""


def not_installed(rlx, source: str) -> str:
    """The plugin `kit` in a file, as a command line names it; other processes find it there too."""
    file = rlx.install("kit", source)
    rlx.entries.clear()
    return f"kit={file}"


@pytest.mark.slow
def test_a_package_that_works_has_nothing_wrong(rlx) -> None:
    ran = rlx("check", not_installed(rlx, WORKS), "--quick", "--json")
    assert ran.code == 0, ran.out
    assert ran.json["ok"]
    sections = {row["section"] for row in ran.json["checks"]}
    assert sections == {"plugin", "contributions", "laws", "plans"}
    (law,) = [row for row in ran.json["checks"] if row["name"] == "kit.halve"]
    assert "laws, on 1 sample" in law["found"]


@pytest.mark.slow
def test_a_wrong_rule_is_found_by_the_laws(rlx) -> None:
    rule = "        def vjp(self, g, x, *, y):\n            return (g,)\n\n"
    wrong = WORKS.replace("        @classmethod", f"{rule}        @classmethod")
    ran = rlx("check", not_installed(rlx, wrong), "--quick", "--json")
    assert ran.code == 1
    assert next(row["section"] for row in ran.json["checks"] if row["verdict"] == "wrong") == "laws"
    assert any("finite_differences" in row["name"] for row in ran.json["checks"])


@pytest.mark.slow
def test_a_pass_that_depends_on_the_hash_seed_is_found(rlx) -> None:
    ran = rlx("check", not_installed(rlx, BY_ORDER), "--json")
    assert ran.code == 1
    wrong = [row for row in ran.json["checks"] if row["verdict"] == "wrong"]
    assert {row["section"] for row in wrong} == {"laws", "plans"}  # it changes results, too
    assert any("its program depend" in row["found"] for row in wrong if row["section"] == "plans")


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-backend.md"


def partial_backend(*, replaced: tuple[str, str] = ("", ""), kernels: str = "kernels") -> str:
    """The page's backend `slate`, whose table has rows for four ops.

    Args:
        replaced: A text of the page, and what stands there instead.
        kernels: The table's name.
    """
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    source = "\n".join(blocks[:3]).replace('Target("slate", kernels', f'Target("slate", {kernels}').replace(*replaced)
    return source + "\n@hookimpl\ndef rlx_backends():\n    return [BackendSpec('slate', Slate)]\n"


@pytest.mark.slow
def test_what_a_partial_backend_declines_is_noted_with_the_reasons_of_its_kernels(rlx) -> None:
    ran = rlx("check", not_installed(rlx, partial_backend()), "--quick", "--json")
    assert ran.code == 0, ran.out
    laws = {row["name"]: row for row in ran.json["checks"] if row["section"] == "laws"}
    assert laws["target slate"]["verdict"] == "ok"
    assert "programs declined" in laws["target slate"]["found"]
    assert laws["rlx.sort"]["verdict"] == "note"
    assert laws["rlx.sort"]["found"].startswith("declined: slate: nothing runs rlx.sort")
    assert any("takes f32, not" in row["found"] for row in laws.values())
    (layer,) = [row for row in ran.json["checks"] if row["name"] == "a layer on slate"]
    assert (layer["verdict"], layer["found"][:9]) == ("note", "declined:")


@pytest.mark.slow
def test_a_partial_backend_that_is_wrong_is_found(rlx) -> None:
    wrong = partial_backend(replaced=("np.sum(x, axis", "np.max(x, axis"))
    ran = rlx("check", not_installed(rlx, wrong), "--quick", "--json")
    assert ran.code == 1
    wrong = [row["name"] for row in ran.json["checks"] if row["verdict"] == "wrong"]
    assert "target slate" in wrong


@pytest.mark.slow
def test_a_backend_that_declines_everything_is_reported(rlx) -> None:
    nothing = partial_backend(kernels='KernelTable("slate", plugin="slate")')
    ran = rlx("check", not_installed(rlx, nothing), "--quick", "--json")
    assert ran.code == 1
    (row,) = [row for row in ran.json["checks"] if row["verdict"] == "wrong"]
    assert (row["section"], row["name"]) == ("laws", "target slate")
    assert row["found"].startswith("it declines everything")


def package_of(rlx, *, when: tuple[str, ...]) -> Package:
    """The plugin `kit` as if it were installed, waiting for some conditions."""
    (entry,) = [evolve(each, when=when, origin=PluginOrigin.INSTALLED) for each in rlx.entries if each.name == "kit"]
    session = CliSession(make_host=lambda policy: PluginHost([entry], policy=policy))
    return Package(entry, session.host.entries, session)


def test_what_is_for_others_must_be_there_when_they_need_it(rlx) -> None:
    rlx.install("kit", FOR_OTHERS)
    package = package_of(rlx, when=())
    claims = own_claims(package, package.host())
    found = {claim.kind: list(absence(package, claim)) for claim in claims}
    assert {kind: len(rows) for kind, rows in found.items()} == {"kernels": 1, "rules": 1}
    assert '"target.cpu" = ' in found["kernels"][0].mend
    assert '"domain.rlx" = ' in found["rules"][0].mend

    package = package_of(rlx, when=("target.cpu", "domain.rlx"))
    assert [row for claim in own_claims(package, package.host()) for row in absence(package, claim)] == []


def test_each_seed_that_breaks_off_is_reported_and_the_others_are_compared(rlx, monkeypatch) -> None:
    rlx.install("kit", WORKS)
    alike = {"plan": "p", "program": "q", "error": "", "declined": ""}
    answers = {
        "0": (0, {"halve": [alike], "layer": [alike]}, ""),
        "1": (1, None, "Traceback\nValueError: no such seed\n"),
        "2": (-6, None, "compiling"),
        "3": (0, {"halve": [alike], "layer": [{**alike, "program": "r"}]}, ""),
        "4": (0, None, ""),
    }

    def process(module: str, word: str, seed: str, **environment: str) -> subprocess.CompletedProcess[str]:
        code, answer, said = answers[environment["PYTHONHASHSEED"]]
        return subprocess.CompletedProcess([module], code, "" if answer is None else json.dumps(answer), said)

    monkeypatch.setattr(checking.package, "in_a_process", process)
    found = {row.name: row for row in checking.package.plans(package_of(rlx, when=()), map(int, answers))}
    broken = {name: row.found for name, row in found.items() if name.startswith("(seed")}
    assert broken == {
        "(seed 1)": "the run broke off: ValueError: no such seed",
        "(seed 2)": "the run broke off: ended by SIGABRT",
        "(seed 4)": "the run broke off: ended with exit code 0",
    }
    assert found["(seed 1)"].mend == "PYTHONHASHSEED=1 python -m rlx_core.testing.orders kit 1"
    assert found["layer"].verdict == "wrong"
    assert found["(all)"].found == "1 of 2 programs, each compiled 2 times, are alike"


def test_a_plugin_that_cannot_be_used_is_all_there_is_to_say(rlx, monkeypatch) -> None:
    monkeypatch.setattr(checking.package, "laws", None)
    rlx.install("kit", "raise ValueError('half installed')")
    ran = rlx("check", "kit", "--json")
    assert ran.code == 1
    (row,) = [row for row in ran.json["checks"] if row["verdict"] == "wrong"][:1]
    assert "half installed" in row["found"]
    assert {row["section"] for row in ran.json["checks"]} == {"plugin"}


def test_a_package_that_is_not_there_is_refused(rlx) -> None:
    rlx.install("kit", WORKS)
    ran = rlx("check", "kitt")
    assert ran.code == 2
    assert "did you mean `kit`?" in ran.err
    ran = rlx("check")
    assert ran.code == 2
    assert "there is no project in this folder" in ran.err


def test_conform_refuses_a_target_that_is_not_there(rlx) -> None:
    ran = rlx("conform", "cpuu")
    assert ran.code == 2
    assert "cpuu" in ran.err
