"""What is remembered between compilations: nothing is read or resolved again that did not change, and no change is missed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.contributions import OptionSpec
from rlx_core.hooks import hookimpl
from rlx_core.pipeline.compile import set_up
from rlx_core.pipeline.config.records import Configuration
from rlx_core.pipeline.forward import resolved
from rlx_core.pipeline.set_up import activate_pipeline
from rlx_core.plugins import PluginEntry, PluginHost, PluginPolicy, default_host

pytest.importorskip("rlx_cpu", reason="it compiles for the CPU: rlx-cpu is not installed")

X = np.float32([1, 2, 3])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory without a configuration."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found() -> Configuration:
    return set_up(None, None)[1]


def test_a_configuration_that_did_not_change_is_the_same_object(folder: Path) -> None:
    assert found() is found()
    (folder / "rlx.toml").write_text("[dispatch]\nrounds = 4\n")
    assert found() is found()


def test_every_change_is_noticed_at_once(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found().dispatch.rounds == 16
    (folder / "rlx.toml").write_text("[dispatch]\nrounds = 4\n")
    assert found().dispatch.rounds == 4
    (folder / "rlx.toml").write_text("[dispatch]\nrounds = 12\n")
    assert found().dispatch.rounds == 12
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    assert found().dispatch.rounds == 12
    (folder / "below" / "pyproject.toml").write_text("[tool.rlx.dispatch]\nrounds = 3\n")
    assert found().dispatch.rounds == 3
    monkeypatch.setenv("RLX_KERNEL_DISPATCH", "common")
    assert found().dispatch.policy == "force-common"
    monkeypatch.setenv("RLX_KERNEL_DISPATCH", "native")
    assert found().dispatch.policy == "prefer-native"
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert found().dispatch.rounds == 16
    monkeypatch.chdir(folder)
    (folder / "rlx.toml").unlink()
    assert found().dispatch.rounds == 16


def test_values_that_only_compare_equal_are_a_change(folder: Path) -> None:
    (folder / "rlx.toml").write_text("verify = true\n")
    assert found().verify is True
    (folder / "rlx.toml").write_text("verify = 1\n")
    with pytest.raises(rlx.errors.ConfigError, match="verify"):
        found()


class Extra:
    """A plugin with an option."""

    @hookimpl
    def rlx_options(self) -> list[OptionSpec]:
        return [OptionSpec("extra.level", int, 3, "An option that only this plugin has.", env="EXTRA_LEVEL")]


def test_options_of_other_plugins_and_their_variables_are_a_change(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = PluginHost([PluginEntry("extra", plugin=Extra())], policy=PluginPolicy.of(enable=["extra"]))
    assert "extra.level" not in found().options
    assert set_up(None, host)[1].options["extra.level"] == 3
    for level in (5, 6):
        monkeypatch.setenv("EXTRA_LEVEL", str(level))
        assert set_up(None, host)[1].options["extra.level"] == level
    assert "extra.level" not in found().options


def test_a_fresh_function_follows_a_changed_configuration(folder: Path) -> None:
    def fresh() -> Any:
        made = rlx.jit(lambda x: rlx.exp(x) * 2 + 1)
        made(X)
        return made.report

    before = fresh()
    (folder / "rlx.toml").write_text("[fusion]\nenabled = false\n")
    unfused = fresh()
    (folder / "rlx.toml").unlink()

    assert len(unfused.kernels) > len(before.kernels)
    assert fresh().kernels == before.kernels


def test_passes_before_differentiation_are_resolved_once_for_a_configuration(folder: Path) -> None:
    def passes() -> tuple[Any, ...]:
        return resolved(found(), activate_pipeline(default_host(), found()))

    before = passes()
    assert before
    assert passes() is before
    (folder / "rlx.toml").write_text("[fusion]\nenabled = false\n")
    assert len(passes()) < len(before)
