"""The explicit builder interface: a graph built op by op, by name.

`g.matmul(x, w)` is the op `rlx.matmul`, and every op of a plugin is available in the same way: the builder has no separate
list of ops. Names that are no op's are functions of the Python Array API (`g.expand_dims`) or of `rlx_core.nn`
(`g.linear`). Values it returns carry Python's operators.

    g = GraphBuilder("mlp")
    x, w = g.input("x", "f32[batch, 64]"), g.param("w", "f32[64, 10]")
    g.set_outputs(g.softmax(g.linear(x, w), axis=-1))
    graph = g.build()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import rlx_core.ops
from rlx_core import nn
from rlx_core.errors import FormatError, ShapeError, TraceError, UnknownNameError, nearest
from rlx_core.ir.apply import apply, as_array, op_function
from rlx_core.ir.dtypes import DType, weak_dtype
from rlx_core.ir.graph import Builder, Graph, Value, as_results, building
from rlx_core.ir.op import Op
from rlx_core.ir.provenance import locating
from rlx_core.ir.types import Shape, TensorType, spec
from rlx_core.pipeline.contributed import HostOps
from rlx_core.plugins import PluginHost, default_host
from rlx_core.public import FUNCTIONS


class GraphBuilder:
    """A graph being built by hand, HIR or MIR; see the module's docstring.

    Args:
        name: The graph's name.
        host: The plugins whose ops there are; everything installed by default.
    """

    def __init__(self, name: str = "main", *, host: PluginHost | None = None) -> None:
        self._builder = Builder(name)
        self._host = host
        self._outputs: tuple[Value, ...] | None = None

    # -------------------------------------------------------------------------------- leaves

    def input(self, name: str, type: str | TensorType) -> Value:
        """A new input; FormatError if the name is taken."""
        return self._builder.input(name, spec(type))

    def param(self, name: str, type: str | TensorType) -> Value:
        """A new parameter; FormatError if the name is taken."""
        return self._builder.param(name, spec(type))

    def constant(self, data: Any, dtype: DType | None = None) -> Value:
        """Literal data: an array, or a number (f32, i64, bool or c64 by its kind unless `dtype` is given)."""
        if dtype is None and type(data) in (bool, int, float, complex):
            return self._builder.constant(data, weak_dtype(data))
        return self._builder.constant(data if dtype is not None else as_array(data), dtype)

    # ----------------------------------------------------------------------------------- ops

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        function = self._function(name)

        def call(*operands: Any, **attributes: Any) -> Any:
            with building(self._builder), locating():
                return function(*operands, **attributes)

        call.__name__, call.__doc__ = function.__name__, function.__doc__
        return call

    def apply(self, op: Op, *operands: Any, type: str | TensorType | None = None, name: str | None = None) -> Any:
        """A node of any op. A stated result type must be the inferred one.

        Raises:
            ShapeError: The stated type is another.
        """
        with building(self._builder):
            results = apply(op, operands, name=name)
        first = as_results(results)[0]
        if type is not None and first.type != spec(type):
            raise ShapeError(f"{op.name}: the stated type is {spec(type)}, the inferred one {first.type}")
        return results

    def binary(self, kind: str, a: Any, b: Any) -> Any:
        """A binary op by name: add, sub, mul, div, max, min, pow."""
        return self.__getattr__(kind)(a, b)

    def activation(self, kind: str, x: Any, **attributes: Any) -> Any:
        """An activation by name: gelu, silu, relu, tanh and so on."""
        return self.__getattr__(kind)(x, **attributes)

    def compare(self, kind: str, a: Any, b: Any) -> Any:
        """A comparison by name: eq, ne, lt, le, gt, ge."""
        return self.__getattr__(kind)(a, b)

    def reduce(self, kind: str, x: Any, axes: tuple[int, ...], *, keep_dim: bool = False) -> Any:
        """A reduction by name: sum, mean, max, min, prod."""
        # `max` and `min` of two values are ops too.
        name = f"reduce_{kind}"
        reduction = name if name in _by_short_name(self._plugins) else kind
        return self.__getattr__(reduction)(x, axes=axes, keep_dim=keep_dim)

    # ------------------------------------------------------------------------------- the graph

    def set_outputs(self, *outputs: Any) -> None:
        """Set the values that the graph returns, in order.

        Raises:
            TraceError: One is not a value, or is another graph's.
        """
        for i, output in enumerate(outputs):
            if not isinstance(output, Value):
                kind = type(output).__name__
                raise TraceError(
                    f"graph {self._builder.name}: output {i} is {kind}, not a value", hint="use constant(...)"
                )
        self._outputs = tuple(self._builder._own(output) for output in outputs)

    def shape_of(self, value: Value) -> Shape:
        return value.shape

    def dtype_of(self, value: Value) -> DType:
        return value.dtype

    def build(self) -> Graph:
        """The finished graph; the builder takes no more nodes.

        Raises:
            FormatError: No outputs were set.
        """
        if self._outputs is None:
            raise FormatError(f"graph {self._builder.name}: it has no outputs", hint="call set_outputs(...) first")
        return self._builder.finish(self._outputs)

    def __len__(self) -> int:
        return len(self._builder.nodes)

    def __repr__(self) -> str:
        state = "finished" if self._builder.is_finished else "open"
        return f"GraphBuilder({self._builder.name!r}, {len(self)} nodes, {state})"

    @property
    def _plugins(self) -> PluginHost:
        return self._host or default_host()

    def _function(self, name: str) -> Callable[..., Any]:
        ops, layers = _by_short_name(self._plugins), vars(nn)["__all__"]
        for each in (name, name.removesuffix("_")):  # `where_`, `if_`: names that Python has taken
            if each in ops:
                return op_function(HostOps(self._plugins)[ops[each]])
            if each in FUNCTIONS:
                function: Callable[..., Any] = getattr(rlx_core.ops, each)
                return function
            if each in layers:
                layer: Callable[..., Any] = getattr(nn, each)
                return layer
        raise UnknownNameError(f"graph: no op is called {name!r}", hint=nearest(name, [*ops, *FUNCTIONS, *layers]))


def _by_short_name(host: PluginHost) -> Mapping[str, str]:
    """Short name → full name, of ops and of blocks; where two domains share a short name, `rlx`'s own comes first."""
    registry = host.activate_all()
    names = sorted([*registry.ops, *registry.blocks], key=lambda name: name.startswith("rlx."))
    return {name.partition(".")[2]: name for name in names}
