"""`rlx.load` and `rlx.save`: the suffix of a file selects the plugin that reads or writes it."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlx_core.contributions import Contribution
from rlx_core.errors import ConfigError, Fact, FileError, FormatError, PluginError, RlxError, nearest
from rlx_core.errors.contained import contained
from rlx_core.files.reading import in_memory
from rlx_core.hints.keywords import checked_call
from rlx_core.pipeline.contributed import expectation
from rlx_core.plugins import PluginHost, default_host
from rlx_core.system.collecting import collecting_seldom

if TYPE_CHECKING:
    from rlx_core.pipeline.set_up import Config

__all__ = ["from_bytes", "load", "reading", "save", "to_bytes", "writing"]


@checked_call
@collecting_seldom()
def load(
    path: str | os.PathLike[str],
    *,
    target: str | None = None,
    config: Config = None,
    classes: Iterable[type[Any]] = (),
    like: Any = None,
    sha256: str | None = None,
    trusted: bool | None = None,
    mapped: bool = True,
    host: PluginHost | None = None,
) -> Any:
    """Load the contents of a file: arrays by name (`.safetensors`), a compiled function, a graph or a module (`.rlx`), a compiled
    function with its code (`.rlxpack`), or the value of a plugin's reader, such as an `rlx.Model` of another system's file.

    A compiled function is compiled here, for any target; its weights stay in the mapped file. The file must not be
    changed while they are in use; replacing it (as `rlx.save` does) is safe.

    Args:
        path: The file; its suffix, in any case, chooses the reader.
        target, config: For a compiled function, as for `rlx.compile`; a model becomes one if either is given. Of a package,
            which of its code to run, `cpu` or `cpu:avx2`; by default the first that runs here.
        classes: For a compiled function, the named tuples among its arguments and results: files hold no classes.
        like: For arrays, the pytree that they were saved from, or one of its structure and types: they come back as
            such a tree, in newly allocated memory. Without it they are views of the mapped file, by name.
        sha256: For a package, the digest of the file that is meant, as hex digits. A package holds machine code, which runs only
            with this digest, with `trusted=True`, or if the package is known: made by this user here, or added by `rlx trust`.
        trusted: For a package, `True` to run its code whatever its digest is, if no other user can write or exchange it; `False`
            to run none of its code, and compile its program instead.
        mapped: Whether large files are mapped. The system ends a process that reads a mapped file that was shortened since; pass
            `False` to read files into memory, if others write them while they are in use.
        host: The plugins to use; everything installed by default.

    Raises:
        UnknownNameError: No plugin reads files with that suffix.
        FormatError: The contents do not match the suffix, are damaged, or hold other arrays than `like`.
        FileError: It cannot be read: it is not there, say (an OSError); or it is a package that others may have written,
            or whose code the user has not agreed to run; the message has its digest and the remedy.
        DeviceError: None of a package's code runs here, and its program cannot be compiled.
        BudgetError: The file is larger than `budget.read`, or causes more work than the rest of `[budget]` allows.
        ConfigError: A target, a configuration, classes, a digest or `trusted` for something that does not take it; `like` for
            a file without arrays.
    """
    from rlx_core.pipeline.set_up import working_on  # here, because a process that reads no file needs no configuration

    active_host, location = host or default_host(), path_of("load", path)
    if sha256 is not None and not (isinstance(sha256, str) and re.fullmatch("[0-9a-fA-F]{64}", sha256)):
        raise ConfigError(
            f"load: sha256 is a text of 64 hex digits, not {sha256!r:.80}", hint="sha256sum FILE prints it"
        )
    if not (trusted is None or isinstance(trusted, bool)):
        raise ConfigError(f"load: trusted is True, False or None, not {trusted!r:.80}")
    read, name = usable(active_host, "importers", active_host.importers_for(location.suffix.lower()))
    with (
        working_on(f"loading {location.name}", config, host),
        contained("importers", name, f"reading {location.name}"),
        reading("load", location),
        in_memory(not mapped),
    ):
        stored = read(location, active_host)
    try:
        if like is None:
            return opened(stored, target, config, classes, host, sha256, trusted)
        from rlx_core.files.state import restored  # here, because most loads make no trees

        return restored(opened(stored, target, config, classes, host, sha256, trusted), like)
    except RlxError as error:
        raise error.with_fact(Fact("file", location)) from None


def opened(
    stored: Any,
    target: str | None,
    config: Config,
    classes: Iterable[type[Any]],
    host: PluginHost | None,
    sha256: str | None = None,
    trusted: bool | None = None,
) -> Any:
    """A program with its weights as the function that it is, with its code or without, a model for a target as one too;
    anything else as it is.

    Raises:
        ConfigError: It is something else, to which target, configuration and classes do not apply.
    """
    from rlx_core.files.packages.container import Container  # here, because few files are packages
    from rlx_core.ir.bundle import Bundle  # here, because a file of arrays is read without the compiler

    if isinstance(stored, Container):
        from rlx_core.files.packages.opening import open_package  # as above

        return open_package(
            stored, target=target, config=config, classes=classes, host=host, sha256=sha256, trusted=trusted
        )
    for name, consent in (("sha256", sha256), ("trusted", trusted)):
        if consent is not None:
            raise ConfigError(f"load: {name} is for a package, which holds code, not for a {type(stored).__name__}")
    if isinstance(stored, Bundle):
        from rlx_core.runtime.compiled_function import compile_bundle  # as above

        return compile_bundle(stored, target=target, config=config, host=host, classes=classes)
    if (target is not None or config is not None) and is_model(stored):
        return stored.compile(target=target, config=config, host=host)
    for name, value in (("target", target), ("config", config), ("classes", tuple(classes) or None)):
        if value is not None:
            raise ConfigError(
                f"load: {name} is for a compiled function, not a {type(stored).__name__}",
                hint="load it without, and compile it: rlx.Session(...).compile(...)",
            )
    return stored


def is_model(stored: Any) -> bool:
    """Return whether a reader returned a model, which has the compiler behind it."""
    from rlx_core.functions.model import Model  # as in `opened`

    return isinstance(stored, Model)


@checked_call
def to_bytes(value: Any) -> bytes:
    """The bytes of a `.rlx` file with a compiled function, a graph, a module, or a part of one; pickles hold these bytes.

    Raises:
        FormatError: It is none of these, or contains a value that cannot be stored.
    """
    from rlx_core.ir.bundle import Bundled  # here, because a file of arrays is written without the compiler
    from rlx_core.ir.protocols import Travels
    from rlx_core.ir.serialize import save

    ready = value.bundle() if isinstance(value, Bundled) else value
    if not isinstance(ready, Travels):
        raise FormatError(
            f"bytes: a {type(value).__name__} is no program",
            hint="rlx.compile(function, ...) makes a function with its weights, rlx.trace(function, ...) its graph",
        )
    return save(ready)


@checked_call
def from_bytes(
    data: bytes,
    *,
    target: str | None = None,
    config: Config = None,
    classes: Iterable[type[Any]] = (),
    host: PluginHost | None = None,
) -> Any:
    """Return the value that was passed to `to_bytes`, checked like a file; no code is executed, and arrays are views of `data`.

    Arguments and errors are those of `load`.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise FormatError(f"from_bytes: takes what to_bytes returned, not {type(data).__name__}", hint=_hint_for(data))
    from rlx_core.ir.serialize import load_stored  # here, because a file of arrays is read without the compiler
    from rlx_core.pipeline.contributed import HostOps

    return opened(load_stored(data, HostOps(host or default_host())), target, config, classes, host)


