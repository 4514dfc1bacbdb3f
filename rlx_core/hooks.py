"""Every hook a plugin can implement: one sentence each, and when it is called.

A plugin is a module (or any object) whose functions carry `@hookimpl` and one of the names below. All hooks
are declarative: they take no arguments and return records of `rlx_core.contributions` (a list, a tuple, a
generator, or `None`). Each is called once, when the plugin is activated, and its return value is frozen into the registry; no
hook runs while a program is traced, transformed or executed. A function whose name begins with `rlx_` is a hook, so that a
misspelt one is noticed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pluggy

from rlx_core import __version__
from rlx_core.contributions import (
    BackendSpec,
    BlockSpec,
    CommandSpec,
    EventSpec,
    ExporterSpec,
    FunctionSpec,
    ImporterSpec,
    KernelSpec,
    LegalizationSpec,
    OpFamily,
    OpSpec,
    OptionSpec,
    PassSpec,
    PipelineSpec,
    RuleSetSpec,
    RuleSpec,
    SchemeSpec,
)

__all__ = ["API_VERSION", "HOOKS", "PREFIX", "PROJECT", "hookimpl", "hookspec"]

API_VERSION: Final = __version__  # rlx-core's version, which a plugin's requirement on it must include
PROJECT: Final = "rlx"
PREFIX: Final = "rlx_"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

# mypy: disable-error-code="empty-body"


@hookspec
def rlx_availability() -> str | None:
    """Why this plugin's device is out of reach (hardware, driver, library), or `None`; called first."""


@hookspec
def rlx_ops() -> Iterable[OpSpec | OpFamily | type]:
    """Ops: classes, lazy records of classes, or families; looked up when a program first names one."""


@hookspec
def rlx_rules() -> Iterable[RuleSpec]:
    """Rules for ops that exist already; looked up when a transformation meets the op."""


@hookspec
def rlx_passes() -> Iterable[PassSpec]:
    """Passes, extensions of the HIR among them; looked up when a pipeline that lists them is resolved."""


@hookspec
def rlx_rulesets() -> Iterable[RuleSetSpec]:
    """Sets of rewrite rules; looked up when a pass that applies them is built."""


@hookspec
def rlx_legalizations() -> Iterable[LegalizationSpec]:
    """Tables that make nodes acceptable to a target; read when a program is legalized for it."""


@hookspec
def rlx_backends() -> Iterable[BackendSpec]:
    """Backends by target; loaded when the target is first compiled for."""


@hookspec
def rlx_kernels() -> Iterable[KernelSpec]:
    """Kernels for any target and any op, one's own or another's; loaded with the target's backend."""


@hookspec
def rlx_blocks() -> Iterable[BlockSpec]:
    """HIR blocks; looked up when a model builder first uses one."""


@hookspec
def rlx_schemes() -> Iterable[SchemeSpec]:
    """Schemes of quantised weights; looked up when an array is quantised or a file with such tensors is read."""


@hookspec
def rlx_importers() -> Iterable[ImporterSpec]:
    """Readers of model files; chosen by suffix when a file is opened."""


@hookspec
def rlx_exporters() -> Iterable[ExporterSpec]:
    """Writers of model files; chosen by suffix when a module is saved."""


@hookspec
def rlx_pipelines() -> Iterable[PipelineSpec]:
    """Named pipelines; looked up when a configuration extends one."""


@hookspec
def rlx_options() -> Iterable[OptionSpec]:
    """Configuration options; read when a configuration is validated."""


@hookspec
def rlx_commands() -> Iterable[CommandSpec]:
    """Commands of the `rlx` program; loaded when one is run."""


@hookspec
def rlx_functions() -> Iterable[FunctionSpec]:
    """Functions that users find as attributes of `rlx_core`; loaded when one is first named."""


@hookspec
def rlx_compile_events() -> Iterable[EventSpec]:
    """Listeners to compile events; called at the start and the end of a compilation and of each pass."""


HOOKS: Final = {
    "rlx_ops": "ops",
    "rlx_rules": "rules",
    "rlx_passes": "passes",
    "rlx_rulesets": "rulesets",
    "rlx_legalizations": "legalizations",
    "rlx_backends": "backends",
    "rlx_kernels": "kernels",
    "rlx_blocks": "blocks",
    "rlx_schemes": "schemes",
    "rlx_importers": "importers",
    "rlx_exporters": "exporters",
    "rlx_pipelines": "pipelines",
    "rlx_options": "options",
    "rlx_commands": "commands",
    "rlx_functions": "functions",
    "rlx_compile_events": "events",
}
"""The hooks that contribute records, and the kind of each, in the order in which they are called."""
