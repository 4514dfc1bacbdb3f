"""`rlx plan`: the plan's own text and JSON, and who said what."""

from __future__ import annotations


def test_the_default_pipeline_is_printed_with_options_and_hash(acme) -> None:
    out = acme("plan", "--target", "toy").out
    plan = acme("plan", "--target", "toy", "--json").json
    assert out.startswith(f"plan {plan['hash'][:12]}: pipeline inference for toy\n")
    assert "rlx.legalize" in [each["name"] for each in plan["passes"]]
    assert len(plan["written"]) == len(plan["passes"])
    assert plan["said"] == {"cache.directory": "RLX_CACHE_DIR", "target": "the command line"}


def test_a_configuration_is_read_and_its_settings_are_shown_with_their_file(acme) -> None:
    (acme.place / "rlx.toml").write_text(
        'target = "toy"\n[dispatch]\nrounds = 4\n[pipeline.short]\nhir = ["lower-hir"]\nmir = ["legalize"]\n'
    )
    plan = acme("plan", "--pipeline", "short", "--json").json
    assert [each["name"] for each in plan["passes"]] == ["rlx.lower-hir", "rlx.legalize"]
    assert plan["dispatch"]["rounds"] == 4
    assert plan["said"]["dispatch.rounds"].endswith("rlx.toml")
    assert plan["said"]["use"] == "the command line"
    assert "settings that are not defaults" in acme("plan").out


def test_the_hash_is_that_of_the_configuration_and_not_of_its_place(acme) -> None:
    text = 'target = "toy"\n[dispatch]\nrounds = 4\n'
    for folder in ("a", "b"):
        (acme.place / folder).mkdir()
        (acme.place / folder / "rlx.toml").write_text(text)
    hashes = {acme("plan", "--config", f"{folder}/rlx.toml", "--json").json["hash"] for folder in ("a", "b")}
    assert len(hashes) == 1
    assert acme("plan", "--target", "toy", "--json").json["hash"] not in hashes


def test_a_wrong_key_is_an_error_with_the_file_and_the_nearest_key(acme) -> None:
    (acme.place / "rlx.toml").write_text("[dispatch]\nround = 4\n")
    ran = acme("plan", "--target", "toy")
    assert ran.code == 2
    assert "dispatch.round: unknown key" in ran.err
    assert "rlx.toml" in ran.err
    assert "did you mean `rounds`?" in ran.err


def test_an_unknown_target_is_an_error_with_the_known_ones(acme) -> None:
    ran = acme("plan", "--target", "toi")
    assert ran.code == 2
    assert "did you mean `toy`?" in ran.err
