"""Running a graph of ATen ops on values of rlx: every node's handler in turn."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from attrs import Factory, field, frozen

import rlx_core as rlx
from rlx_core import random
from rlx_core.errors import unsupported
from rlx_torch.arrays import DTYPES, array_of
from rlx_torch.aten import DRAWS, TABLE
from rlx_torch.aten.context import Here, Refused, here
from rlx_torch.aten.sizes import PYTHON
from rlx_torch.symbols import type_of

__all__ = ["EFFECT", "Walk", "name_of"]

# Arguments that only describe the storage of a result, or select a generator.
STORAGE: Final = frozenset({"device", "layout", "memory_format", "pin_memory", "non_blocking", "generator"})

EFFECT: Final = "higher_order::with_effects.default"
"""An op that torch keeps in order with others by a token: here, the op."""

INSTEAD: Final[dict[str, str]] = {
    "nonzero.default": "torch.where(condition, a, b), whose size is known before it runs",
    "_local_scalar_dense.default": "the value as a tensor of rank 0: .item() is only known when the program runs",
    "resize_.default": "torch.zeros(shape) or reshape",
}


def name_of(target: Any) -> str:
    """Return the name of a node's target, as in the table: `add.Tensor`, `prims::iota.default`, `operator.add`."""
    if isinstance(target, torch._ops.OpOverload):
        space, _, name = target.name().partition("::")
        overload = name if "." in name else f"{name}.default"
        return overload if space == "aten" else f"{space}::{overload}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order::{target.name()}.default"
    module = getattr(target, "__module__", "") or ""
    return f"{module.lstrip('_')}.{target.__name__}" if callable(target) else str(target)


@frozen(eq=False)
class Walk:
    """A graph of torch as a function of values: `walk(*inputs)` returns the graph's results, one value for each output.

    Attributes:
        module: The graph, functional: nothing in it writes into an operand.
        name: Its name in errors.
        symbols: Names of symbolic sizes by torch's name for them.
    """

    module: torch.fx.GraphModule
    name: str
    symbols: Mapping[str, str] = field(default=Factory(dict))

    def missing(self) -> dict[str, list[str]]:
        """Operations without a handler → the nodes that use them."""
        uses: dict[str, list[str]] = {}
        for node in _calls(self.module):
            name = name_of(node.target)
            name = name_of(node.args[1]) if name == EFFECT else name
            if name not in TABLE and name not in PYTHON:
                uses.setdefault(name, []).append(place_of(node))
        return uses

    def expect_supported(self) -> None:
        """Raise the error that names every operation without a handler.

        Raises:
            UnsupportedError: There is one.
        """
        uses = self.missing()
        if uses:
            raise unsupported(self.name, uses, INSTEAD)

    @property
    def draws(self) -> bool:
        """Whether random numbers are drawn, so that a key is needed."""
        return any(_draws(node) for node in _calls(self.module))

    def __call__(self, *inputs: Any, key: random.Key | None = None) -> list[Any]:
        """Return the graph's results for values, sizes and `None`, in the order of its placeholders.

        Raises:
            UnsupportedError: A handler does not support its operands; all such nodes are named.
        """
        refused = _Refused()
        token = here.set(Here(key))
        try:
            found = self._run(self.module, inputs, refused)
        finally:
            here.reset(token)
        if refused.uses:
            raise unsupported(self.name, refused.uses, refused.instead)
        return found

    def _run(self, module: torch.fx.GraphModule, inputs: Sequence[Any], refused: _Refused) -> list[Any]:
        known: dict[torch.fx.Node, Any] = {}
        given = iter(inputs)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                known[node] = next(given)
            elif node.op == "get_attr":
                known[node] = self._attribute(module, node.target, refused)
            elif node.op == "output":
                returned = node.args[0] if isinstance(node.args[0], tuple | list) else node.args
                return [self._argument(each, known) for each in returned]
            else:
                known[node] = self._handled(node, known, refused)
        raise AssertionError(f"{self.name}: the graph returns nothing")

    def _handled(self, node: torch.fx.Node, known: dict[torch.fx.Node, Any], refused: _Refused) -> Any:
        name = name_of(node.target)
        here.get().node = node
        args = [self._argument(each, known) for each in node.args]
        named = {n: self._argument(each, known) for n, each in node.kwargs.items() if n not in STORAGE}
        try:
            if name == EFFECT:
                return [args[0], TABLE[name_of(node.args[1])](*args[2:], **named)]
            return (TABLE.get(name) or PYTHON[name])(*args, **named)
        except Refused as problem:
            refused.uses.setdefault(name, []).append(place_of(node))
            refused.instead[name] = problem.instead
            return self._blank(node.meta["val"])

    def _argument(self, given: Any, known: Mapping[torch.fx.Node, Any]) -> Any:
        if isinstance(given, torch.fx.Node):
            return known[given]
        if isinstance(given, tuple | list):
            return [self._argument(each, known) for each in given]
        return DTYPES.get(given, given) if isinstance(given, torch.dtype) else given

    def _attribute(self, module: torch.fx.GraphModule, path: str, refused: _Refused) -> Any:
        """A constant as a value, or a graph inside of this one as a function."""
        found = module
        for part in path.split("."):
            found = getattr(found, part)
        if isinstance(found, torch.fx.GraphModule):
            return lambda *inputs: self._run(found, inputs, refused)
        return rlx.asarray(array_of(found))

    def _blank(self, like: Any) -> Any:
        """Return a placeholder of the type of a refused result, so that the walk can collect further refusals."""
        if isinstance(like, torch.Tensor):
            kind = type_of(like, self.symbols)
            return rlx.zeros(kind.shape, dtype=kind.dtype)
        return [self._blank(each) for each in like] if isinstance(like, tuple | list) else like


class _Refused:
    """The refusals of handlers on one walk: uses and alternatives, by operation."""

    def __init__(self) -> None:
        self.uses: dict[str, list[str]] = {}
        self.instead: dict[str, str] = {}


def _calls(module: torch.fx.GraphModule) -> Iterator[torch.fx.Node]:
    """Every call in a graph and in the graphs inside of it."""
    for each in module.modules():
        if isinstance(each, torch.fx.GraphModule):
            yield from (node for node in each.graph.nodes if node.op == "call_function")


def _draws(node: torch.fx.Node) -> bool:
    name = name_of(node.target)
    if name in ("dropout.default", "scaled_dot_product_attention.default"):
        schema = [argument.name for argument in node.target._schema.arguments]
        given = dict(zip(schema, node.args, strict=False)) | dict(node.kwargs)
        return bool(given.get("train") if name == "dropout.default" else given.get("dropout_p"))
    if name.split(".")[0] in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        return bool(node.args[5] and node.args[6])  # dropout between layers, in training
    return name in DRAWS


def place_of(node: torch.fx.Node) -> str:
    """A node with the user's line that made it, as far as torch kept it."""
    lines: list[tuple[str, str]] = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    own = [each for each in lines if "/torch/" not in each[0]] or lines
    return f"{node.name} ({own[-1][0].rsplit('/', 1)[-1]}:{own[-1][1]})" if own else node.name
