"""User-facing transformations of functions: applied in place inside a traced function, compiled and run outside of one.

`grad(f)` is a function like `f`; called with arrays it is compiled for their types on first use, like anything under
`rlx.jit`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, TypeVarTuple, overload

from attrs import evolve

from rlx_core.errors import ShapeError
from rlx_core.functions import functional
from rlx_core.functions.staged import Gradient, StagedTransform
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dims import Dim
from rlx_core.ir.graph import Graph, ambient_builder
from rlx_core.ir.mesh import NO_AXES
from rlx_core.ops.arguments import flag
from rlx_core.pipeline.forward import transforming_for
from rlx_core.runtime.jit import Jitted, run_compiled
from rlx_core.system.floating import in_standard_modes
from rlx_core.system.locks import forks_wait
from rlx_core.transforms.trace import trace as _trace
from rlx_core.trees.flatten import expect_function

Function = Callable[..., Any]
Axes = int | Sequence[int]

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")  # the argument that is differentiated: its gradient has its type
Aux = TypeVar("Aux")
Ts = TypeVarTuple("Ts")


def _staged(transform: Function, function: Function, transformed: Function, *settings: Any, **named: Any) -> Any:
    prefix = transform.__name__
    expect_function(prefix, function)
    recipe = functools.partial(transform, function, *settings, **named)
    return StagedTransform(_named(function, transformed, prefix), recipe)


def _named(function: Function, transformed: Function, prefix: str) -> Function:
    # The signature of the original names the leaves in every error and report.
    named = functools.wraps(function)(transformed)
    named.__name__ = f"{prefix}_{getattr(function, '__name__', 'function')}"
    return named


@checked_call
@in_standard_modes
def trace(function: Function, *args: Any, **kwargs: Any) -> Graph:
    """The graph of a function: HIR, with an input for every array among the arguments.

    Args:
        function: Any Python function of pytrees of arrays.
        args, kwargs: Arrays or `rlx.spec`s; Python scalars are constants of the program.
    """
    with forks_wait, transforming_for(None, None):
        return _trace(function, args, kwargs).graph


@overload
def value_and_grad(
    function: Callable[Concatenate[A, P], R],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[False] = False,
    allow_unreached: bool = True,
) -> Jitted[Concatenate[A, P], tuple[R, A]]: ...
@overload
def value_and_grad(
    function: Callable[Concatenate[A, P], tuple[R, Aux]],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[True],
    allow_unreached: bool = True,
) -> Jitted[Concatenate[A, P], tuple[tuple[R, Aux], A]]: ...
@overload
def value_and_grad(
    function: Callable[P, R],
    argnums: Axes,
    *,
    has_aux: Literal[False] = False,
    allow_unreached: bool = True,
) -> Jitted[P, tuple[R, Any]]: ...
@overload
def value_and_grad(
    function: Callable[P, tuple[R, Aux]],
    argnums: Axes,
    *,
    has_aux: Literal[True],
    allow_unreached: bool = True,
) -> Jitted[P, tuple[tuple[R, Aux], Any]]: ...
@checked_call
def value_and_grad(
    function: Function, argnums: int | Sequence[int] = 0, *, has_aux: bool = False, allow_unreached: bool = True
) -> Jitted[..., Any]:
    """The function that returns the value of `function` and its gradient, with the shape of the argument.

    Args:
        function: Returns one real scalar; with `has_aux`, a pair of it and anything else.
        argnums: Which arguments to differentiate by: one (its gradient is returned), or several (a tuple).
        has_aux: Whether `function` returns `(loss, aux)`.
        allow_unreached: Whether an argument that the loss does not depend on has a gradient of zeros, or is an error.

    Raises (on the call):
        ShapeError: The function does not return one real scalar.
        DtypeError: A leaf of a differentiated argument is not floating-point.
        MissingRuleError: An op on the path has no derivative; the error names the op, the operand and the method to write.
    """
    settings = {"has_aux": has_aux, "allow_unreached": allow_unreached}
    return _gradient(value_and_grad, functional.value_and_grad, function, argnums, settings)


@overload
def grad(
    function: Callable[Concatenate[A, P], Any],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[False] = False,
    allow_unreached: bool = True,
) -> Jitted[Concatenate[A, P], A]: ...
@overload
def grad(
    function: Callable[Concatenate[A, P], tuple[Any, Aux]],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[True],
    allow_unreached: bool = True,
) -> Jitted[Concatenate[A, P], tuple[A, Aux]]: ...
@overload
def grad(
    function: Callable[P, Any],
    argnums: Axes,
    *,
    has_aux: Literal[False] = False,
    allow_unreached: bool = True,
) -> Jitted[P, Any]: ...
@overload
def grad(
    function: Callable[P, tuple[Any, Aux]],
    argnums: Axes,
    *,
    has_aux: Literal[True],
    allow_unreached: bool = True,
) -> Jitted[P, tuple[Any, Aux]]: ...
@checked_call
def grad(
    function: Function, argnums: int | Sequence[int] = 0, *, has_aux: bool = False, allow_unreached: bool = True
) -> Jitted[..., Any]:
    """The function that returns the gradient of `function`; with `has_aux`, the pair of it and the auxiliary results.

    Arguments and errors are those of `value_and_grad`.
    """
    settings = {"has_aux": has_aux, "allow_unreached": allow_unreached}
    return _gradient(grad, functional.grad, function, argnums, settings)


@checked_call
def vmap(
    function: Callable[P, R],
    in_axes: Any = 0,
    out_axes: Any = 0,
    *,
    axis_name: str | None = None,
    axis_size: Dim | None = None,
) -> Jitted[P, R]:
    """`function` mapped over an axis of its arguments, all at once instead of in a loop.

    Args:
        function: Written for one example.
        in_axes: The mapped axis of each argument (`None`: shared), one for all, or a pytree like the argument. Arguments by
            keyword are mapped along their first axis.
        out_axes: The position of the axis in the results; `None` requires a result that is the same for all.
        axis_name: The name of the axis for collectives inside `function`: `rlx.psum(x, axis_name)` is the sum over all
            examples. See also `rlx.pmean`, `rlx.pmax`, `rlx.pmin`, `rlx.axis_index` and `rlx.axis_size`.
        axis_size: The number of examples, if no argument is mapped; otherwise the mapped axes must have this size.

    Raises:
        AxisNameError: `axis_name` is not a string; or, on the call, an enclosing `vmap` has an axis of this name already, or
            a collective over it is in a branch or loop that only some of the examples may take.

    >>> rlx.vmap(lambda x: x - rlx.pmax(x, "batch"), axis_name="batch")(np.float32([1, 2, 6]))
    Array([-5., -4.,  0.], dtype=float32)
    """
    if axis_name is not None:
        NO_AXES.extended("vmap", axis_name, 1)  # refuses an invalid name before the first call
    mapped = functional.vmap(function, in_axes, out_axes, axis_size, axis_name)
    return _staged(vmap, function, mapped, in_axes, out_axes, axis_name=axis_name, axis_size=axis_size)


@checked_call
def jacfwd(function: Callable[P, Any], argnums: Axes = 0, *, has_aux: bool = False) -> Jitted[P, Any]:
    """The function that returns the Jacobian of `function` by forward mode: for more results than arguments.

    For one array by one array it is an array of shape [result dims.., argument dims..]. For pytrees, it has the structure of
    the result, with a pytree of the argument's structure in place of each leaf: one Jacobian per pair of leaves.

    Args:
        function: Returns real floating-point arrays; with `has_aux`, a pair of them and anything else.
        argnums: Which arguments to differentiate by: one, or several (a tuple of Jacobians for each result).
        has_aux: Whether `function` returns `(result, aux)`; `(Jacobian, aux)` is returned then.

    Raises (on the call):
        DtypeError: A leaf of a differentiated argument, or of the result, is not a real floating-point array.
        AxisError: There is no such argument.
    """
    return _gradient(jacfwd, functional.jacfwd, function, argnums, {"has_aux": has_aux})


@checked_call
def jacrev(function: Callable[P, Any], argnums: Axes = 0, *, has_aux: bool = False) -> Jitted[P, Any]:
    """The function that returns the Jacobian of `function` by reverse mode: for more arguments than results.

    Arguments, result and errors are those of `jacfwd`.
    """
    return _gradient(jacrev, functional.jacrev, function, argnums, {"has_aux": has_aux})


@checked_call
def hessian(function: Callable[P, Any], argnums: Axes = 0, *, has_aux: bool = False) -> Jitted[P, Any]:
    """The function that returns the second derivatives of `function`, forward over reverse.

    For a scalar by an array it is an array of shape [argument dims.., argument dims..]; for pytrees, and with several
    `argnums`, it is the result of `jacfwd` of the gradient: blocks by blocks. Arguments and errors are those of `jacfwd`.
    """
    return _gradient(hessian, functional.hessian, function, argnums, {"has_aux": has_aux})


def _gradient(
    transform: Function, inner: Function, function: Function, argnums: Axes, settings: Mapping[str, bool]
) -> Any:
    expect_function(transform.__name__, function)
    recipe = functools.partial(transform, function, argnums, **settings)
    transformed = inner(function, argnums, **settings)
    return Gradient(_named(function, transformed, transform.__name__), argnums, recipe)


@overload
def hvp(function: Callable[[A, *Ts], Any], primals: tuple[A, *Ts], tangents: tuple[A, *Ts]) -> A: ...
@overload
def hvp(function: Function, primals: list[Any], tangents: list[Any]) -> Any: ...
@checked_call
def hvp(function: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The Hessian of a scalar function at `primals`, times `tangents`, without forming the Hessian.

    Arguments and errors are those of `jvp`.
    """
    return run_compiled(lambda p, t: functional.hvp(function, p, t), *_both("hvp", primals, tangents))


