"""`custom_jvp`: a function with a custom forward derivative; the reverse derivative is its transpose."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from rlx_core.errors import ConfigError, Fact, ShapeError
from rlx_core.functions.custom import (
    Call,
    CustomFunction,
    counted,
    expect_rules,
    is_moving,
    leaves_like,
    line_of,
    tracing_rule,
)
from rlx_core.ir.graph import Value
from rlx_core.ops.creation import zeros_like
from rlx_core.ops.derivatives.custom_fn import CustomFn
from rlx_core.transforms.lifting import closed, traced
from rlx_core.transforms.trace import Leaf
from rlx_core.trees.flatten import function_name

P = ParamSpec("P")
R = TypeVar("R")


class custom_jvp(CustomFunction[P, R]):
    """A function with a custom forward derivative, defined by `defjvp` or `defjvps`; in reverse mode it is transposed.

    Args:
        function: Any function of pytrees of arrays.
        nondiff_argnums, nondiff_argnames: Arguments that are not arrays and have no derivative: functions, settings.

    >>> @rlx.custom_jvp
    ... def f(x, y):
    ...     return rlx.sin(x) * y
    >>> @f.defjvp
    ... def f_jvp(primals, tangents):
    ...     x, y = primals
    ...     x_dot, y_dot = tangents
    ...     return f(x, y), rlx.cos(x) * x_dot * y + rlx.sin(x) * y_dot
    >>> rlx.grad(f)(np.float32(0), np.float32(3))
    Array(3., dtype=float32)
    """

    title = "custom_jvp"
    advice = "f.defjvp(rule) with rule(primals, tangents) -> (result, tangent of the result)"
    _rule: Callable[..., Any] | None = None

    @property
    def has_rule(self) -> bool:
        return self._rule is not None

    def defjvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Define the derivative; a decorator.

        Args:
            rule: Takes the arguments that are not differentiated, then a tuple of the other arguments, then one of their
                tangents, which may be zeros; returns the result and its tangent, which must be linear in the tangents.

        Raises (on a call of the function):
            ShapeError, DtypeError: `rule` does not return a pair, or one of another structure or type than the function's
            result.
        """
        expect_rules(f"{self.title}: {self.name}.defjvp", rule)
        self._rule = rule
        return rule

    def defjvps(self, *rules: Callable[..., Any] | None) -> None:
        """Define the derivative argument by argument, for a function of arrays to one array.

        Args:
            rules: For each argument that is differentiated, `rule(tangent, result, *arguments)` gives its contribution to the
                tangent of the result; `None` is a zero contribution.

        Raises:
            ConfigError: The function has arguments that are not differentiated; use `defjvp`.
            ShapeError (on a call of the function): The numbers of rules and arguments differ. See also `defjvp`.
        """
        what = f"{self.title}: {self.name}.defjvps"
        expect_rules(what, *(rule for rule in rules if rule is not None))
        if self.nondiff_argnums or self.nondiff_argnames:
            raise ConfigError(f"{what} takes a rule for each argument, and some have none", hint="use defjvp")

        def each(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
            if len(rules) != len(primals):
                raise ShapeError(f"{what} has {len(rules)} rules for {len(primals)} arguments")
            result = self(*primals)  # type: ignore[call-arg]
            stated = [(rule, t) for rule, t in zip(rules, tangents, strict=True) if rule is not None]
            parts = [rule(t, result, *primals) for rule, t in stated]
            return result, functools.reduce(operator.add, parts) if parts else zeros_like(result)

        self._rule = each

    def op_of(self, call: Call) -> tuple[CustomFn, Sequence[Value]]:
        arguments, results = call.arguments.leaves, call.result_leaves
        moving = [leaf for leaf in arguments if is_moving(leaf.type)]
        tangents = tuple(Leaf(f"tangent_{leaf.name}", "input", leaf.type) for leaf in moving)
        count = len(arguments)

        def pushed(leaves: list[Any]) -> list[Value]:
            x, supplied, y = leaves[:count], iter(leaves[count:]), leaves[count + len(tangents) :]
            # A value without a tangent gets a zero of its own type.
            t = [
                next(supplied) if is_moving(leaf.type) else zeros_like(v) for leaf, v in zip(arguments, x, strict=True)
            ]
            with tracing_rule(self, x, call.traced.results.unflatten(y)):
                return self._pushed(call, x, t)

        rule = traced(f"{self.name}_jvp", (*arguments, *tangents, *results), pushed)
        captured = list(dict.fromkeys([*call.traced.captures.values(), *rule.captures.values()]))
        fwd = closed(call.traced, arguments, captured)
        jvp = closed(rule, arguments, captured, (*tangents, *results))
        return CustomFn(fwd, jvp_graph=jvp, unstated=len(captured)), captured

    def _pushed(self, call: Call, x: Sequence[Any], t: Sequence[Any]) -> list[Value]:
        """Return the tangents of the float and complex results."""
        assert self._rule is not None, "the rule is there before it is traced"
        what = f"{self.title}: {function_name(self._rule)} of {self.name}"
        rule = Fact("rule", line_of(self._rule))
        fixed = [value for _, value in sorted(call.fixed.items())]
        returned = self._rule(*fixed, tuple(call.given(x)), tuple(call.given(t)))
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            raise ShapeError(f"{what} must return a pair, the result and its tangent, not {counted(returned)}", rule)
        types = [v.type for v in call.traced.graph.outputs]
        leaves_like(f"{what}: its result", returned[0], call.traced.results, types, rule)
        with_tangents = [type if is_moving(type) else None for type in types]
        output_tangents = leaves_like(f"{what}: its tangent", returned[1], call.traced.results, with_tangents, rule)
        return [tangent for tangent in output_tangents if tangent is not None]
