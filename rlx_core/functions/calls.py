"""A function traced on the arguments of one call inside a trace, which every transformation of functions starts from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import evolve

from rlx_core.errors import AxisError, DtypeError, Fact
from rlx_core.ir.dtypes import weak_dtype
from rlx_core.ir.graph import Builder, Graph, Value, ambient_builder
from rlx_core.ir.rewrite import inline
from rlx_core.ir.types import TensorType
from rlx_core.system.records import frozen
from rlx_core.transforms.forward import prepared
from rlx_core.transforms.lifting import as_value, current_builder, of_type
from rlx_core.transforms.trace import Trace, trace
from rlx_core.trees.flatten import Tree, bind_arguments, flatten, flatten_arguments, single

Function = Callable[..., Any]
Results = tuple[Value, ...]


@frozen(eq=False)
class Call:
    """A function traced on the arguments of one call, and those arguments as values of the enclosing trace."""

    builder: Builder
    traced: Trace
    values: Mapping[str, Value]
    subtrees: Mapping[str, Tree]

    def select(self, what: str, argnums: int | Sequence[int]) -> tuple[str, ...]:
        """Return the names of the arguments at these positions.

        Raises:
            AxisError: There are fewer arguments, or something else than a position was given.
        """
        names = list(self.subtrees)
        positions = [argnums] if isinstance(argnums, int) else argnums
        for position in positions:
            if not isinstance(position, int) or not -len(names) <= position < len(names):
                raise AxisError(
                    f"{what}: argument {position!r} of a call with {len(names)} arguments",
                    Fact("arguments", ", ".join(f"{i} {name}" for i, name in enumerate(names))),
                )
        return tuple(names[p] for p in positions)

    def differentiable(self, what: str, arguments: Sequence[str]) -> list[str]:
        """Return the names of all leaves of these arguments.

        Raises:
            DtypeError: A leaf is an integer, a bool or a Python scalar.
        """
        leaves = [n for a in arguments for n in self.subtrees[a].names]
        statics = {leaf.name: type(leaf.static).__name__ for leaf in self.traced.leaves if leaf.role == "static"}
        for name in leaves:
            description = self.values[name].dtype if name in self.values else f"the Python {statics[name]}"
            if name not in self.values or not self.values[name].dtype.is_differentiable:
                raise DtypeError(
                    f"{what}: argument {name} is {description}, and only floating-point arrays have derivatives",
                    hint=f"pass {name} as another argument, which argnums= does not name, or let the function capture it",
                )
        return leaves

    def inline(self, graph: Graph, added: Sequence[Any] = (), leaves: Mapping[str, Value] | None = None) -> Results:
        """Inline a transformed graph on this call's arguments; `added` feeds its additional inputs, in order.

        The nodes go to the innermost trace, which can differ from the call's: a pullback may be mapped.

        Raises:
            ShapeError, DtypeError: A tangent or cotangent does not have the type of its primal.
        """
        builder = ambient_builder() or self.builder
        declared = self.traced.graph.input_types
        extra = {name: type for name, type in graph.input_types.items() if name not in declared}
        bindings = {**self.values, **(leaves or {}), **self.traced.captures}
        bindings |= {n: of_type(builder, n, a, t) for (n, t), a in zip(extra.items(), added, strict=True)}
        return inline(builder, graph, bindings)

    def prepared(self) -> Call:
        """Return the call with its function prepared for reverse differentiation."""
        return evolve(self, traced=evolve(self.traced, graph=prepared(self.traced.graph)))

    def held(self) -> Call:
        """Return the call with copies of its values, so that later assignments by the caller do not change its arguments."""

        def own(values: Mapping[str, Value]) -> dict[str, Value]:
            return {name: Value(v.node, v.index) for name, v in values.items()}

        return evolve(self, values=own(self.values), traced=evolve(self.traced, captures=own(self.traced.captures)))

    def returned(self, outputs: Sequence[Any]) -> Any:
        """Return the function's result, with these leaves."""
        return self.traced.results.unflatten(outputs)

    def argument(self, name: str, leaves: Mapping[str, Any]) -> Any:
        """Return one argument's pytree with other leaves."""
        tree = self.subtrees[name]
        return tree.unflatten([leaves[n] for n in tree.names])


def as_arrays(argument: Any) -> Any:
    """Return an argument with its Python floats as arrays of the default dtype, so that it can be differentiated by them."""
    leaves, tree = flatten(argument)
    if not any(type(leaf) is float for leaf in leaves):
        return argument
    return tree.unflatten(
        [np.asarray(leaf, weak_dtype(leaf).numpy) if type(leaf) is float else leaf for leaf in leaves]
    )


def differentiable_arguments(args: Sequence[Any], argnums: int | Sequence[int]) -> list[Any]:
    """Return positional arguments, with arrays at `argnums`. An invalid position is refused later, with its name."""
    positions = [argnums] if isinstance(argnums, int) else list(argnums)
    chosen = {p % len(args) for p in positions if isinstance(p, int) and args}
    return [as_arrays(a) if i in chosen else a for i, a in enumerate(args)]


def enter(what: str, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """Trace `function` on the arguments of a call inside a trace; a `TensorType` is a placeholder for a future argument."""
    builder = current_builder(what)
    traced = trace(function, args, kwargs, capturing=True)
    named = bind_arguments(function, args, kwargs)
    flat, _ = flatten_arguments(named)
    values = {
        leaf.name: as_value(builder, value)
        for leaf, value in zip(traced.leaves, flat, strict=True)
        if leaf.role != "static" and not isinstance(value, TensorType)
    }
    subtrees = {name: flatten_arguments({name: value}) for name, value in named.items()}
    return Call(builder, traced, values, {n: Tree(single(t), t.names) for n, (_, t) in subtrees.items()})
