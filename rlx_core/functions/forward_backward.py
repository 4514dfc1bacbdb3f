"""`forward_backward`: a function and its gradients as two programs that share a parameter buffer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from attrs import field

from rlx_core.errors import ConfigError, Fact, ShapeError
from rlx_core.errors.lacks import typed_lacks
from rlx_core.functions.calls import as_arrays
from rlx_core.functions.weight_layout import WeightLayout
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.graph import Graph
from rlx_core.ops.arguments import flag, names
from rlx_core.pipeline.compile import Config
from rlx_core.pipeline.forward import transforming_for
from rlx_core.plugins import PluginHost
from rlx_core.runtime.arrays import Declared, checked
from rlx_core.runtime.executable import Executable
from rlx_core.runtime.program import compile_program
from rlx_core.runtime.signature import Signature
from rlx_core.system.floating import in_standard_modes
from rlx_core.system.locks import forks_wait
from rlx_core.system.records import frozen
from rlx_core.transforms.contributed import engine_for
from rlx_core.transforms.forward import prepared
from rlx_core.transforms.split import Split, split_vjp
from rlx_core.transforms.trace import Trace, is_static_leaf, leaf_type, trace
from rlx_core.trees.flatten import (
    Tree,
    bind_arguments,
    expect_function,
    flatten,
    flatten_arguments,
    same_structure,
    single,
)

_WHAT: Final = "forward_backward"


@checked_call
@typed_lacks(_WHAT)
@in_standard_modes
@forks_wait
def forward_backward(
    function: Callable[..., Any],
    params: Any,
    *args: Any,
    wrt: str | Sequence[str] | None = None,
    has_aux: bool = False,
    target: str | None = None,
    config: Config = None,
    host: PluginHost | None = None,
) -> ForwardBackward:
    """A function and its reverse derivative as two compiled programs, for code that runs between the two.

    `value, saved = pair.forward(*args)` computes the function and saves the residuals of its derivative, and
    `pair.backward(saved)` returns the gradients. The weights are in one buffer that both programs read: an assignment to
    `pair.weights` affects both. If no code runs in between, `rlx.train_step` is one program, and faster.

    Args:
        function: `function(params, *args)`, arrays in any pytree out.
        params: A pytree of arrays, the weights; they are copied to the shared buffer.
        args: The function's other arguments: `rlx.spec`s, or arrays for their types; Python scalars are constants.
        wrt: The leaves to differentiate by, by name (`"params.w"`, `"x"`); by default all of `params`.
        has_aux: Whether the function returns `(result, aux)`, of which only the first is differentiated.
        target, config, host: As for `rlx.compile`.

    Raises:
        ConfigError: There are no weights, or `wrt` is not a sequence of names.
        UnknownNameError, DtypeError: A name in `wrt` is not a leaf, or the leaf is not floating-point.
        MissingRuleError: An op on the path has no derivative.

    >>> pair = rlx.forward_backward(lambda w, x: rlx.sum((w - x) ** 2), np.float32([1, 2]), rlx.spec("f32[2]"))
    >>> value, saved = pair.forward(np.float32([3, 3]))
    >>> value, pair.backward(saved)
    (Array(5., dtype=float32), Array([-4., -2.], dtype=float32))
    """
    expect_function(_WHAT, function)
    flag(f"{_WHAT}: has_aux", has_aux)
    by = None if wrt is None else names(f"{_WHAT}: wrt", wrt, 'wrt="params.w"')
    params = as_arrays(params)
    leaves, _ = flatten(params)
    if not [leaf_type(leaf) for leaf in leaves if not is_static_leaf(leaf)]:
        raise ConfigError(
            f"{_WHAT}: params has no arrays, so there are no weights", Fact("params", type(params).__name__)
        )
    arguments = bind_arguments(function, (params, *args), {})
    first, *free = arguments
    with transforming_for(config, host):
        traced = trace(function, (params, *args))
        graph = prepared(traced.graph)
        dynamic_names = {leaf.name for leaf in traced.leaves if leaf.role != "static"}
        leaves, tree = flatten_arguments({first: arguments[first]})
        weights = {name: leaf for name, leaf in zip(tree.names, leaves, strict=True) if name in dynamic_names}
        results = _differentiated(traced, has_aux)
        split = split_vjp(
            graph,
            list(weights if by is None else by),
            sorted(weights),
            outputs=range(len(results.names)),
            engine=engine_for(graph),
        )
    types = graph.input_types
    layout = WeightLayout.of({name: types[name] for name in weights})
    programs = tuple(
        compile_program(half, target=target, config=config, host=host) for half in (split.forward, split.backward)
    )
    pair = ForwardBackward(
        split,
        layout,
        programs,
        Signature.of(arguments, free, traced),
        results,
        Tree(single(tree), tree.names),
        by,
        layout.allocate(),
    )
    pair.rebind(params)
    return pair


def _differentiated(traced: Trace, has_aux: bool) -> Tree:
    """Return the structure of the results that have cotangents, which come first.

    Raises:
        ShapeError: `has_aux` is set, and the function does not return a pair.
    """
    if not has_aux:
        return traced.results
    returned = traced.results.unflatten(range(len(traced.graph.outputs)))
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise ShapeError(
            f"{_WHAT}: {traced.graph.name} must return (result, aux), because has_aux=True says so",
            Fact("returned", traced.results.structure),
        )
    return flatten(returned[0], "result")[1]


@frozen(eq=False, repr=False)
class Saved:
    """The residuals of one evaluation: unshared arrays, by the names of the backward program's inputs."""

    owner: ForwardBackward
    arrays: Mapping[str, Any]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    def __repr__(self) -> str:
        return f"<saved by {self.owner.graphs[0].name}: {len(self.arrays)} arrays, {self.nbytes} bytes>"


