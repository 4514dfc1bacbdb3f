"""Reading a module: exported by torch, decomposed as far as necessary, with the user's names of sizes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from rlx_core.errors import ConfigError, Fact, UnsupportedError
from rlx_core.importing.symbols import SymbolTable
from rlx_core.ir.dims import symbol
from rlx_torch.decompositions import for_export
from rlx_torch.exported import TorchModel, arguments_of, model_of


def read(
    module: torch.nn.Module | torch.export.ExportedProgram,
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    name: str | None,
) -> TorchModel:
    """The model of a module; see `from_torch`, whose arguments these are."""
    if isinstance(module, torch.export.ExportedProgram):
        if args is not None or kwargs is not None or dynamic_shapes is not None:
            raise ConfigError(
                "from_torch: an exported program has its inputs already",
                hint="from_torch(program), or the module with args and dynamic_shapes",
            )
        program = module
    else:
        program = _exported(module, args, kwargs, dynamic_shapes)
    symbols = _symbols(program, dynamic_shapes)
    called = name or (type(module).__name__ if isinstance(module, torch.nn.Module) else "program")
    return model_of(program.run_decompositions(for_export()), called, symbols)


def _exported(module: Any, args: Any, kwargs: Any, dynamic_shapes: Any) -> torch.export.ExportedProgram:
    if not isinstance(module, torch.nn.Module):
        raise ConfigError(f"from_torch: {module!r} is no torch.nn.Module", Fact("found", type(module).__name__))
    if args is None and kwargs is None:
        raise ConfigError("from_torch: no example inputs", hint="from_torch(module, (torch.ones(1, 3, 224, 224),))")
    try:
        inspect.signature(module.forward).bind(*(args or ()), **(kwargs or {}))
    except TypeError as error:
        raise ConfigError(
            f"from_torch: {type(module).__name__} takes other example inputs: {error}",
            Fact("forward", inspect.signature(module.forward)),
        ) from None
    # Ops are not decomposed for the sake of gradients that are not needed.
    try:
        with torch.no_grad():
            return torch.export.export(module, tuple(args or ()), dict(kwargs or {}), dynamic_shapes=dynamic_shapes)
    except Exception as error:
        if not isinstance(error, RuntimeError) and not type(error).__module__.startswith("torch"):
            raise  # by the module itself
        message = next((line for line in str(error).splitlines() if line.strip()), "")
        raise UnsupportedError(
            f"from_torch: torch.export cannot export {type(module).__name__}: {message.strip()}",
            Fact("raised", f"{type(error).__module__}.{type(error).__qualname__}"),
            hint="what depends on the values of tensors, such as branches and sizes, is not exported: torch.where instead of if, "
            "or a call of the module outside of the exported part",
        ) from error


def _symbols(program: torch.export.ExportedProgram, dynamic_shapes: Any) -> SymbolTable:
    """Return a table with the names of sizes that the user gave as a `Dim`."""
    symbols = SymbolTable()
    if dynamic_shapes is None:
        return symbols
    arguments = arguments_of(program)
    listed = list(dynamic_shapes.values()) if isinstance(dynamic_shapes, Mapping) else list(dynamic_shapes)
    if isinstance(dynamic_shapes, Mapping):
        values = dict(arguments)
        pairs = [(values.get(name), shapes) for name, shapes in dynamic_shapes.items()]
    else:
        pairs = [(value, shapes) for (_, value), shapes in zip(arguments, listed, strict=False)]
    for value, shapes in pairs:
        _match(value, shapes, symbols)
    return symbols


def _match(value: Any, shapes: Any, symbols: SymbolTable) -> None:
    if shapes is None:
        return
    if isinstance(value, torch.Tensor):
        entries = shapes.items() if isinstance(shapes, Mapping) else enumerate(shapes)
        for axis, entry in entries:
            size = value.shape[axis]
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol and _is_named(entry):
                symbols.setdefault(str(size.node.expr), symbol(entry if isinstance(entry, str) else entry.__name__))
    elif isinstance(value, dict) and isinstance(shapes, Mapping):
        for name, each in value.items():
            _match(each, shapes.get(name), symbols)
    elif isinstance(value, tuple | list) and isinstance(shapes, tuple | list):
        for each, entry in zip(value, shapes, strict=False):
            _match(each, entry, symbols)


def _is_named(entry: Any) -> bool:
    """Return whether a dynamic size has a name: `Dim("batch")`, and not `Dim.AUTO`, nor `2 * batch`."""
    return isinstance(entry, str) or (isinstance(entry, type | torch.export.Dim) and entry.__name__.isidentifier())
