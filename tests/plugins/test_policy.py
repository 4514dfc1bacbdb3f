"""Blocking, allowing, enabling: who said it, what it means, and what a misspelt word does."""

from __future__ import annotations

import pytest

from rlx_core.errors import PluginError
from rlx_core.pipeline.config.reading import read_sources
from rlx_core.plugins import PluginHost, PluginOrigin, PluginPolicy, State


@pytest.fixture
def three(make):
    """rlx's own plugin, and two of others."""
    return [
        make.entry("rlx", make.ops("rlx.op"), origin=PluginOrigin.BUILTIN, distribution="rlx-core"),
        make.entry("acme", make.ops("acme.op")),
        make.entry("other", make.ops("other.op"), distribution="Strange_Name"),
    ]


def states(entries, policy):
    return {row.name: row.state.value for row in PluginHost(entries, policy=policy).survey()}


@pytest.mark.parametrize("word", ["acme", "ac*", "acme-rlx", "Acme_RLX"])
def test_a_plugin_is_blocked_by_its_name_its_distribution_or_a_pattern(three, word):
    policy = PluginPolicy.from_environment({"RLX_PLUGINS_BLOCK": word})

    assert states(three, policy) == {"rlx": "active", "acme": "blocked", "other": "active"}


def test_everything_but_rlx_itself_can_be_blocked_at_once(three):
    """The way out when something installed cannot even be listed."""
    policy = PluginPolicy.from_environment({"RLX_PLUGINS_BLOCK": "*"})

    assert states(three, policy) == {"rlx": "active", "acme": "blocked", "other": "blocked"}


def test_only_what_is_allowed_is_used(three):
    policy = PluginPolicy.from_environment({"RLX_PLUGINS_ALLOW": "other, absent"})

    assert states(three, policy) == {"rlx": "active", "acme": "blocked", "other": "active"}


def test_block_wins_over_allow_and_every_source_counts(three):
    policy = PluginPolicy.of(allow=["acme", "other"]) + PluginPolicy.of(block=["acme"], source="--block")
    rows = {row.name: row for row in PluginHost(three, policy=policy).survey()}

    assert rows["acme"].reason == "blocked by --block"
    assert rows["acme"].mend == "take `acme` out of --block"
    assert rows["other"].state is State.ACTIVE


def test_asking_for_what_is_blocked_says_who_blocked_it(three):
    host = PluginHost(three, policy=PluginPolicy.from_environment({"RLX_PLUGINS_BLOCK": "acme"}))

    with pytest.raises(PluginError, match=r"acme\.op: its plugin acme is blocked") as caught:
        host.require("ops", "acme.op")

    assert "blocked by RLX_PLUGINS_BLOCK" in str(caught.value)


def test_a_word_that_means_nobody_is_noted(three):
    host = PluginHost(three, policy=PluginPolicy.from_environment({"RLX_PLUGINS_BLOCK": "acne,acme"}))

    assert host.notes == ("RLX_PLUGINS_BLOCK: no plugin is called `acne`; did you mean `acme`?",)


def test_enabling_what_is_not_installed_is_shown_and_stops_nothing(three):
    host = PluginHost(three, policy=PluginPolicy.of(enable=["acmee"], source="--plugin"))
    row = next(row for row in host.survey() if row.name == "acmee")

    assert row.state is State.FAILED
    assert "--plugin enables it, and no plugin of this name is installed; did you mean `acme`?" in row.reason
    assert row.mend == "install it, or name the file or the module that it is in"
    assert host.require("ops", "acme.op")


def test_a_file_in_a_configuration_lies_beside_it(tmp_path):
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "rlx.toml").write_text('[plugins]\nenable = ["mine.py", "name=mine.py"]\n')
    policy = read_sources(tmp_path / "rlx.toml").plugins().policy("rlx.toml")
    host = PluginHost([], policy=policy, builtin=False)

    assert {row.name: row.state for row in host.survey()} == {"mine": State.ACTIVE, "name": State.ACTIVE}
