"""Plugins are told what a compile does, and cannot break it."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_cpu.plugin
from rlx_core.contributions import EventSpec
from rlx_core.hooks import hookimpl
from rlx_core.ir.graph import Builder
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp
from rlx_core.pipeline.compile import compile_graph
from rlx_core.plugins import PluginHost

SEEN: list[tuple[str, str]] = []


def listen(event):
    SEEN.append((event.event, event.facts.get("name", event.program)))


def fail(event):
    raise RuntimeError("a listener's own fault")


class Listeners:
    def __init__(self, **listeners):
        self.listeners = listeners

    @hookimpl
    def rlx_compile_events(self):
        return [EventSpec(event.replace("_", "-"), function) for event, function in self.listeners.items()]


def program():
    builder = Builder("small")
    return builder.finish([exp(builder.input("x", spec("f32[3]")))])


def compiled_with(plugin):
    host = PluginHost([rlx_cpu.plugin, plugin])
    host.activate_all()
    return compile_graph(program(), host=host)


def test_a_listener_hears_the_start_every_pass_and_the_end():
    SEEN.clear()

    compiled_with(Listeners(compile_start=listen, pass_end=listen, compile_end=listen))

    assert SEEN[0] == ("compile-start", "small")
    assert ("pass-end", "rlx.legalize") in SEEN
    assert SEEN[-1] == ("compile-end", "small")


def test_a_listener_that_raises_is_named_and_the_compile_goes_on():
    with pytest.warns(RuntimeWarning, match=r"listener to compile-start raised RuntimeError"):
        compiled = compiled_with(Listeners(compile_start=fail))

    result = compiled.program_for(compiled.lir).run([np.zeros(3, np.float32)])
    np.testing.assert_array_equal(result[0], np.ones(3))
