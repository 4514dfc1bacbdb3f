"""Implementation of `from_jax`: the jaxpr of a function, walked when the model is traced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax

import rlx_core as rlx
from rlx_core.errors import ConfigError, Fact
from rlx_core.functions.model import argument_names
from rlx_core.trees.flatten import bind_arguments, function_name
from rlx_jax.sizes import Sizes, as_spec
from rlx_jax.trees import parted, register_nodes
from rlx_jax.walk import JaxprWalk, array_of, expect_supported


def imported(function: Callable[..., Any], args: tuple[Any, ...], name: str | None) -> rlx.Model:
    """The model of a function; see `from_jax`."""
    called = name or function_name(function)
    sizes = Sizes()
    bound = bind_arguments(function, args, {})
    arguments = dict(zip(argument_names(bound), bound.values(), strict=True))
    inputs = {each: specs_of(each, operands) for each, operands in arguments.items() if is_input(each, operands)}
    if not inputs:
        raise ConfigError(
            f"from_jax: {called} has no inputs: every argument is of arrays, which become parameters",
            Fact("arguments", ", ".join(arguments) or "none"),
            hint='declare those that change from call to call: rlx.spec("f32[batch, 64]")',
        )
    register_nodes(arguments)
    parameters = {each: parted(operands) for each, operands in arguments.items() if each not in inputs}
    structs = {
        each: jax.tree_util.tree_map(lambda spec, each=each: sizes.struct(each, spec), inputs[each], is_leaf=is_spec)
        for each in inputs
    }

    def traced(*trees: Any) -> Any:
        operands = dict(zip(arguments, trees, strict=True))
        return function(
            *(parameters[each][1].whole(tree) if each in parameters else tree for each, tree in operands.items())
        )

    closed, shapes = jax.make_jaxpr(traced, return_shape=True)(
        *(parameters[each][0] if each in parameters else structs[each] for each in arguments)
    )
    expect_supported(called, closed.jaxpr)
    register_nodes(shapes)
    results = jax.tree_util.tree_structure(shapes)

    def run(parameters: Mapping[str, Any], *values: Any) -> Any:
        operands = dict(parameters) | dict(zip(inputs, values, strict=True))
        here = sizes.bound(*(jax.tree_util.tree_leaves([tree[each] for each in inputs]) for tree in (inputs, operands)))
        walk = JaxprWalk(called, here)
        computed = walk.run(closed, jax.tree_util.tree_leaves([operands[each] for each in arguments]))
        walk.finish()
        return jax.tree_util.tree_unflatten(results, computed)

    weights = {each: jax.tree_util.tree_map(array_of, arrays) for each, (arrays, _) in parameters.items()}
    return rlx.Model(name=called, function=run, parameters=weights, inputs=inputs)


def is_spec(leaf: Any) -> bool:
    return isinstance(leaf, rlx.TensorType | jax.ShapeDtypeStruct)


def is_input(name: str, argument: Any) -> bool:
    """Return whether an argument is fed on every call; ConfigError if only a part of it is."""
    kinds = {is_spec(leaf) for leaf in jax.tree_util.tree_leaves(argument, is_leaf=is_spec)}
    if len(kinds) == 2:
        raise ConfigError(
            f"from_jax: argument {name} mixes arrays and specs",
            Fact("arrays", "become parameters"),
            Fact("specs", "are inputs of each call"),
            hint="split it into two arguments",
        )
    return True in kinds


def specs_of(name: str, argument: Any) -> Any:
    """An input in rlx's specs."""
    return jax.tree_util.tree_map(
        lambda leaf: leaf if isinstance(leaf, rlx.TensorType) else as_spec(leaf, f"from_jax: {name}"),
        argument,
        is_leaf=is_spec,
    )