@overload
def jvp(
    function: Callable[[*Ts], R], primals: tuple[*Ts], tangents: tuple[*Ts], *, has_aux: Literal[False] = False
) -> tuple[R, R]: ...
@overload
def jvp(
    function: Callable[[*Ts], tuple[R, Aux]], primals: tuple[*Ts], tangents: tuple[*Ts], *, has_aux: Literal[True]
) -> tuple[R, R, Aux]: ...
@overload
def jvp(
    function: Callable[..., R], primals: list[Any], tangents: list[Any], *, has_aux: Literal[False] = False
) -> tuple[R, R]: ...
@checked_call
def jvp(
    function: Function, primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: bool = False
) -> tuple[Any, ...]:
    """The value of `function` at `primals` and its derivative along `tangents`; with `has_aux`, the auxiliary result after them.

    Args:
        function: Any function of pytrees of arrays; with `has_aux`, it returns `(result, aux)`.
        primals: Its arguments, as a tuple.
        tangents: A direction for each of them, of the same structure and types.
        has_aux: Whether there is an auxiliary result, which is not differentiated.

    Raises:
        ShapeError, DtypeError: A tangent does not have the type of its primal, or they are not tuples; or there is no auxiliary
        result.
    """
    result: tuple[Any, ...] = run_compiled(
        lambda p, t: functional.jvp(function, p, t, has_aux=has_aux), *_both("jvp", primals, tangents)
    )
    return result


