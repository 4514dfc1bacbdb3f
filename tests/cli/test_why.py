"""`rlx why`: provenance, conflicts, and the choice of kernels with all that was passed over."""

from __future__ import annotations

import importlib.util

import pytest

RIVAL = "@hookimpl\ndef rlx_ops(): return [OpSpec('acme.double', 'acme_things:Double')]"


def test_an_op_has_its_plugin_version_files_and_lines(acme) -> None:
    found = acme("why", "op", "double", "--json").json
    assert found["usable"] is True
    assert found["owner"]["distribution"] == "acme-rlx"
    assert found["owner"]["version"] == "1.0"
    assert found["owner"]["file"].endswith("acme_plugin.py")
    assert found["source"].endswith("acme_things.py:8")
    assert "acme (acme-rlx 1.0)" in acme("why", "op", "acme.double").out


def test_a_contested_op_names_everyone_who_claims_it_and_how_to_choose(acme) -> None:
    for name in ("one", "two"):
        acme.install(name, RIVAL.replace("acme.double", "shared.double"))
    found = acme("why", "op", "shared.double", "--json").json
    assert (found["usable"], found["owner"]) == (False, None)
    assert {each["plugin"] for each in found["claimed_by"]} == {"one", "two"}
    assert "[plugins.override]" in found["hint"]
    assert "2 plugins define this op" in acme("why", "op", "shared.double").out


def test_a_rule_that_does_not_load_is_shown_with_the_reason(acme) -> None:
    acme.install("ruler", "@hookimpl\ndef rlx_rules(): return [RuleSpec('acme.double', 'vjp', 'no_such_module:rule')]")
    assert (
        "No module named 'no_such_module'" in acme("why", "op", "acme.double", "--json").json["rules"]["vjp"]["fault"]
    )
    assert "left out: it does not load" in " ".join(acme("why", "op", "acme.double").out.split())


def test_an_override_is_shown_with_the_place_that_says_so(acme) -> None:
    acme.install("rival", RIVAL)
    (acme.place / "rlx.toml").write_text('[plugins.override]\n"acme.double" = "rival"\n')
    found = acme("why", "op", "double", "--json").json
    assert found["owner"]["plugin"] == "rival"
    assert [each["plugin"] for each in found["overrides"]] == ["acme"]
    assert found["overrides"][0]["said_in"].endswith("rlx.toml")


def test_an_op_of_a_plugin_that_failed_has_that_plugins_cause(broken) -> None:
    ran = broken("why", "op", "raises.op")
    assert ran.code == 2
    assert "ValueError: half installed" in ran.err
    assert "RLX_PLUGINS_BLOCK=raises" in ran.err


def test_a_pass_says_which_pipelines_use_it(acme) -> None:
    found = acme("why", "pass", "cse", "--json").json
    assert (found["name"], found["kind"]) == ("rlx.cse", "passes")
    assert any(place.startswith("rlx.inference: ") and "mir[" in place for place in found["used_in"])
    assert acme("why", "pass", "algebra", "--json").json["kind"] == "rulesets"
    assert "AttributeError" in acme("why", "pass", "acme.lost", "--json").json["fault"]
    assert acme("why", "pass", "legalise").code == 2


def kernel(rlx, *words: str):
    return rlx("why", "kernel", *words, "--target", "toy", "--json").json


def test_the_chosen_kernel_comes_with_those_that_would_have_been_next(acme) -> None:
    found = kernel(acme, "double")
    assert (found["answer"], found["kernel"], found["plugin"]) == ("native", "double_eight", "acme")
    assert found["less_preferred"] == ["double_any"]
    assert found["call"] == "Double(times=1) on f32[4, 8]"
    assert found["from_sample"] is True


def test_rejected_kernels_have_their_reasons_and_the_decomposition_its_own_kernels(acme) -> None:
    found = kernel(acme, "double", "--types", "f64[3, 7]")
    assert (found["answer"], found["can_run"]) == ("common-ir", True)
    assert found["rejected"] == [
        {"kernel": "double_eight", "reason": "takes f32, not f64"},
        {"kernel": "double_any", "reason": "needs a last axis of 8"},
    ]
    assert [(row["op"], row["kernel"]) for row in found["becomes"]] == [("rlx.add", "sums")]
    out = acme("why", "kernel", "double", "--types", "f64[3, 7]", "--target", "toy").out
    assert "no kernel; its decomposition runs instead" in out
    assert "double_any: needs a last axis of 8" in out


def test_an_op_that_nothing_can_run_is_said_so(acme) -> None:
    found = kernel(acme, "exp")
    assert (found["answer"], found["can_run"]) == ("unsupported", False)
    assert "nothing runs it" in acme("why", "kernel", "exp", "--target", "toy").out


def test_attributes_can_be_given(acme) -> None:
    assert kernel(acme, "double", "--attr", "times=3")["call"].startswith("Double(times=3)")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("double", "--attr", "tmies=3"), "did you mean `times`?"),
        (("double", "--types", "f32[4"), "f32[4"),
        (("duoble",), "did you mean `double`?"),
        (("double", "--types", "f32[4], f32[4]"), "takes 1 operand (x), not 2"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(acme, words, says) -> None:
    ran = acme("why", "kernel", *words, "--target", "toy")
    assert ran.code == 2
    assert says in ran.err


def test_an_op_alone_asks_for_its_kernel(acme) -> None:
    assert acme("why", "double", "--target", "toy").out == acme("why", "kernel", "double", "--target", "toy").out
    assert "did you mean `double`?" in acme("why", "duoble", "--target", "toy").err


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("rlx_cpu", "llvmlite")),
    reason="it asks for native kernels: rlx-cpu or llvmlite is not installed",
)
def test_a_kernel_of_a_lower_tier_comes_with_the_reasons_of_the_better_ones(rlx) -> None:
    def ask(*words: str):
        return rlx("--plugin", "cpu=rlx_cpu.plugin", "why", *words, "--json").json

    softmax = ask("softmax")
    assert softmax["tier"] == "native"
    assert (softmax["kernel"], softmax["not_better_because"]) == ("native_loop_rows[rlx.softmax]", None)
    assert ask("dense_solve", "--types", "f32[4,4], f32[4,1]")["tier"] == "native"
    for library in (
        ask("dense_solve", "--types", "f32[64,64], f32[64,1]"),
        ask("matmul", "--types", "c64[4,4], c64[4,4]"),
    ):
        assert (library["tier"], library["not_better_because"]) == ("library", None)
    assert ask("add", "--types", "c64[4,4], c64[4,4]")["tier"] == "native"
    assert ask("pow", "--types", "c64[4,4], c64[4,4]")["tier"] == "native"
    product = ask("prod", "--types", "c64[4,4]")
    assert product["tier"] == "numpy"
    assert "c64" in product["not_better_because"]
    out = rlx("--plugin", "cpu=rlx_cpu.plugin", "why", "view_as_real").out
    assert "numpy: no native kernel for it" in out
