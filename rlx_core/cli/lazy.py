"""Commands that are imported when they are run, rlx's own and those of plugins alike.

`LazyGroup` lists its records and imports nothing; `LazyCommand` imports the command that is called. A broken plugin
therefore does not affect others: its commands are missing from the list, and calling one raises the reason.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from rlx_core.cli.checkout import can_work
from rlx_core.cli.session import CliSession, quietly
from rlx_core.contributions import CommandSpec
from rlx_core.errors import Fact, PluginError, RlxError, UnknownNameError, nearest


class LazyCommand(TyperCommand):
    """A name and a summary, and the address of the command itself."""

    def __init__(self, spec: CommandSpec, load: Callable[[], object]) -> None:
        super().__init__(name=spec.name, help=spec.summary, short_help=spec.summary or "(no summary)")
        self.load = load

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the command itself, which is imported here."""
        command = command_from(str(self.name), quietly(self.load))
        return command.make_context(info_name, args, parent=parent, **extra)


def command_from(name: str, thing: object) -> Any:
    """A command from the object of a record: a function that typer can read, or a typer application.

    Raises:
        PluginError: It is neither.
    """
    if isinstance(thing, typer.Typer):
        return typer.main.get_command(thing)
    if not callable(thing):
        raise PluginError(
            f"command {name}: it is a {type(thing).__name__}, neither a function nor a typer.Typer",
            Fact("found", repr(thing)[:60]),
        )
    wrapper = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    wrapper.command(name)(thing)
    return typer.main.get_command(wrapper)


class LazyGroup(TyperGroup):
    """The `rlx` program: built-in commands, then those of plugins, which cannot replace a built-in one."""

    core_commands: ClassVar[Mapping[str, CommandSpec]] = {}

    def offered(self) -> dict[str, CommandSpec]:
        """The built-in commands that are available here; calling another one raises an error that names the missing files."""
        return {name: spec for name, spec in self.core_commands.items() if can_work(name)}

    def get_help_option(self, ctx: Any) -> Any:
        """`--help`, read after the options that say which plugins may be imported, because it lists their commands."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.is_eager = False
        return option

    def list_commands(self, ctx: Any) -> list[str]:
        return [*self.offered(), *self.contributed(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        spec = self.core_commands.get(cmd_name)
        if spec is not None:
            return LazyCommand(spec, spec.load.resolve)
        host = CliSession.of(ctx).host
        try:
            record = quietly(lambda: host.require("commands", cmd_name))
        except UnknownNameError as error:
            # The nearest name may be one of rlx's own, which the registry does not know.
            hint = nearest(cmd_name, self.list_commands(ctx))
            raise UnknownNameError(
                f"rlx {cmd_name}: there is no such command", *error.facts, hint=hint or "rlx --help lists them"
            ) from None
        return LazyCommand(record, lambda: host.load("commands", cmd_name))

    def contributed(self, ctx: Any) -> dict[str, CommandSpec]:
        """The commands of every plugin that works.

        Raises:
            ConfigError: The configuration cannot be read.
        """
        registry = quietly(CliSession.of(ctx).host.activate_all)
        return {name: spec for name, spec in registry.commands.items() if name not in self.core_commands}

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = [(name, spec.summary) for name, spec in self.offered().items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
        try:
            others = [(name, spec.summary or "(no summary)") for name, spec in self.contributed(ctx).items()]
        except RlxError as error:
            others = [("(unknown)", error.message)]
        if others:
            with formatter.section("Commands of plugins"):
                formatter.write_dl(others)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; what rlx refuses is printed as it was designed, without a traceback, and exits with 2."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except RlxError as error:
            if ctx.params.get("debug"):
                traceback.print_exc(file=sys.stderr)
            else:
                typer.echo(f"{type(error).__name__}: {error}", err=True)
            raise typer.Exit(2) from None
