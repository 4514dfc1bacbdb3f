"""`custom_vjp`: a function with a custom reverse derivative, in two halves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import optree

from rlx_core.errors import Fact, ShapeError
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
from rlx_core.trees.flatten import flatten, function_name

P = ParamSpec("P")
R = TypeVar("R")


class custom_vjp(CustomFunction[P, R]):
    """A function with a custom reverse derivative, defined by `defvjp`.

    Args:
        function: Any function of pytrees of arrays.
        nondiff_argnums, nondiff_argnames: Arguments that are not arrays and have no derivative: functions, settings.

    >>> @rlx.custom_vjp
    ... def log1pexp(x):
    ...     return rlx.log(1 + rlx.exp(x))
    >>> def forward(x):
    ...     return log1pexp(x), x
    >>> def backward(x, g):
    ...     return (g * rlx.sigmoid(x),)
    >>> log1pexp.defvjp(forward, backward)
    >>> rlx.grad(log1pexp)(np.float32(100))
    Array(1., dtype=float32)
    """

    title = "custom_vjp"
    advice = "f.defvjp(fwd, bwd) with fwd(*args) -> (result, residuals) and bwd(residuals, cotangent) -> cotangents"
    _rule: tuple[Callable[..., Any], Callable[..., Any]] | None = None

    @property
    def has_rule(self) -> bool:
        return self._rule is not None

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Define the derivative.

        Args:
            fwd: Takes the arguments of the function; returns its result, and a pytree of residuals for `bwd`.
            bwd: Takes the arguments that are not differentiated, then the residuals, then the cotangent of the result; returns
                a tuple with the cotangent of each other argument. `None` is a zero cotangent.

        Raises (on a call of the function):
            ShapeError, DtypeError: `fwd` does not return a pair, or another result than the function; `bwd` returns another
                number of cotangents, or one of another structure or type than its argument.
        """
        expect_rules(f"{self.title}: {self.name}.defvjp", fwd, bwd)
        self._rule = fwd, bwd

    def op_of(self, call: Call) -> tuple[CustomFn, Sequence[Value]]:
        zero_positions: list[int] = []
        results, arguments = call.result_leaves, call.arguments.leaves
        cotangents = tuple(
            Leaf(f"cotangent_{leaf.name}", "input", leaf.type) for leaf in results if is_moving(leaf.type)
        )
        count = len(arguments)

        def pulled(leaves: list[Any]) -> list[Value]:
            x, y, g = leaves[:count], leaves[count : count + len(results)], iter(leaves[count + len(results) :])
            # An integer result has no cotangent; zeros in its place only preserve the structure.
            full = [next(g) if v.dtype.is_differentiable else zeros_like(v) for v in y]
            result_tree = call.traced.results
            with tracing_rule(self, x, result_tree.unflatten(y)):
                cotangents = self._pulled(call, x, result_tree.unflatten(full))
            zero_positions.extend(
                i
                for i, (leaf, c) in enumerate(zip(inputs, cotangents, strict=True))
                if c is None and is_moving(leaf.type)
            )
            return [c for c in cotangents if c is not None]

        inputs = [leaf for leaf in arguments if leaf.role == "input"]
        rule = traced(f"{self.name}_vjp", (*arguments, *results, *cotangents), pulled)
        captured = list(dict.fromkeys([*call.traced.captures.values(), *rule.captures.values()]))
        fwd = closed(call.traced, arguments, captured)
        vjp = closed(rule, arguments, captured, (*results, *cotangents))
        return CustomFn(fwd, vjp, held=tuple(zero_positions), unstated=len(captured)), captured

    def _pulled(self, call: Call, x: Sequence[Any], g: Any) -> list[Value | None]:
        """Return the cotangent of each argument's leaf that is an input; `None` if it is zero, or not a number."""
        assert self._rule is not None, "the rule is there before it is traced"
        fwd, bwd = self._rule
        residuals = self._saved(call, fwd(*call.everything(x)))
        fixed = [value for _, value in sorted(call.fixed.items())]
        returned = bwd(*fixed, residuals, g)
        rule = Fact("bwd", line_of(bwd))
        names = call.arguments.names
        what = f"{self.title}: {function_name(bwd)} of {self.name}"
        if not isinstance(returned, tuple | list) or len(returned) != len(names):
            expected = f"a tuple of {len(names)} ({', '.join(names)})"
            raise ShapeError(f"{what} must return the cotangents as {expected}, not {counted(returned)}", rule)
        cotangents: list[Value | None] = []
        for name, argument, cotangent in zip(names, call.given(x), returned, strict=True):
            cotangents += self._cotangents(f"{what}: the cotangent of {name}", argument, cotangent, rule)
        return cotangents

    def _saved(self, call: Call, returned: Any) -> Any:
        """Return the residuals that `fwd` returned, after checking its result against the function's."""
        assert self._rule is not None
        what = f"{self.title}: {function_name(self._rule[0])} of {self.name}"
        rule = Fact("fwd", line_of(self._rule[0]))
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            raise ShapeError(f"{what} must return a pair, the result and what bwd needs, not {counted(returned)}", rule)
        result, residuals = returned
        leaves_like(
            f"{what}: its result", result, call.traced.results, [v.type for v in call.traced.graph.outputs], rule
        )
        return residuals

    @staticmethod
    def _cotangents(what: str, argument: Any, cotangent: Any, rule: Fact) -> list[Value | None]:
        """Return the cotangents of one argument's inputs; `None`, for the argument or a leaf of it, means zero."""
        leaves, tree = flatten(argument)
        argument_leaves, structure = optree.tree_flatten(argument, none_is_leaf=True)
        cotangent_leaves, found_structure = optree.tree_flatten(cotangent, none_is_leaf=True)
        is_zero = [cotangent is None] * len(leaves)
        if cotangent is None:
            cotangent = argument
        elif found_structure == structure:  # otherwise the structure differs, which is refused below
            is_zero = [
                new is None for new, old in zip(cotangent_leaves, argument_leaves, strict=True) if old is not None
            ]
            cotangent = structure.unflatten(
                [old if new is None else new for new, old in zip(cotangent_leaves, argument_leaves, strict=True)]
            )
        types = [
            leaf.type if isinstance(leaf, Value) and leaf.dtype.is_differentiable and not none else None
            for leaf, none in zip(leaves, is_zero, strict=True)
        ]
        cotangents = leaves_like(what, cotangent, tree, types, rule)
        return [c for c, leaf in zip(cotangents, leaves, strict=True) if isinstance(leaf, Value)]
