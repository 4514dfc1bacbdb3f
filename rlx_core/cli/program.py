"""Where a program on the command line comes from: a file, a Python function, or one op on operands of some types."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from rlx_core.cli.op_rows import full_name, required_row
from rlx_core.cli.show import read, read_bytes
from rlx_core.cli.why_kernel import first_sample, given_attributes, listed_types, program
from rlx_core.errors import (
    ConfigError,
    Fact,
    FormatError,
    RlxError,
    TraceError,
    UnknownNameError,
    WrongInputCountError,
    nearest,
)
from rlx_core.files.load_save import load as load_file
from rlx_core.ir.bundle import Bundle
from rlx_core.ir.graph import Graph
from rlx_core.ir.module import Module
from rlx_core.ir.provenance import Source
from rlx_core.ir.serialize import MAGIC, Program
from rlx_core.ir.types import spec
from rlx_core.plugins import PluginHost
from rlx_core.transforms.trace import trace
from rlx_core.trees.flatten import bind_arguments


def program_from(host: PluginHost, name: str, types: Sequence[str]) -> Module:
    """The program that `MODULE:FUNCTION`, `FILE.py:FUNCTION` or a file's name means.

    Raises:
        RlxError: The program does not exist; the error states the searched names.
    """
    place, colon, function = name.rpartition(":")
    if colon and function.isidentifier():
        return module_of(from_function(place, function, types))
    if Path(name).suffix == ".py":
        raise ConfigError(
            f"compile: {name} is a module, and no function of it was named",
            hint=f"rlx compile {name}:FUNCTION {' '.join(map(repr, types)) or 'TYPE ...'}",
        )
    if types:
        raise ConfigError(f"compile: {name} is a file, whose inputs have their types; {types[0]} is one too many")
    return from_file(host, Path(name))


def from_op(host: PluginHost, words: str, attrs: Sequence[str]) -> Module:
    """A program of one op: `softmax f32[64, 128]`; without types those of the op's first sample.

    Raises:
        RlxError: There is no such op, or it does not take these types.
    """
    name, _, types = words.strip().partition(" ")
    op = required_row(host, full_name(host, name)).op
    assert op is not None, "an op that cannot be imported is refused"
    sample = first_sample(op)
    operands = listed_types(types) if types.strip() else list(sample.types) if sample else []
    attributes = {**(dict(sample.attributes) if sample else {}), **given_attributes(op, attrs)}
    return module_of(program(op, attributes, operands, name=op.name.rpartition(".")[2])[0])


def from_function(place: str, name: str, types: Sequence[str]) -> Graph:
    """A Python function, traced on arguments of these types, one a word.

    Raises:
        ConfigError, UnknownNameError: The module cannot be imported, or has no such function.
        TraceError: The function raises something.
        RlxError: The function cannot be traced on them.
    """
    module = imported(place)
    member = vars(module).get(name)
    if not callable(member):
        functions = [n for n, v in vars(module).items() if callable(v)]
        raise UnknownNameError(f"compile: {place} has no function {name}", hint=nearest(name, functions))
    function: Callable[..., Any] = member
    arguments = [spec(each) for each in types]
    try:
        bind_arguments(function, arguments, {})
    except WrongInputCountError as error:
        error.hint = f"give each argument a type: rlx compile {place}:{name} 'f32[8,64]' ..."
        raise
    try:
        return trace(function, arguments).graph
    except RlxError:
        raise
    except Exception as error:  # whatever the function does
        *_, last = traceback.extract_tb(error.__traceback__)
        raise TraceError(
            f"compile: {name} raises {type(error).__name__}: {error}",
            Fact("at", repr(Source(last.filename, last.lineno or 0))),
            hint=f"rlx --debug compile {place}:{name} ... shows the way there",
        ) from error


def imported(place: str) -> Any:
    """A module by its name or by its file; it can import modules from the folder of its file, or the working directory.

    Raises:
        ConfigError: It cannot be imported; the error has the reason.
    """
    path = Path(place)
    folder = str(path.parent.resolve() if path.suffix == ".py" else Path.cwd())
    sys.path.insert(0, folder)
    try:
        return from_source(path) if path.suffix == ".py" else importlib.import_module(place)
    except RlxError:
        raise
    except Exception as error:  # whatever the module does when it is imported
        raise ConfigError(
            f"compile: {place} cannot be imported", Fact("because", f"{type(error).__name__}: {error}")
        ) from error
    finally:
        sys.path.remove(folder)


def from_source(path: Path) -> ModuleType:
    """The module in a file, whatever else is called like it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None, "a file that ends with .py is a module"
    assert spec.loader is not None, "and such a module has a loader"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def from_file(host: PluginHost, file: Path) -> Module:
    """The program in a file: saved, as text, or in a format that a plugin reads.

    Raises:
        FormatError, UnknownNameError, VerifyError: It is no program, or one that cannot be read here.
    """
    if file.suffix in ("", ".txt") or read_bytes("compile", file).startswith(MAGIC):
        return module_of(read("compile", host, file))
    loaded = load_file(file, host=host)
    if not isinstance(loaded, Module | Graph):
        raise FormatError(f"compile: {file} holds a {type(loaded).__name__}, which is no program")
    return module_of(loaded)


def module_of(program: Program) -> Module:
    """A graph as a module: HIR, which is MIR where nothing in it is a block. Of a compiled function its graph."""
    if isinstance(program, Bundle):
        return Module.of_hir(program.graph)
    return program if isinstance(program, Module) else Module.of_hir(program)
