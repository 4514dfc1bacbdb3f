"""`torch.compile(module, backend="rlx")`: the forward and the backward graphs of autograd, compiled by rlx.

Dynamo finds this through the entry-point group `torch_dynamo_backends`. A graph that contains an op without a handler is run by
torch, and the log names the op.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._subclasses.fake_tensor import unset_fake_temporarily

import rlx_core as rlx
from rlx_core import random
from rlx_core.errors import (
    ConfigError,
    DtypeError,
    LegalizeError,
    NoKernelError,
    RlxError,
    ShapeError,
    UnsupportedError,
    nearest,
    unsupported,
)
from rlx_core.ir.dims import Dim, free_symbols
from rlx_core.ops.arguments import flag
from rlx_torch.arrays import array_of, tensor_of
from rlx_torch.decompositions import for_autograd
from rlx_torch.symbols import size_of, type_of
from rlx_torch.walk import EFFECT, TorchProgram, name_of

LOG: Final = logging.getLogger("rlx_torch")

OPTIONS: Final = ("target", "config", "strict")

CANNOT: Final = (UnsupportedError, DtypeError, ShapeError, LegalizeError, NoKernelError)
"""Errors that mean that rlx cannot run a graph; any other error, of an option for example, is raised to the user."""


def rlx_backend(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Backend that `torch.compile(…, backend="rlx", options={"target": "cpu"})` calls with each graph that dynamo captured.

    Args:
        module: The graph.
        inputs: Tensors like the arguments of the graph.
        options: `target` and `config`, as `rlx.compile` takes them; with `strict`, a graph that rlx cannot run is an error
            and not left to torch.
        mode: Ignored; every mode is the same.

    Raises:
        ConfigError: An option is unknown.
    """
    values = dict(options or {})
    for name in values:
        if name not in OPTIONS:
            raise ConfigError(f"torch.compile: rlx has no option {name!r}", hint=nearest(name, OPTIONS))
    strict = flag("torch.compile: strict", values.pop("strict", False))

    def compiler(graph: torch.fx.GraphModule, like: Sequence[Any]) -> Callable[..., Any]:
        return compiled_graph(graph, values, strict=strict)

    created = aot_autograd(fw_compiler=compiler, bw_compiler=compiler, decompositions=for_autograd())
    return created(module, inputs)


def compiled_graph(
    graph: torch.fx.GraphModule, options: Mapping[str, Any], *, strict: bool = False
) -> Callable[..., Any]:
    """Return a functional graph of ATen ops compiled by rlx, or the graph itself where rlx cannot, which is logged.

    Raises:
        RlxError: rlx cannot run it, and `strict` is set.
    """
    try:
        with unset_fake_temporarily():  # constants of the graph are tensors with numbers, which are read here
            return make_boxed_func(CompiledModule(graph, options, strict=strict))
    except CANNOT as problem:
        if strict:
            raise
        log_left(problem)
        return make_boxed_func(graph.forward)


def log_left(problem: RlxError) -> None:
    """Log that a graph is run by torch."""
    LOG.warning("left to torch: %s", str(problem).splitlines()[0])


