"""Code for a device that is not here: it is printed, and does not run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

import rlx_core as rlx
from rlx_core.cli.main import app
from rlx_core.contributions import BackendSpec, OptionSpec
from rlx_core.device.device import Device
from rlx_core.errors import DeviceError, DeviceUnavailableError
from rlx_core.hooks import hookimpl
from rlx_core.pipeline.backend import Level
from rlx_core.plugins import PluginHost, default_host
from rlx_core.plugins.entry import given_entry
from rlx_core.testing.fake_device import FACTS, FakeBackend, fake_host

X = np.ones(3, np.float32)


class Nowhere(FakeBackend):
    """A target without a device."""

    name = "nowhere"
    usual = FACTS

    def found(self, options: Mapping[str, Any]) -> Sequence[Device]:
        raise DeviceUnavailableError("nowhere: there is no device")


class Unavailable:
    """Its plugin, which knows from the start that it is of no use."""

    def __init__(self, why: str | None) -> None:
        self.why = why

    @hookimpl
    def rlx_availability(self) -> str | None:
        return self.why

    @hookimpl
    def rlx_backends(self) -> list[BackendSpec]:
        return [BackendSpec("nowhere", Nowhere, summary="A device that nobody has.")]


@pytest.fixture(params=["no library", None])
def host(request: pytest.FixtureRequest) -> PluginHost:
    """A host with a target that lacks its library, and with one that lacks only the device."""
    return PluginHost([*default_host().entries, given_entry(Unavailable(request.param))])


def compiled(host: PluginHost, *words: str) -> Result:
    return CliRunner().invoke(app, ["compile", "--op", "exp f32[4]", *words], obj=lambda policy: host)


def test_the_code_is_printed_without_the_device(host: PluginHost) -> None:
    done = compiled(host, "--target", "nowhere", "--emit", "fake", "--json")
    assert done.exit_code == 0, done.output
    assert "exp" in json.loads(done.output)["text"]


def test_what_runs_an_op_is_told_without_the_device(host: PluginHost) -> None:
    words = ["why", "exp", "--target", "nowhere"]
    done = CliRunner().invoke(app, words, obj=lambda policy: host)
    assert done.exit_code == 0, done.output
    assert "rlx.exp on nowhere: loop" in done.output
    done = CliRunner().invoke(app, [*words[:-1], "nowhere:0"], obj=lambda policy: host)
    assert done.exit_code == 2
    assert "DeviceUnavailableError" in done.output


def test_a_report_still_needs_the_device(host: PluginHost) -> None:
    done = compiled(host, "--target", "nowhere")
    assert done.exit_code == 2
    assert "DeviceUnavailableError" in done.output


def test_its_programs_do_not_run(host: PluginHost) -> None:
    with pytest.raises(
        DeviceUnavailableError, match="nowhere:absent: programs for a device that is not here"
    ) as caught:
        rlx.jit(lambda x: x + x, target="nowhere:absent", host=host)(X)
    assert 'target="nowhere"' in str(caught.value)
    with pytest.raises(DeviceUnavailableError):
        rlx.device_put(X, "nowhere:absent", host=host)


def test_the_target_itself_is_as_unavailable_as_before(host: PluginHost) -> None:
    with pytest.raises(DeviceUnavailableError, match=r"nowhere: (there is no device|this target cannot be used here)"):
        rlx.jit(lambda x: x + x, target="nowhere", host=host)(X)


def test_a_target_that_prints_nothing_says_so() -> None:
    with pytest.raises(DeviceError, match="fake has nothing that is printed without a device"):
        rlx.jit(lambda x: x, target="fake:absent", host=fake_host())(X)


class Translating(Nowhere):
    """A target whose language has a compiler that needs no device."""

    below = (Level("assembly", "what its compiler makes"),)

    def translated(self, source: str, level: str, device: Device, options: Mapping[str, Any]) -> str:
        return f"{level} for {options['nowhere.arch'] or 'anything'}: {len(source)} characters"


class WithOption(Unavailable):
    @hookimpl
    def rlx_backends(self) -> list[BackendSpec]:
        return [BackendSpec("nowhere", Translating, summary="A device that nobody has.")]

    @hookimpl
    def rlx_options(self) -> list[OptionSpec]:
        return [OptionSpec("nowhere.arch", str, "", doc="What to compile for.")]


def test_levels_below_the_language_are_for_the_architecture_that_is_asked_for() -> None:
    host = PluginHost([*default_host().entries, given_entry(WithOption(None))])
    done = compiled(host, "--target", "nowhere", "--emit", "assembly", "--arch", "n9")
    assert done.exit_code == 0, done.output
    assert "assembly for n9: " in done.output
    assert "assembly for anything: " in compiled(host, "--target", "nowhere", "--emit", "assembly").output
