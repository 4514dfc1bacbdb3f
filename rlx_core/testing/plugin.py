"""The pytest plugin: options that choose ops and a backend, and the cases that each law is asked of.

It is loaded through the `pytest11` entry point of rlx-core and does nothing until a test class derives from `EveryOp`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rlx_core.errors import RlxError

__all__ = ["pytest_addoption", "pytest_generate_tests"]

pytest.register_assert_rewrite("rlx_core.testing.laws")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rlx", "the laws of rlx")
    group.addoption(
        "--rlx-plugin", action="append", default=[], metavar="NAME", help="try the ops of this plugin or module"
    )
    group.addoption("--rlx-op", action="append", default=[], metavar="NAME", help="try only this op")
    group.addoption(
        "--rlx-backend",
        action="append",
        default=[],
        metavar="TARGET",
        help="also compare a backend with the interpreter: a target's name, or module:function of (graph, arrays)",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.cls is None or not {"program", "rejected"} & set(metafunc.fixturenames):
        return
    from rlx_core.testing import cases, laws  # imports every op, which runs without laws must not pay for

    if not issubclass(metafunc.cls, laws.EveryOp):
        return
    try:
        ops = chosen_ops(metafunc.config, metafunc.cls.ops)
        if "rejected" in metafunc.fixturenames:
            metafunc.parametrize("rejected", cases.rejections(ops), ids=str)
        if "op_table" in metafunc.fixturenames:
            metafunc.parametrize("op_table", [op_table(ops)], ids=[""])
        programs = cases.programs(tuple(ops))
        if "backend" in metafunc.fixturenames:
            targets = metafunc.config.getoption("--rlx-backend")
            if not targets:
                not_asked(metafunc, {"program", "backend"}, "no backend was named; --rlx-backend=TARGET asks one")
                return
            metafunc.parametrize("backend", [runner(t) for t in targets], ids=targets)
        if "program" in metafunc.fixturenames:
            is_about: Callable[[Any], bool] = getattr(metafunc.function, "is_about", lambda program: True)
            asked = [p for p in programs if is_about(p)]
            if not asked:
                not_asked(metafunc, {"program"}, "no sample of these ops is one that this law is about")
                return
            metafunc.parametrize("program", asked, ids=str)
    except RlxError as error:
        raise pytest.UsageError(str(error)) from error


def not_asked(metafunc: pytest.Metafunc, fixtures: set[str], reason: str) -> None:
    """Skip a law once, with its reason."""
    names = sorted(fixtures & set(metafunc.fixturenames))
    nothing = pytest.param(*(None for _ in names), marks=pytest.mark.skip(reason=reason), id="nothing")
    metafunc.parametrize(names, [nothing])


def chosen_ops(config: pytest.Config, own: Sequence[Any] | None) -> list[Any]:
    """The ops under test: those of the class, else those of the plugins named, else the standard ones."""
    from rlx_core.ops import standard_ops
    from rlx_core.testing.cases import ops_of, select

    plugins: list[str] = config.getoption("--rlx-plugin")
    if own is not None:
        ops = list(own)
    elif plugins:
        ops = [op for plugin in plugins for op in ops_of(plugin)]
    else:
        ops = list(standard_ops())
    return select(ops, config.getoption("--rlx-op"))


def op_table(ops: Sequence[Any]) -> dict[str, Any]:
    """Op name → class, for reading texts back: nested graphs of the ops under test may hold standard ones."""
    from rlx_core.ops import standard_ops

    return {op.name: op for op in (*standard_ops(), *ops)}


def runner(target: str) -> Any:
    """The function that runs a graph on a backend.

    Raises:
        UsageError: The module or function that was named does not exist.
    """
    if "." not in target and ":" not in target:
        return on_target(target)
    module, _, name = target.partition(":")
    try:
        return getattr(importlib.import_module(module), name or "run")
    except (ImportError, AttributeError) as error:
        raise pytest.UsageError(f"--rlx-backend {target}: {error}") from error


def on_target(target: str) -> Any:
    """The function that compiles a graph for a target by its name, passes and all, and runs it once."""
    from rlx_core.pipeline.compile import compile_graph
    from rlx_core.runtime.executable import Executable

    def run(graph: Any, arrays: Sequence[Any]) -> Sequence[Any]:
        executable = Executable(compile_graph(graph, target=target))
        return executable.run(dict(zip(graph.input_types, arrays, strict=True)))

    return run
