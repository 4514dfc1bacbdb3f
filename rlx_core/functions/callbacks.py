"""`pure_callback` and `debug.callback`, `debug.print`: Python functions of pytrees that a program calls while it runs."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

import optree
from attrs import evolve

from rlx_core.errors import CallbackError, TraceError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.graph import Value, ambient_builder, as_results
from rlx_core.ir.types import TensorType, spec
from rlx_core.ops.host.callback import DebugCallback, PureCallback, host_function
from rlx_core.runtime.jit import Jitted
from rlx_core.transforms.lifting import Arguments, current_builder
from rlx_core.trees.flatten import expect_function, function_name


@checked_call
def pure_callback(function: Callable[..., Any], result_spec: Any, *args: Any) -> Any:
    """Return the result of a Python function of arrays, which a compiled program calls on the host while it runs.

    The function must not have side effects: it is called whenever its value is needed, perhaps never. Under `vmap` it is called
    once for each example. It has no derivative unless `rlx.custom_vjp` defines one.

    Args:
        function: Takes `args` with NumPy arrays in place of arrays, and returns a pytree like `result_spec`.
        result_spec: The types of its results: a pytree of `rlx.spec`s or their text.
        args: Pytrees of arrays; Python scalars are passed as they are.

    Raises:
        CallbackError (when the program runs): The function raised an error, or returned something else.

    >>> def on_the_host(x):
    ...     return np.sort(x)
    >>> f = rlx.jit(lambda x: rlx.pure_callback(on_the_host, rlx.spec("f32[3]"), 2 * x))
    >>> f(np.float32([3, 1, 2]))
    Array([2., 4., 6.], dtype=float32)
    """
    expect_function("pure_callback", function)
    if ambient_builder() is None:
        return Jitted(lambda *arrays: _called(function, result_spec, arrays), {}, ())(*args)
    return _called(function, result_spec, args)


def _called(function: Callable[..., Any], result_spec: Any, args: tuple[Any, ...]) -> Any:
    """Return the results of the call in the current trace."""
    specs, structure = optree.tree_flatten(result_spec)
    types = tuple(_type_of(each) for each in specs)
    arguments, call = _calling("pure_callback", function, args)

    def flat(*arrays: Any) -> list[Any]:
        leaves, returned = optree.tree_flatten(call(*arrays))
        if returned != structure:
            raise CallbackError(f"callback {function_name(function)}: it returned {returned}, not {structure}")
        return leaves

    op = PureCallback(host_function(flat, function_name(function)), tuple(v.dtype for v in arguments.operands), types)
    return optree.tree_unflatten(structure, as_results(op(*arguments.operands)))


def _type_of(each: Any) -> TensorType:
    if isinstance(each, TensorType):
        return each
    if isinstance(each, str):
        return spec(each)
    if isinstance(each, Value):
        return each.type
    raise TraceError(f"pure_callback: result_spec has {type(each).__name__}, not a type", hint='rlx.spec("f32[3]")')


@checked_call
def debug_callback(function: Callable[..., Any], *args: Any) -> None:
    """Call a Python function for its side effects, on the host, whenever the program reaches this point.

    Calls are kept even if nothing needs them, and stay in order. Under `vmap` there is one call for each example; under `grad`
    they happen in the forward evaluation.

    Raises:
        CallbackError (when the program runs): The function raised an error.
    """
    expect_function("debug.callback", function)
    if ambient_builder() is None:
        function(*args)
        return
    arguments, call = _calling("debug.callback", function, args)
    dtypes = tuple(v.dtype for v in arguments.operands)
    DebugCallback(host_function(call, function_name(function)), dtypes)(*arguments.operands)


@checked_call
def debug_print(text: str, *args: Any, **kwargs: Any) -> None:
    """Print a text with arrays in it whenever the program reaches this point.

    Args:
        text: A format string as for `str.format`: `"x = {x}"`.
        args, kwargs: The values to format: pytrees of arrays.

    >>> f = rlx.jit(lambda x: rlx.debug.print("x = {x}", x=x) or x + 1)
    >>> f(np.float32([1, 2]))
    x = [1. 2.]
    Array([2., 3.], dtype=float32)
    """
    names = {str(name).split(".")[0].split("[")[0] for _, name, _, _ in string.Formatter().parse(text) if name}
    unknown = [n for n in names if n not in kwargs and not (n.isdigit() and int(n) < len(args))]
    if unknown:
        raise TraceError(f"debug.print: the text has {{{unknown[0]}}}, and nothing is given for it")

    def show(args: Any, kwargs: Any) -> None:
        print(text.format(*args, **kwargs))

    debug_callback(show, args, kwargs)


def _calling(what: str, function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Arguments, Callable[..., Any]]:
    """Return the arguments of a call, and the function of their arrays."""
    arguments = Arguments.of(current_builder(what), {f"arg{i}": a for i, a in enumerate(args)})

    without_values = evolve(arguments, operands=())  # the function must not keep values of the trace alive

    def call(*arrays: Any) -> Any:
        pending = iter(arrays)
        leaves = [leaf.static if leaf.role == "static" else next(pending) for leaf in without_values.leaves]
        return function(*without_values.unflatten(leaves).values())

    return arguments, call