@overload
def vjp(function: Callable[[*Ts], R], *primals: *Ts) -> tuple[R, Callable[[R], tuple[*Ts]]]: ...
@overload
def vjp(
    function: Callable[..., tuple[R, Aux]], *primals: Any, has_aux: Literal[True]
) -> tuple[R, Callable[[R], tuple[Any, ...]], Aux]: ...
@checked_call  # type: ignore[misc]  # mypy has no argument list that covers `*Ts` and a keyword
def vjp(function: Function, *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """The value of `function` and its pullback, which maps cotangents of the results to one cotangent per primal.

    With `has_aux`, `function` returns `(result, aux)`, and `aux` comes after the pullback.
    Outside a traced function the pullback computes the forward values again; inside one they are shared.
    """
    expect_function("vjp", function)
    flag("vjp: has_aux", has_aux)
    if ambient_builder() is not None:
        return functional.vjp(function, *primals, has_aux=has_aux)
    pull = Jitted(lambda p, g: functional.vjp(function, *p, has_aux=has_aux)[1](g), {}, ())

    def pullback(cotangents: Any) -> Any:
        return pull(primals, cotangents)

    if has_aux:
        value, aux = Jitted(lambda p: functional.vjp(function, *p, has_aux=True)[::2], {}, ())(primals)
        return value, pullback, aux
    return Jitted(lambda p: function(*p), {}, ())(primals), pullback


@checked_call
def linearize(function: Callable[[*Ts], R], *primals: *Ts) -> tuple[R, Callable[[*Ts], R]]:
    """The value of `function` at `primals`, and its derivative there: a function from tangents to the tangent of the result.

    Values that do not depend on tangents are computed once, however often the derivative is used.

    Raises:
        DtypeError: A leaf of the primals is not floating-point.
        ShapeError, DtypeError (on a call of the derivative): A tangent does not have the type of its primal.

    >>> value, derivative = rlx.linearize(rlx.sin, np.float32(0))
    >>> derivative(np.float32(2))
    Array(2., dtype=float32)
    """
    expect_function("linearize", function)
    if ambient_builder() is not None:
        result: tuple[R, Callable[[*Ts], R]] = functional.linearize(function, *primals)
        return result
    linear_maps: list[functional.Linear] = []

    def at_the_point(p: tuple[Any, ...]) -> Any:
        value, linear = functional.linearize(function, *p)
        linear_maps.append(linear)
        return value, linear.residuals

    value, residuals = Jitted(at_the_point, {}, ())(primals)
    (linear,) = linear_maps
    apply = Jitted(lambda r, t: evolve(linear, residuals=r)(*t), {}, ())
    return value, lambda *tangents: apply(residuals, tangents)


@checked_call
@in_standard_modes
def eval_shape(function: Function, *args: Any, **kwargs: Any) -> Any:
    """The result of `function` for these arguments, with types in place of arrays; nothing is computed.

    Args:
        function: Any Python function of pytrees of arrays.
        args, kwargs: Arrays or `rlx.spec`s.

    >>> rlx.eval_shape(lambda x: {"total": rlx.sum(x), "root": rlx.sqrt(x)}, rlx.spec("f32[3]"))
    {'total': f32[], 'root': f32[3]}
    """
    with forks_wait, transforming_for(None, None):
        traced = _trace(function, args, kwargs, capturing=ambient_builder() is not None)
    return traced.results.unflatten([v.type for v in traced.graph.outputs])


def _both(what: str, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    for name, value in (("primals", primals), ("tangents", tangents)):
        if not isinstance(value, tuple | list):
            raise ShapeError(
                f"{what}: {name} is {type(value).__name__}, not a tuple with one entry an argument",
                hint=f"rlx.{what}(f, (x,), (direction,))",
            )
    return tuple(primals), tuple(tangents)
