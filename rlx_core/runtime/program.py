"""Compilation of existing programs (graphs and modules); `compiled_function.py` compiles traced functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlx_core.errors import WrongInputCountError
from rlx_core.ir.bind import bind, named_binding
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.graph import Graph
from rlx_core.ir.module import IrStage, Module
from rlx_core.pipeline.backend import Outputs
from rlx_core.pipeline.compile import Config, compile_graph
from rlx_core.plugins import PluginHost
from rlx_core.runtime.cache import default_cache
from rlx_core.runtime.executable import Executable


def compile_program(
    program: Graph | Module,
    args: Sequence[Any] = (),
    *,
    target: str | None = None,
    config: Config = None,
    host: PluginHost | None = None,
    binding: DimBinding | Mapping[str, int] | None = None,
    donations: Mapping[str, int | None] | None = None,
    outputs: Outputs | None = None,
) -> Executable:
    """The executable of a graph or of a HIR or MIR module, whose own fusion policy holds unless the configuration has one.

    Raises:
        WrongInputCountError: There are arguments; a program has its types in it.
        WrongStageError: The module is LIR, whose plan is made already.
        UnknownNameError, GuardError, ShapeError: From the binding.
    """
    if args:
        raise WrongInputCountError(
            f"compile: a {type(program).__name__} takes no arguments, not {len(args)}",
            hint="give its executable the parameters with set_params, and the inputs when it is called",
        )
    graph, stored_options = (program, {}) if isinstance(program, Graph) else _opened(program)
    if binding is not None:
        graph, _ = bind(graph, binding if isinstance(binding, DimBinding) else named_binding(graph, binding))
    # A file, or a configuration that is made already, has a policy.
    settings = (
        stored_options | dict(config or {})
        if stored_options and (config is None or isinstance(config, Mapping))
        else config
    )
    compiled = compile_graph(graph, target=target, config=settings, host=host, donations=donations, cache=default_cache)
    return Executable(compiled, outputs=outputs, traced=graph)


def _opened(module: Module) -> tuple[Graph, dict[str, Any]]:
    """Return the graph of a HIR or MIR module, and the arguments for compiling it."""
    if module.stage is IrStage.HIR:
        return module.hir, {"fusion.policy": module.policy}
    return module.mir, {}
