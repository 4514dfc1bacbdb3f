"""Programs on the recording device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import define, field

import rlx_core as rlx
from rlx_core.plugins import PluginHost
from rlx_core.testing.fake_device import FACTS, FakeDriver, fake_host


@define
class Bench:
    """A host with the fake device, and its driver once that is open."""

    facts: Any = FACTS
    drivers: list[FakeDriver] = field(factory=list)
    host: PluginHost = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.host = fake_host(1, facts=self.facts, drivers=self.drivers)

    @property
    def driver(self) -> FakeDriver:
        return self.drivers[0]

    def jit(self, function: Callable[..., Any], **options: Any) -> Any:
        return rlx.jit(function, target="fake", host=self.host, **options)

    def compile(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return rlx.compile(function, *args, target="fake", host=self.host, **options)

    def put(self, x: Any) -> Any:
        return rlx.device_put(x, "fake:0", host=self.host)

    def during(self, call: Callable[[], Any]) -> dict[str, int]:
        """How often the device was asked for what, while a call went on."""
        before = len(self.driver.records)
        call()
        words = [word for word, _ in self.driver.records[before:]]
        return {word: words.count(word) for word in dict.fromkeys(words)}


@pytest.fixture
def bench() -> Bench:
    return Bench()
