"""`Session`: the global options, the plugin host that follows from them, and the output of a command.

A command gathers first and prints afterwards. While it gathers, standard output is redirected: text that a plugin prints
when it is imported goes to the error stream, so that `--json` writes JSON and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

import typer
from attrs import field

from rlx_core.errors import PluginError, nearest
from rlx_core.plugins import PluginHost, PluginPolicy
from rlx_core.system.records import define

T = TypeVar("T")
MakeHost = Callable[[PluginPolicy], PluginHost]
KEY: Final = "rlx_core.cli.session"


def installed(policy: PluginPolicy) -> PluginHost:
    """The host of everything that is installed."""
    return PluginHost(policy=policy)


@define(slots=False)
class CliSession:
    """One run of the command.

    Args:
        enable: Plugins that are not installed, by file or module (`--plugin`).
        block, allow: Plugins that are excluded, or exclusively permitted.
        config: The configuration file; without it the nearest one from the working directory upwards.
        is_plain: Whether to print without colours.
        make_host: Creates a host from a policy; a program that embeds the command, or a test, passes another one as
            the context's `obj`.
    """

    enable: tuple[str, ...] = ()
    block: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    config: Path | None = None
    is_plain: bool = False
    make_host: MakeHost = field(default=installed)

    @classmethod
    def requested(cls, request: Mapping[str, Any]) -> CliSession:
        """The session that another process described by `request`."""
        enable, block, allow = (tuple(request[kind]) for kind in ("enable", "block", "allow"))
        return cls(enable, block, allow, Path(request["config"]) if request["config"] else None)

    @property
    def is_reproducible(self) -> bool:
        """Whether `request` describes it completely: its host depends on installed packages and options only."""
        return self.make_host is installed

    def request(self) -> dict[str, Any]:
        """The data of an equal session in another process, as JSON; without `make_host`."""
        config = None if self.config is None else str(self.config.absolute())
        return {"enable": self.enable, "block": self.block, "allow": self.allow, "config": config}

    @classmethod
    def of(cls, ctx: Any) -> CliSession:
        """The session of a context, created from the options of the outermost one at first use."""
        if KEY not in ctx.meta:
            root = ctx.find_root()
            params = root.params
            ctx.meta[KEY] = cls(
                tuple(params.get("plugin") or ()),
                tuple(params.get("block") or ()),
                tuple(params.get("allow") or ()),
                params.get("config"),
                bool(params.get("no_color")),
                # Typer itself puts a dictionary there by default.
                root.obj if callable(root.obj) else installed,
            )
        session: CliSession = ctx.meta[KEY]
        return session

    # ------------------------------------------------------------------------------------------- output

    @cached_property
    def config_path(self) -> Path | None:
        """The configuration file that counts here, if there is one."""
        from rlx_core.pipeline.config.reading import find_config  # only commands that have a host need it

        return find_config() if self.config is None else self.config

    @cached_property
    def policy(self) -> PluginPolicy:
        """The environment, then the `[plugins]` table of the configuration, then the command line.

        Raises:
            ConfigError: The configuration cannot be read.
        """
        return PluginPolicy.from_environment() + self._file_policy() + self._command_line_policy()

    @property
    def policy_without_file(self) -> PluginPolicy:
        """All but the configuration's, for `rlx doctor` when that cannot be read."""
        return PluginPolicy.from_environment() + self._command_line_policy()

    def _command_line_policy(self) -> PluginPolicy:
        policy = PluginPolicy.of(enable=map(absolute, self.enable), source="--plugin")
        policy += PluginPolicy.of(block=self.block, source="--block")
        return policy + PluginPolicy.of(allow=self.allow, source="--allow")

    def _file_policy(self) -> PluginPolicy:
        if self.config_path is None:
            return PluginPolicy()
        from rlx_core.pipeline.config.reading import Sources, file_table

        source = str(self.config_path)
        table = file_table(self.config_path, is_named=self.config is not None)
        return Sources(((table, source),)).plugins().policy(source)

    @cached_property
    def host(self) -> PluginHost:
        """The plugins; made when a command first needs them.

        Raises:
            ConfigError: The configuration cannot be read.
            PluginError: `--plugin` names none that there is.
        """
        plugin_host = self.make_host(self.policy)
        words = {absolute(word) for word in self.enable}
        for entry in plugin_host.entries:
            if entry.fault is not None and (entry.name in words or entry.module in words):
                raise PluginError(f"--plugin: {entry.fault}", hint=nearest(entry.name, known_names(plugin_host)))
        return plugin_host

    # ----------------------------------------------------------------------------------------- printing

    @cached_property
    def console(self) -> Any:
        """The console for tables: 80 columns if the output is not a terminal, unless `COLUMNS` is set."""
        from rich.console import Console  # here, so that --version and --json need not wait for it

        return Console(no_color=self.is_plain or None, highlight=False, markup=False, emoji=False)

    def answer(
        self,
        gather: Callable[[], T],
        as_json: Callable[[T], object] | None,
        layout: Callable[[T], Iterable[Any]],
    ) -> T:
        """Gather, then print: as JSON if `as_json` is given, otherwise what `layout` yields, one after the other."""
        result = quietly(gather)
        if as_json is not None:
            typer.echo(json.dumps(as_json(result), indent=2, ensure_ascii=False))
            return result
        for part in layout(result):
            self.print(part)
        return result

    def print(self, part: Any) -> None:
        """Print one table, in a file without the blanks that fill a terminal's lines; or text, exactly as it is."""
        if isinstance(part, str):
            typer.echo(part)  # never folded: a program that is cut into lines cannot be read back
            return
        if self.console.is_terminal:
            self.console.print(part)
            return
        with self.console.capture() as captured:
            self.console.print(part)
        typer.echo("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()), nl=False)


def known_names(host: PluginHost) -> list[str]:
    """The names of the known plugins."""
    return [entry.name for entry in host.entries if entry.fault is None]


def quietly(gather: Callable[[], T]) -> T:
    """Run something that may import plugins; what they print goes to the error stream."""
    with contextlib.redirect_stdout(sys.stderr):
        return gather()


def absolute(word: str) -> str:
    """A plugin file named on the command line lies relative to the working directory."""
    domain, equals, address = word.rpartition("=")
    return f"{domain}{equals}{os.path.abspath(address)}" if address.endswith(".py") else word
