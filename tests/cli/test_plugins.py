"""`rlx plugins`: the state of every plugin, however many are broken."""

from __future__ import annotations

KEYS = {
    "name", "state", "reason", "where", "mend", "distribution", "version", "file", "provides", "contested", "overrides",
    "overridden", "faults",
}  # fmt: skip


def test_every_kind_of_broken_plugin_is_a_row_with_its_reason(broken, kinds) -> None:
    ran = broken("plugins", "--json")
    rows = {row["name"]: row for row in ran.json["plugins"]}
    assert (ran.code, set(rows)) == (0, {"rlx", "acme", *kinds})
    for name, (_, _, state, reason) in kinds.items():
        assert set(rows[name]) == KEYS
        assert (rows[name]["state"], reason in rows[name]["reason"]) == (state, True), name
        assert (rows[name]["mend"] is None) == (state == "unavailable"), name


def test_what_a_plugin_provides_is_listed_by_kind(acme) -> None:
    rows = {row["name"]: row for row in acme("plugins", "--json").json["plugins"]}
    assert rows["acme"]["provides"] == {"ops": ["acme.double"], "passes": ["acme.lost"], "backends": ["toy"]}


def test_no_plugin_is_imported_when_none_may_be(broken) -> None:
    rows = {row["name"]: row["state"] for row in broken("plugins", "--no-load", "--json").json["plugins"]}
    assert rows["raises"] == rows["acme"] == "idle"
    assert rows["newer"] == "incompatible"  # known from the metadata


def test_the_listing_fits_80_columns_and_says_everything(broken, kinds) -> None:
    ran = broken("plugins")
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert not any(line != line.rstrip() for line in lines)
    assert any("acme-rlx 1.0         1 op, 1 pass, 1 backend" in line for line in lines)
    words = " ".join(ran.out.split())
    for name, (_, _, state, reason) in kinds.items():
        assert f"{name} ({state})" in words
        assert reason in words


def test_overrides_are_shown_on_both_sides(rlx) -> None:
    source = "@hookimpl\ndef rlx_ops(): return [OpSpec('shared.op', 'math:exp')]"
    rlx.install("acme", source)
    rlx.install("rival", source)
    rlx("plugins", "--no-load")
    contested = {row["name"]: row["contested"] for row in rlx("plugins", "--json").json["plugins"]}
    assert (contested["acme"], contested["rival"]) == (["shared.op"], ["shared.op"])
    (rlx.place / "rlx.toml").write_text('[plugins.override]\n"shared.op" = "rival"\n')
    rows = {row["name"]: row for row in rlx("plugins", "--json").json["plugins"]}
    assert (rows["acme"]["state"], rows["acme"]["overridden"]) == ("shadowed", {"shared.op": "rival"})
    assert rows["rival"]["overrides"] == {"shared.op": "acme"}
    words = " ".join(rlx("plugins").out.split())
    assert "shared.op is overridden by rival" in words
    assert "overrides shared.op of acme" in words


def test_a_misspelt_block_is_noted(rlx) -> None:
    assert "note: --block: no plugin is called `acne`" in rlx("--block", "acne", "plugins").out


def test_a_plugin_on_the_command_line_that_there_is_none_of_is_refused(rlx) -> None:
    rlx.install("acme", "")
    ran = rlx("--plugin", "acmee", "plugins")
    assert (ran.code, "did you mean `acme`?" in ran.err) == (2, True)
    assert rlx("--plugin", "gone.py", "plugins").code == 2


def test_faults_of_contributions_are_in_the_row_of_their_plugin(acme) -> None:
    rows = {row["name"]: row for row in acme("plugins", "--json").json["plugins"]}
    (fault,) = rows["acme"]["faults"]
    assert (fault["kind"], fault["name"], fault["wrong"]) == ("passes", "acme.lost", True)
    assert "it does not load (AttributeError" in fault["reason"]
    words = " ".join(acme("plugins").out.split())
    assert "1 cannot be used" in words
    assert "left out pass acme.lost" in words
    assert "RLX_PLUGINS_BLOCK=acme" in words
