"""`rlx plan`: the pipeline that the current configuration resolves to, with the origin of each setting."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from attrs import evolve

from rlx_core.cli.session import CliSession
from rlx_core.pipeline.backend import Target
from rlx_core.pipeline.config.reading import read_sources
from rlx_core.pipeline.config.records import Configuration
from rlx_core.pipeline.plan import CompilationPlan, resolve_plan
from rlx_core.pipeline.set_up import activate_options, activate_pipeline
from rlx_core.pipeline.targets import find_target, with_contributed_kernels
from rlx_core.plugins import Registry

BY_US = "the program"
"""The configuration reader's name for the source of overrides, which is the command line here."""


def plan(
    ctx: typer.Context,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Read this configuration.")] = None,
    target: Annotated[str | None, typer.Option(metavar="NAME", help="The device to compile for.")] = None,
    pipeline: Annotated[str | None, typer.Option(metavar="NAME", help="The pipeline to use.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the pipeline that the configuration resolves to."""
    session = CliSession.of(ctx)
    if config is not None:
        session = evolve(session, config=config)
    session.answer(lambda: resolved(session, target, pipeline), plan_json if as_json else None, layout)


def resolved(session: CliSession, target: str | None, pipeline: str | None) -> CompilationPlan:
    """The plan, resolved exactly as a compilation would.

    Raises:
        ConfigError, PassOrderError: The configuration is wrong.
        DeviceError, DeviceUnavailableError: The target is not known, or cannot be used here.
    """
    configuration = configuration_of(session, target, pipeline)
    device, registry = target_of(session, configuration)
    return resolve_plan(configuration, registry, device)


def configuration_of(
    session: CliSession,
    target: str | None = None,
    pipeline: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Configuration:
    """The session's configuration, with overrides from the command line."""
    arguments = (("target", target), ("use", pipeline), ("options", options))
    overrides = {key: value for key, value in arguments if value is not None}
    sources = read_sources(session.config_path, overrides)
    options = activate_options(session.host, sources.option_names()).options
    return sources.configuration(os.environ, options)


def target_of(session: CliSession, configuration: Configuration) -> tuple[Target, Registry]:
    """The target with everybody's kernels for it, and the registry of a compilation for it."""
    activate_pipeline(session.host, configuration)
    name, backend, registry = find_target(session.host, configuration.target)
    return with_contributed_kernels(backend.target_for(configuration.options), registry, name), registry


def said_by(compilation: CompilationPlan) -> dict[str, str]:
    """Key → its origin, for every setting that is not a default."""
    origins = compilation.configuration.origins
    leaves = [key for key in origins if not any(other.startswith(f"{key}.") for other in origins)]
    return {key: "the command line" if origins[key] == BY_US else origins[key] for key in sorted(leaves)}


def plan_json(compilation: CompilationPlan) -> dict[str, Any]:
    """The plan's own JSON, with the place where each pass and each setting was written."""
    content: dict[str, Any] = json.loads(compilation.to_json())
    return {**content, "written": [p.origin for p in compilation.passes], "said": said_by(compilation)}


def layout(compilation: CompilationPlan) -> Iterator[Any]:
    """The text of the plan, then the settings that are not defaults."""
    from rlx_core.cli.tables import facts, heading

    yield str(compilation)
    origins = said_by(compilation)
    if origins:
        yield ""
        yield heading("settings that are not defaults")
        yield facts(origins.items())