@frozen(eq=False, repr=False)
class ForwardBackward:
    """Two programs that share weights; created by `rlx.forward_backward`.

    Attributes:
        layout: The position of each weight, by name, in the buffer that both programs read.
        programs: The forward and the backward program; the weights are the first inputs of both, by their names.
        region: The bytes of that buffer, u8[layout.nbytes].
    """

    _split: Split
    layout: WeightLayout
    programs: tuple[Executable, ...]
    _signature: Signature
    _results: Tree
    _params: Tree
    _wrt: tuple[str, ...] | None
    region: np.ndarray
    _views: Mapping[str, np.ndarray] = field(init=False)

    @_views.default
    def _in_the_region(self) -> Mapping[str, np.ndarray]:
        return self.layout.views(self.region)

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """`(value, gradients)`: both programs in sequence, for a function that returns one real scalar."""
        value, saved = self.forward(*args, **kwargs)
        return value, self.backward(saved)

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Any, Saved]:
        """`(value, saved)` for the function's arguments after its weights.

        Raises:
            WrongInputCountError, ShapeError, DtypeError, GuardError: The arguments do not match the function.
        """
        inputs = self._signature.inputs(self.graphs[0].name, args, kwargs)
        results = self.programs[0].run_slots([*self._views.values(), *inputs])
        count = len(results) - len(self._split.saved)
        saved = Saved(self, dict(zip(self._split.saved, results[count:], strict=True)))
        return self._signature.results.unflatten(results[:count]), saved

    def backward(self, saved: Saved, cotangents: Any = None) -> Any:
        """The gradients: a pytree like the weights, or with `wrt` a dictionary of its names.

        The weights must still be those that `saved` was computed with: assign to them after this call.

        Args:
            saved: The residuals that `forward` returned; they may be used again.
            cotangents: A pytree like the result; 1 for one real scalar.

        Raises:
            ConfigError: `saved` is of another pair.
            ShapeError, DtypeError: A cotangent does not have the type of its result, or is missing.
        """
        if not (isinstance(saved, Saved) and saved.owner is self):
            raise ConfigError(
                f"backward: takes what the same pair's forward returned, not {saved!r}",
                hint="value, saved = pair.forward(...)",
            )
        seeds = self._ones() if cotangents is None else self._seeds(cotangents)
        gradients = self.programs[1].run_slots([*self._views.values(), *saved.arrays.values(), *seeds])
        if self._wrt is not None:
            return dict(zip(self._wrt, gradients, strict=True))
        return self._params.unflatten(gradients)

    @property
    def graphs(self) -> tuple[Graph, Graph]:
        """The forward and the backward program before fusion for a target."""
        return self._split.forward, self._split.backward

    @property
    def weights(self) -> Any:
        """The weights: a pytree of writable arrays in the buffer that both programs read."""
        return self._params.unflatten([self._views[name] for name in self._params.names])

    def rebind(self, params: Any) -> None:
        """Copy other weights to the shared buffer.

        Raises:
            ShapeError, DtypeError: The structure or a type differs; nothing was written in that case.
        """
        leaves, tree = flatten(as_arrays(params), "params")
        same_structure(self.graphs[0].name, self._params, tree)
        named = zip(self._params.names, leaves, strict=True)
        ready = {name: checked(Declared(name, self.layout.places[name].type), leaf) for name, leaf in named}
        copies = [array.copy() for array in ready.values()]  # copied first: they may be these weights, in another order
        for name, array in zip(ready, copies, strict=True):
            self._views[name][...] = array

    def __repr__(self) -> str:
        return f"<{self.graphs[0].name} and {self.graphs[1].name}: {self.layout.nbytes} bytes of weights>"

    def _ones(self) -> list[Any]:
        types = [self.graphs[1].input_types[name] for name in self._split.cotangents]
        if len(types) != 1 or types[0].rank or not types[0].dtype.is_float:
            listed = ", ".join(map(str, types))
            raise ShapeError(
                f"backward: {self.graphs[0].name} returns {listed}, not one real scalar",
                hint="pair.backward(saved, cotangents), of the structure of the result",
            )
        return [np.ones((), types[0].dtype.numpy)]

    def _seeds(self, cotangents: Any) -> list[Any]:
        flat, tree = flatten(cotangents, "result")
        same_structure("backward", self._results, tree)
        outputs = zip(flat, self.graphs[0].outputs, strict=False)
        taken = [(c, v.dtype) for c, v in outputs if v.dtype.is_differentiable]
        return [np.asarray(c, seed_dtype.numpy) if is_static_leaf(c) else c for c, seed_dtype in taken]
