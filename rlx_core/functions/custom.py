"""Functions of pytrees with custom derivatives: the common part of `custom_vjp` and `custom_jvp`.

A call inside a trace becomes one `CustomFn`, whose graphs are the function and its rule, traced on the same arguments. Values
of enclosing traces that they use become operands without a derivative, so differentiating by them is an error.

A rule may call the function itself. With the rule's own arguments, this returns the result of the call that is differentiated,
whose derivative is this rule again, to any order. With other arguments it is another call, of which up to `MOST_ORDERS` are
nested.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, Generic, ParamSpec, TypeVar

from rlx_core.errors import AxisError, Fact, MissingRuleError, RlxError, ShapeError, TraceError, WrongInputCountError
from rlx_core.ir.graph import Value, ambient_builder, as_results
from rlx_core.ir.provenance import Source
from rlx_core.ir.types import TensorType
from rlx_core.ops.derivatives.custom_fn import CustomFn
from rlx_core.system.context import assigned
from rlx_core.system.records import frozen
from rlx_core.transforms.lifting import Arguments, Traced, closed, current_builder, of_type, traced
from rlx_core.transforms.trace import Leaf
from rlx_core.trees.flatten import Tree, bind_arguments, expect_function, flatten, function_name

P = ParamSpec("P")
R = TypeVar("R")

MOST_ORDERS: Final = 3
"""Maximum nesting depth of calls of a function with other arguments inside its own rule."""


@frozen(eq=False)
class Call:
    """One call of a function inside a trace.

    Attributes:
        fixed: The arguments that are not differentiated, by position: any Python objects.
        arguments: The other arguments.
        traced: The function, traced on these arguments.
    """

    fixed: Mapping[int, Any]
    arguments: Arguments
    traced: Traced

    @property
    def result_leaves(self) -> tuple[Leaf, ...]:
        """Return the placeholders for the results in the trace of the rule."""
        pairs = zip(self.traced.results.names, self.traced.graph.outputs, strict=True)
        return tuple(Leaf(f"own_{name}", "input", value.type) for name, value in pairs)

    def given(self, leaves: Sequence[Any]) -> list[Any]:
        """Return the arguments that are differentiated, with these leaves."""
        return list(self.arguments.unflatten(leaves).values())

    def everything(self, leaves: Sequence[Any]) -> list[Any]:
        """Return all arguments in order, with these leaves for the differentiated ones."""
        return merged(self.fixed, self.given(leaves))


def merged(fixed: Mapping[int, Any], values: Sequence[Any]) -> list[Any]:
    """Return all arguments in order."""
    others = iter(values)
    return [fixed[i] if i in fixed else next(others) for i in range(len(fixed) + len(values))]


@frozen(eq=False)
class Active:
    """A rule that is being traced: its function, and the placeholders for arguments and results of the call."""

    function: object
    leaves: Sequence[Any]
    results: Any


_active: ContextVar[tuple[Active, ...]] = ContextVar("rules being traced", default=())


def tracing_rule(function: object, leaves: Sequence[Any], results: Any) -> assigned[tuple[Active, ...]]:
    """Trace a rule of `function` inside the block: on these leaves, the function has these results."""
    return assigned(_active, (*_active.get(), Active(function, leaves, results)))


class CustomFunction(ABC, Generic[P, R]):
    """A function with a custom derivative."""

    title: str

    def __init__(
        self,
        function: Callable[P, R],
        nondiff_argnums: int | Sequence[int] = (),
        nondiff_argnames: str | Sequence[str] = (),
    ) -> None:
        expect_function(self.title, function)
        self.function = function
        self.nondiff_argnums = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        self.nondiff_argnames = (nondiff_argnames,) if isinstance(nondiff_argnames, str) else tuple(nondiff_argnames)
        functools.update_wrapper(self, function)

    @property
    def name(self) -> str:
        return function_name(self.function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if not self.has_rule:
            raise MissingRuleError(f"{self.title}: {self.name} was given no derivative", hint=self.advice)
        if ambient_builder() is None:
            return self.function(*args, **kwargs)
        positional, names = self._positional(args, kwargs)
        without = self._fixed(names)
        fixed = {i: positional[i] for i in without}
        arguments = {name: positional[i] for i, name in enumerate(names) if i not in without}
        active = [each for each in _active.get() if each.function is self]
        leaves, _ = flatten(tuple(arguments.values()))
        active_results = next((each.results for each in active if _are_same(each.leaves, leaves)), None)
        result: R = self._emitted(fixed, arguments, len(active)) if active_results is None else active_results
        return result

    def _positional(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], list[str]]:
        """Return all arguments of a call by position, including defaults, and the names of their parameters.

        Raises:
            WrongInputCountError: The call does not fit the signature, or an argument has no position.
        """
        bind_arguments(self.function, args, kwargs)
        positional = list(args)
        if kwargs:
            bound = inspect.signature(self.function).bind(*args, **kwargs)
            bound.apply_defaults()
            positional = list(bound.args)
            if bound.kwargs:
                raise WrongInputCountError(
                    f"{self.title}: {self.name} takes {', '.join(bound.kwargs)} by keyword only, which a rule does not",
                    hint="make it an argument by position, named in nondiff_argnums where it is no array",
                )
        return positional, list(bind_arguments(self.function, positional, {}))

    def _fixed(self, names: Sequence[str]) -> list[int]:
        """Return the positions of the arguments that are not differentiated.

        Raises:
            AxisError: An argument does not exist.
        """
        count = len(names)
        wrong: list[object] = [n for n in self.nondiff_argnums if not -count <= n < count]
        wrong += [n for n in self.nondiff_argnames if n not in names]
        if wrong:
            raise AxisError(
                f"{self.title}: argument {wrong[0]!r} of a call of {self.name} with {count} arguments",
                Fact("arguments", ", ".join(f"{i} {name}" for i, name in enumerate(names))),
            )
        return sorted({n % count for n in self.nondiff_argnums} | {names.index(n) for n in self.nondiff_argnames})

    def _emitted(self, fixed: Mapping[int, Any], named: Mapping[str, Any], depth: int) -> Any:
        arguments = Arguments.of(current_builder(self.title), named)
        traced_call = traced(
            self.name,
            arguments.leaves,
            lambda leaves: self.function(*merged(fixed, list(arguments.unflatten(leaves).values()))),  # type: ignore[call-arg]
        )
        call = Call(fixed, arguments, traced_call)
        op, captured = self.op_of(call) if depth < MOST_ORDERS else without_rule(call)
        return traced_call.results.unflatten(as_results(op(*arguments.operands, *captured)))

    @property
    @abstractmethod
    def has_rule(self) -> bool:
        """Return whether the derivative was defined."""

    @property
    @abstractmethod
    def advice(self) -> str:
        """Return instructions how to define the derivative."""

    @abstractmethod
    def op_of(self, call: Call) -> tuple[CustomFn, Sequence[Value]]:
        """Return the op of a call, and the values of enclosing traces that are its operands after the arguments."""


def without_rule(call: Call) -> tuple[CustomFn, Sequence[Value]]:
    """Return the op of a call that is nested too deeply in the function's own rule to be differentiated."""
    captured = list(dict.fromkeys(call.traced.captures.values()))
    body = closed(call.traced, call.arguments.leaves, captured)
    return CustomFn(body, unstated=len(body.inputs)), captured


