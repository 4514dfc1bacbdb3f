"""`rlx doctor`: everything that can be wrong, each with what mends it, and 1 as the exit code."""

from __future__ import annotations

import os

import pytest

KEYS = {"section", "name", "verdict", "found", "mend"}


def checks(rlx, *words: str) -> dict[tuple[str, str], dict]:
    return {(each["section"], each["name"]): each for each in rlx(*words, "doctor", "--json").json["checks"]}


def test_a_sound_installation_has_nothing_wrong(sound) -> None:
    acme = sound
    ran = acme("doctor")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "Nothing is wrong.")
    found = acme("doctor", "--json").json
    assert found["ok"] is True
    assert all(set(each) == KEYS for each in found["checks"])
    assert checks(acme)["targets", "toy"]["found"] == "a toy"


def test_every_broken_plugin_is_found_with_what_mends_it(broken, kinds) -> None:
    ran = broken("doctor")
    assert ran.code == 1
    assert max(map(len, ran.out.splitlines())) <= 80
    found = checks(broken)
    for name, (_, _, state, reason) in kinds.items():
        check = found["plugins", name]
        assert check["verdict"] == ("note" if state == "unavailable" else "wrong"), name
        assert reason in check["found"], name
        assert (check["mend"] is None) == (state == "unavailable"), name
    assert found["targets", "toy"]["verdict"] == "ok"
    assert found["targets", "nodriver"]["found"] == "no driver"


def test_without_a_backend_programs_are_interpreted_and_the_remedy_is_a_package(rlx) -> None:
    check = checks(rlx)["targets", "(none)"]
    assert check["verdict"] == "wrong"
    assert "interpreted" in check["found"]
    assert "pip install rlx-cpu" in check["mend"]


def test_a_backend_that_raises_is_wrong_and_not_the_end(rlx) -> None:
    rlx.install("bad", "@hookimpl\ndef rlx_backends(): return [BackendSpec('bad', 'math:pi')]")
    found = checks(rlx)
    assert found["targets", "bad"]["verdict"] == "wrong"
    assert ("cache", "directory") in found


def test_a_contested_name_is_wrong_and_says_how_to_choose(acme) -> None:
    for name in ("one", "two"):
        acme.install(name, "@hookimpl\ndef rlx_ops(): return [OpSpec('shared.double', 'math:exp')]")
    check = checks(acme)["plugins", "one"]
    assert check["verdict"] == "wrong"
    assert '[plugins.override] "shared.double" = "one"' in check["mend"]


def test_a_contribution_that_does_not_load_is_wrong_with_its_owner_and_what_mends_it(acme) -> None:
    ran = acme("doctor")
    assert (ran.code, "Nothing is wrong" in ran.out) == (1, False)
    check = checks(acme)["contributions", "acme"]
    assert check["verdict"] == "wrong"
    assert "pass acme.lost, of acme-rlx 1.0: it does not load (AttributeError" in check["found"]
    assert "python -m pip install --upgrade acme-rlx" in check["mend"]


def test_a_command_that_is_never_reached_is_noted(acme) -> None:
    acme.install("rival", "@hookimpl\ndef rlx_commands(): return [CommandSpec('plan', 'math:exp')]")
    rows = acme("doctor", "--json").json["checks"]
    assert any(r["name"] == "rival" and "its command `plan` is never reached" in r["found"] for r in rows)


def test_a_variable_that_means_nothing_is_noted_with_the_nearest(acme, monkeypatch) -> None:
    monkeypatch.setenv("RLX_VERBOS", "1")
    check = checks(acme)["environment", "RLX_VERBOS"]
    assert (check["verdict"], "did you mean `RLX_VERBOSE`?" in check["found"]) == ("note", True)
    assert checks(acme)["environment", "RLX_CACHE_DIR"]["verdict"] == "ok"


def test_a_variable_that_cannot_be_read_is_wrong(acme, monkeypatch) -> None:
    monkeypatch.setenv("RLX_KERNEL_DISPATCH", "many")
    assert checks(acme)["environment", "RLX_KERNEL_DISPATCH"]["verdict"] == "wrong"


@pytest.mark.skipif(os.name != "posix", reason="other systems have no such modes")
def test_a_cache_that_is_open_to_others_is_wrong(acme) -> None:
    directory = acme.place / "cache"
    directory.mkdir(mode=0o700)
    assert "owner only; 0 files" in checks(acme)["cache", "directory"]["found"]
    directory.chmod(0o755)
    check = checks(acme)["cache", "directory"]
    assert (check["verdict"], check["mend"]) == ("wrong", f"chmod 700 {directory}")


def test_a_cache_that_is_a_file_is_wrong(acme) -> None:
    (acme.place / "cache").write_text("")
    assert "is a file" in checks(acme)["cache", "directory"]["found"]


@pytest.mark.parametrize("text", ["[plugins\n", "[plugins]\nblok = ['acme']\n", "plugins = 3\n"])
def test_no_plugin_is_imported_while_the_configuration_that_may_block_it_cannot_be_read(acme, text) -> None:
    acme.install("raises", "raise AssertionError('imported')")
    (acme.place / "rlx.toml").write_text(text)
    found = checks(acme)
    assert found["configuration", "file"]["verdict"] == "wrong"
    assert "rlx.toml" in found["configuration", "file"]["found"]
    assert found["plugins", "raises"]["found"].startswith("idle")
    assert checks(acme, "--block", "raises")["plugins", "raises"]["found"].startswith("blocked")
    assert acme("plugins").code == 2


def test_other_faults_of_the_configuration_are_found_too(acme) -> None:
    (acme.place / "rlx.toml").write_text("[memory]\nalignment = 3\n")
    check = checks(acme)["configuration", "file"]
    assert (check["verdict"], "power of two" in check["found"]) == ("wrong", True)
