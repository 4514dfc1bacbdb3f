"""Native functions of other libraries that generated code calls by their addresses.

An emitter of any package declares such a function and calls it. The object cache keeps the declaration with the code, so that a
program from the cache finds the address without its emitter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

from rlx_core.errors import Fact, KernelBuildError
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.c_library import add_symbols
from rlx_cpu.native.llvm.ir.functions import declare


@frozen
class ForeignFunction:
    """A native function with the C calling convention that runs on any thread, without the interpreter's lock.

    Attributes:
        symbol: Its name in generated code, unique in a process: begin it with the name of your package.
        load: `package.module:name` of a function without arguments that returns its address.
    """

    symbol: str
    load: str


def call_foreign(builder: Any, function: ForeignFunction, result: ir.Type, arguments: Sequence[Any]) -> Any:
    """Call a foreign function from the function under construction; the result of the call.

    Args:
        builder: Of the function under construction.
        result: The LLVM type of the result.
        arguments: LLVM values; their types are those of the parameters.
    """
    known = builder.module.foreign.setdefault(function.symbol, function.load)
    assert known == function.load, f"{function.symbol} is the symbol of two functions, {known} and {function.load}"
    callee = declare(builder.module, function.symbol, result, [each.type for each in arguments])
    return builder.call(callee, list(arguments))


_bound: dict[str, str] = {}


def bind_symbols(functions: Iterable[tuple[str, str]]) -> None:
    """Register the addresses of foreign functions before code that calls them is linked.

    Raises:
        KernelBuildError: A function cannot be loaded, or its symbol is that of another one.
    """
    for symbol, load in functions:
        known = _bound.get(symbol)
        if known == load:
            continue
        if known is not None:
            raise KernelBuildError(
                f"cpu: two foreign functions have the symbol {symbol}",
                Fact("bound", known),
                Fact("requested", load),
                hint="begin symbols with the name of the package",
            )
        add_symbols({symbol: _address(symbol, load)})
        _bound[symbol] = load


def _address(symbol: str, load: str) -> int:
    module, _, name = load.partition(":")
    try:
        address = getattr(import_module(module), name)()
    except Exception as error:
        raise KernelBuildError(
            f"cpu: the foreign function {symbol} cannot be loaded from {load}", Fact("cause", error)
        ) from error
    if not isinstance(address, int) or address <= 0:
        raise KernelBuildError(f"cpu: {load} returned {address!r} as the address of the foreign function {symbol}")
    return address