def _are_same(known: Sequence[Any], leaves: Sequence[Any]) -> bool:
    return len(known) == len(leaves) and all(
        a is b if isinstance(a, Value) or isinstance(b, Value) else type(a) is type(b) and a == b
        for a, b in zip(known, leaves, strict=True)
    )


def expect_rules(what: str, *rules: object) -> None:
    """Require functions.

    Raises:
        TraceError: One of them is not a function.
    """
    for rule in rules:
        if not callable(rule):
            raise TraceError(f"{what} takes functions, not {type(rule).__name__}")


def is_moving(type: TensorType | None) -> bool:
    """Return whether a leaf of this type has a tangent and a cotangent; a Python scalar has no type."""
    return type is not None and type.dtype.is_differentiable


def counted(returned: object) -> str:
    """Describe a rule's result that is not a pair, for an error."""
    return f"{len(returned)} of them" if isinstance(returned, tuple | list) else type(returned).__name__


def line_of(function: Callable[..., Any]) -> str:
    """Return the line where a function is defined, for an error; its name if the line is unknown."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return repr(function) if code is None else repr(Source(code.co_filename, code.co_firstlineno))


def leaves_like(
    what: str, returned: Any, expected: Tree, types: Sequence[TensorType | None], rule: Fact
) -> list[Value | None]:
    """Return the leaves of a pytree that a rule returned, as values; `None` for those without a type.

    Args:
        what: A description of the rule's result: `fwd of f: its first result`.
        returned: The pytree that the rule returned.
        expected: The expected structure.
        types: The type of each leaf; `None` if any type is accepted.
        rule: The location of the rule.

    Raises:
        ShapeError, DtypeError: It has another structure, or a leaf is of another type.
    """
    leaves, tree = flatten(returned, "")
    if tree.structure != expected.structure:
        raise ShapeError(
            f"{what} has another structure",
            Fact("wanted", expected.structure),
            Fact("found", tree.structure),
            rule,
        )
    builder = current_builder(what)
    try:
        return [
            None if type is None else of_type(builder, f"{what}{name}", leaf, type)
            for leaf, name, type in zip(leaves, tree.names, types, strict=True)
        ]
    except RlxError as error:
        raise error.with_fact(rule) from None
