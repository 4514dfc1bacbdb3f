"""A vendor's tools, environment variables and libraries for examining a device; `rlx check --target` uses them."""

from __future__ import annotations

from rlx_core.system.records import frozen


@frozen
class Sanitizer:
    """A program that runs another one and reports its faulty memory accesses on the device.

    Args:
        command: The executable.
        tools: Names of its checks, each of which is a separate run.
        arguments: The command line before the program's own; `{tool}` is the check. The exit code is not 0 after a fault.
    """

    command: str
    tools: tuple[str, ...]
    arguments: tuple[str, ...]


@frozen
class Diagnostics:
    """Diagnostic tools that a backend's vendor provides for its devices.

    Args:
        variables: Prefixes of the environment variables that change the driver's behaviour.
        tools: Command lines that print the state of devices.
        sanitizer: The vendor's sanitizer, if it has one.
        dlpack_libraries: Modules that exchange this device's memory by DLPack.
    """

    variables: tuple[str, ...] = ()
    tools: tuple[tuple[str, ...], ...] = ()
    sanitizer: Sanitizer | None = None
    dlpack_libraries: tuple[str, ...] = ()
