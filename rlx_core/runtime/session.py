"""Sessions: one device and one configuration for everything compiled in them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from rlx_core.errors import (
    ConfigError,
    DeviceError,
    DeviceUnavailableError,
    RlxError,
)
from rlx_core.errors.contained import contained
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.graph import Graph
from rlx_core.ir.module import Module
from rlx_core.pipeline.set_up import set_up, with_precision
from rlx_core.pipeline.targets import find_target, numbered
from rlx_core.plugins import PluginHost, default_host
from rlx_core.runtime.compiled_function import compile_function
from rlx_core.runtime.program import compile_program
from rlx_core.runtime.references import expect_default_host


class Session:
    """A device to compile for; it fails at once if the device cannot be used.

    Args:
        device: The target's name; the preferred one that is available by default.
        precision: As for `rlx.compile`; that of the configuration by default.
        config: Overrides of the configuration, as a table.
        host: The plugins to use.

    Raises:
        DeviceError: No plugin has that device (a ValueError).
        DeviceUnavailableError: It is known but cannot be used here; the message has the package to install (a RuntimeError).
        ConfigError: The precision is not known (a ValueError).
    """

    def __init__(
        self,
        device: str | None = None,
        *,
        precision: str | None = None,
        config: Mapping[str, Any] | None = None,
        host: PluginHost | None = None,
    ) -> None:
        self._host = host or default_host()
        self._given = dict(config or {})
        self._config = with_precision("session", self._given, precision, self._host)
        self.device, self._backend, _ = find_target(self._host, device)
        self.precision = precision or set_up(self._config, self._host)[1].precision.policy

    def compile(
        self,
        program: Graph | Module | Callable[..., Any],
        *args: Any,
        binding: DimBinding | Mapping[str, int] | None = None,
        donations: Mapping[str, int | None] | None = None,
    ) -> Any:
        """The `Executable` of a graph or a module, or the `CompiledFunction` of a function with its arguments.

        The program is not consumed. A HIR module's own fusion policy holds unless the session's configuration has one.

        Args:
            program: The program to compile.
            args: For a function, as for `rlx.compile`: arrays to bind and `rlx.spec`s to feed.
            binding: For a graph or a module: sizes of symbols that are known now, by name.
            donations: For a graph or a module: inputs that runs may overwrite, each with the output that is its next value.

        Raises:
            WrongStageError: The module is LIR, whose plan is made already.
            UnknownNameError: The program has no symbol of that name.
            GuardError, ShapeError: The sizes do not fit it.
        """
        if not isinstance(program, Graph | Module):
            if binding is not None or donations is not None:
                raise ConfigError(
                    "session: bindings and donations are for graphs and modules",
                    hint="give a function's sizes in its specs, and its donations to rlx.jit",
                )
            return compile_function(program, *args, target=self.device, config=self._config, host=self._host)
        return compile_program(
            program,
            args,
            target=self.device,
            config=self._config,
            host=self._host,
            binding=binding,
            donations=donations,
        )

    def devices(self) -> list[str]:
        """Descriptions of the devices of the session's target."""
        with contained("backends", self.device.partition(":")[0], "listing its devices"):
            return self._backend.devices()

    def __reduce__(self) -> tuple[Any, ...]:
        expect_default_host(repr(self), self._host)
        return functools.partial(Session, self.device, precision=self.precision, config=self._given), ()

    def __copy__(self) -> Session:
        return self

    def __deepcopy__(self, memo: object) -> Session:
        return self  # it has no mutable state

    def __repr__(self) -> str:
        return f"Session({self.device!r}, precision={self.precision!r})"


@checked_call
def available_devices(host: PluginHost | None = None) -> list[str]:
    """Return the targets with a device here; `rlx.devices()` lists the devices."""
    active_host = host or default_host()
    names = sorted(active_host.activate_all().backends)
    return [name for name in names if is_available(name, active_host)]


@checked_call
def is_available(device: str, host: PluginHost | None = None) -> bool:
    """Return whether a device can be used here: its plugin can, and there is one.

    Raises:
        DeviceError: No plugin has it.
    """
    try:
        _, backend, _ = find_target(host or default_host(), device)
        with contained("backends", numbered(device)[0], "listing its devices"):
            return bool(backend.devices())
    except DeviceUnavailableError:
        return False
    except DeviceError:
        raise
    except RlxError:
        return False
