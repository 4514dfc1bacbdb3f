"""The passes that a configuration runs on a function before it is differentiated; see `rlx_core.transforms.forward`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from rlx_core.ir.graph import Graph
from rlx_core.pipeline.compile import Config, set_up
from rlx_core.pipeline.config.records import Configuration
from rlx_core.pipeline.set_up import activate_pipeline
from rlx_core.plugins import PluginHost, Registry
from rlx_core.transforms.forward import Prepare, preparing, using

if TYPE_CHECKING:
    from rlx_core.passes.engine.base import Pass


@contextmanager
def transforming_for(config: Config, host: PluginHost | None) -> Iterator[None]:
    """Functions that are transformed inside the block are so under a configuration, with its plugins' rules; it is read
    when the first one comes."""
    load = cache(lambda: set_up(config, host))
    with preparing(prepare_with(load)), using(lambda: load()[0]):
        yield


def prepare_with(load: Callable[[], tuple[PluginHost, Configuration]]) -> Prepare:
    """Return the passes on a function before it is differentiated."""

    @cache
    def passes() -> tuple[Pass, ...]:
        plugins, configuration = load()
        return resolved(configuration, activate_pipeline(plugins, configuration))

    def prepare(graph: Graph) -> Graph:
        from rlx_core.passes.engine.base import Context  # here, as below: few programs are differentiated
        from rlx_core.passes.engine.runner import run_one

        # No target: the recognised ops are mathematics. A target without a kernel for one decomposes it again.
        for each in passes():
            graph = run_one(each, graph, Context()).graph
        return graph

    return prepare


def resolved(configuration: Configuration, registry: Registry) -> tuple[Pass, ...]:
    """The passes, resolved again for another configuration, or other plugins, than the latest."""
    for known, known_registry, passes in _latest:
        if known_registry is registry and known is configuration:
            return passes
    from rlx_core.pipeline.plan import forward_passes  # here, because few programs are differentiated

    chosen_passes = forward_passes(configuration, registry)
    _latest[:] = [(configuration, registry, chosen_passes)]
    return chosen_passes


_latest: list[tuple[Configuration, Registry, tuple[Pass, ...]]] = []