class CompiledModule:
    """A compiled graph: tensors in and out, in the same memory; sizes are read off the tensors that have them.

    Sizes that only a call knows are compiled for in that call. One that rlx cannot compile for is left to torch.
    """

    def __init__(self, graph: torch.fx.GraphModule, options: Mapping[str, Any], *, strict: bool = False) -> None:
        self._graph, self._strict = graph, strict
        placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        tokens = _tokens(graph)
        values = [None if node in tokens else node.meta.get("val") for node in placeholders]
        self._tensors = [i for i, value in enumerate(values) if isinstance(value, torch.Tensor)]
        _expect_on_cpu([values[i] for i in self._tensors])
        outputs = next(node for node in graph.graph.nodes if node.op == "output").args[0]
        # An output that is an input is neither computed nor copied: weights that are saved for the backward pass.
        position = {node: i for i, node in enumerate(placeholders)}
        position |= {node: position[first] for node, first in tokens.items()}
        self._same = [position.get(each) if isinstance(each, torch.fx.Node) else None for each in outputs]
        self._computed = [
            i for i, each in enumerate(outputs) if isinstance(each, torch.fx.Node) and self._same[i] is None
        ]
        self._constant = list(outputs)
        self._walk = TorchProgram(graph, "torch.compile")
        self._symbols = self._walk.symbols
        self._walk.expect_supported()
        self._draws = self._walk.draws
        self._given = values
        self._is_size = [isinstance(outputs[i].meta.get("val"), int | torch.SymInt) for i in self._computed]
        self._options = options
        self._programs: dict[tuple[int, ...], Callable[..., Any] | None] = {}
        types = [type_of(values[i], self._symbols) for i in self._tensors]
        solved = free_symbols(*(n for each in types for n in each.shape if _is_symbol(n)))
        sizes = [size_of(v, self._symbols) for v in values if isinstance(v, int | torch.SymInt)]
        needed = free_symbols(*sizes, *(n for each in types for n in each.shape))
        # A symbol that is no size of a tensor by itself is known from the numbers that come with the call alone.
        self._by_call = [i for i, v in enumerate(values) if isinstance(v, torch.SymInt)] if needed - solved else []
        if not self._by_call and self._computed:
            self._programs[()] = self._compile({}, types)

    def __call__(self, *inputs: Any) -> list[Any]:
        key = tuple(inputs[i] for i in self._by_call)
        computed: Sequence[Any] = ()
        if self._computed:
            program = self._program(key, inputs)
            if program is None:
                return list(self._graph.forward(*inputs))
            computed = program(*self._arrays(inputs))
        results = [inputs[s] if s is not None else c for s, c in zip(self._same, self._constant, strict=True)]
        for i, is_size, value in zip(self._computed, self._is_size, computed, strict=True):
            results[i] = int(value) if is_size else tensor_of(value)
        return results

    def _arrays(self, inputs: Sequence[Any]) -> list[np.ndarray]:
        arrays = [array_of(inputs[i]) for i in self._tensors]
        if self._draws:  # from torch's generator, so that torch.manual_seed applies
            arrays.append(torch.randint(0, 2**32, (2,)).numpy().astype(np.uint32))
        return arrays

    def _program(self, key: tuple[int, ...], inputs: Sequence[Any]) -> Callable[..., Any] | None:
        """The program for the sizes of a call; `None` where rlx cannot compile it."""
        if key not in self._programs:
            sizes = dict(zip(self._by_call, key, strict=True))
            types = [type_of(inputs[i], self._symbols) for i in self._tensors]
            try:
                self._programs[key] = self._compile(sizes, types)
            except CANNOT as problem:
                if self._strict:
                    raise
                log_left(problem)
                self._programs[key] = None
        return self._programs[key]

    def _compile(self, sizes: Mapping[int, int], types: Sequence[Any]) -> Callable[..., Any]:
        """The program for some sizes that the call knows, or for any."""
        arguments: list[Any] = [
            sizes[i] if i in sizes else None if isinstance(v, torch.Tensor) or v is None else size_of(v, self._symbols)
            for i, v in enumerate(self._given)
        ]

        def run(values: Any, key: Any = None) -> Any:
            every = list(arguments)
            for i, value in zip(self._tensors, values, strict=True):
                every[i] = value
            result = self._walk(*every, key=None if key is None else random.wrap_key_data(key))
            return tuple(_as_value(result[i]) for i in self._computed)

        if self._draws:
            specs = [*types, rlx.spec("u32[2]")]
            return rlx.compile(lambda *values: run(values[:-1], values[-1]), *specs, **self._options)
        if not types:
            return rlx.jit(lambda: run(()))
        return rlx.compile(lambda *values: run(values), *types, **self._options)


def _tokens(graph: torch.fx.GraphModule) -> dict[torch.fx.Node, torch.fx.Node]:
    """The nodes that only keep effects in order → the placeholder that their chain begins with."""
    result: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in graph.graph.nodes:
        if node.op == "call_function" and name_of(node.target) == EFFECT:
            first = result.setdefault(node.args[0], node.args[0])
            result |= {user: first for user in node.users if user.args[1] == 0}
    return result


def _as_value(result: Any) -> Any:
    """A result of the program, sizes among them."""
    return result if isinstance(result, rlx.Value) else rlx.asarray(result)


def _is_symbol(size: Dim) -> bool:
    return not isinstance(size, int) and size == rlx.symbol(str(size)) if str(size).isidentifier() else False


def _expect_on_cpu(tensors: Sequence[torch.Tensor]) -> None:
    """Raise where tensors lie elsewhere, or not as arrays do.

    Raises:
        UnsupportedError: There are some.
    """
    uses: dict[str, list[str]] = {}
    for tensor in tensors:
        if tensor.device.type != "cpu":
            uses.setdefault(f"tensors on {tensor.device}", []).append(str(tuple(tensor.shape)))
        elif tensor.layout != torch.strided:
            uses.setdefault(f"tensors of layout {tensor.layout}", []).append(str(tuple(tensor.shape)))
    if uses:
        raise unsupported("torch.compile", uses)