def _hint_for(data: object) -> str | None:
    return "rlx.load reads a file" if isinstance(data, str | os.PathLike) else None


@checked_call
def save(path: str | os.PathLike[str], value: Any, *, host: PluginHost | None = None) -> None:
    """Write a file: a pytree of arrays (`.safetensors`), a compiled function with its weights, a graph or a module (`.rlx`),
    a compiled function with its code for this machine (`.rlxpack`; see `rlx.package`), or a value that a plugin's writer accepts.

    The arrays of a pytree are named by their tree paths, `params.w` or `state.0.mu.w`; `load(path, like=tree)` restores the tree.

    The file appears as a whole, or on an error stays as it was.

    Args:
        path: The file; its suffix, in any case, chooses the writer.
        value: The value to write.
        host: The plugins to use; everything installed by default.

    Raises:
        UnknownNameError: No plugin writes files with that suffix.
        FormatError, DtypeError: The value cannot be written in that format.
        FileError: The file cannot be written (an OSError).
    """
    active_host, location = host or default_host(), path_of("save", path)
    write, name = usable(active_host, "exporters", active_host.exporters_for(location.suffix.lower()))
    with contained("exporters", name, f"writing {location.name}"), writing("save", location):
        write(location, value, active_host)


def usable(host: PluginHost, kind: str, specs: Sequence[Contribution]) -> tuple[Callable[..., Any], str]:
    """The first reader or writer that works, and the name of its record; those before it are left out with a warning.

    Raises:
        PluginError: None of them works; the error is the first one's.
    """
    registry = host.registry()
    for spec in specs[:-1]:
        implementation: Callable[..., Any] | None = registry.usable(kind, spec.name, expectation(kind, spec, registry))
        if implementation is not None:
            return implementation, spec.name
    first = next((spec for spec in specs if (kind, spec.name) in registry.left_out), None)
    try:
        last: Callable[..., Any] = registry.load(kind, specs[-1].name, expectation(kind, specs[-1], registry))
    except PluginError:
        if first is None:
            raise
        registry.load(kind, first.name, expectation(kind, first, registry))
        raise
    return last, specs[-1].name


def path_of(what: str, path: str | os.PathLike[str]) -> Path:
    """Return a path argument as a `Path`.

    Raises:
        FileError: It is not a valid path; the message begins with `what`.
    """
    result = Path(path)
    try:
        has_nul = b"\0" in os.fsencode(result)
    except UnicodeEncodeError as error:
        raise FileError(f"{what}: {str(result)!a} is no path ({error.reason})") from None
    if has_nul:
        raise FileError(f"{what}: {str(result)!a} is no path (it holds a NUL)")
    return result


@contextmanager
def reading(what: str, path: Path) -> Iterator[None]:
    """Read a file inside.

    Raises:
        FileError: The system refuses that; the message begins with `what`.
    """
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{what}: {path} cannot be read ({error.strerror or error})", hint=_neighbour(path)) from error


@contextmanager
def writing(what: str, path: Path) -> Iterator[None]:
    """Write a file inside.

    Raises:
        FileError: The system refuses that; the message begins with `what`.
    """
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        hint = None if path.parent.is_dir() else f"there is no directory {path.parent}; make it first"
        raise FileError(f"{what}: {path} cannot be written ({error.strerror or error})", hint=hint) from error


def _neighbour(path: Path) -> str | None:
    """Return the hint for a misspelt file: the file in its directory with the nearest name."""
    with contextlib.suppress(OSError):  # the error that this hint belongs to reports the reason of the system
        return None if path.exists() else nearest(path.name, sorted(each.name for each in path.parent.iterdir()))
    return None
