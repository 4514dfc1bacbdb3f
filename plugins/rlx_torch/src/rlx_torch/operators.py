"""`as_torch`: a function of rlx as an operator of torch's, with its gradient."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

import rlx_core as rlx
from rlx_core.errors import ConfigError, Fact
from rlx_core.importing.symbols import SymbolTable
from rlx_torch.arrays import DTYPES, array_of, tensor_of
from rlx_torch.aten.table import TABLE, aten
from rlx_torch.symbols import torch_size, type_of


def as_torch(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    results: int | None = None,
    target: str | None = None,
    config: Any = None,
) -> Callable[..., Any]:
    """A function of arrays, or an op of rlx, as an operator that takes and gives tensors.

    It is compiled for the types that it meets, shares memory with the tensors, and has the gradient that rlx gives it. As an
    operator of torch's it may stand in modules that `torch.export` and `torch.compile` read; `backend="rlx"` and `from_torch`
    make it part of their programs.

    Args:
        function: A function of arrays alone; `functools.partial` fixes what else it takes.
        name: Name of the op in torch, `rlx::name`; by default the function's name. A name can be used once.
        results: Number of tensors in the result tuple; by default the result is a single tensor.
        target, config: As for `rlx.jit`.

    Raises:
        ConfigError: The name is taken, or (when called) the function gives another number of results.

    >>> import torch, rlx_core as rlx
    >>> softsign = as_torch(lambda x: x / (1 + rlx.abs(x)), name="doc_softsign")
    >>> x = torch.tensor([1.0], requires_grad=True)
    >>> softsign(x).backward(); x.grad
    tensor([0.2500])
    """
    called = name or getattr(function, "__name__", "function").strip("<>_")
    if f"rlx::{called}.default" in TABLE:
        raise ConfigError(f"as_torch: rlx::{called} is taken", hint="as_torch(function, name=…) with another name")
    count = 1 if results is None else results

    def flat(*inputs: Any) -> tuple[Any, ...]:
        result = function(*inputs)
        listed = tuple(result) if isinstance(result, tuple | list) else (result,)
        if len(listed) != count:
            fact = Fact("asked for", str(count))
            raise ConfigError(f"as_torch: {called} gives {len(listed)} results", fact, hint="say results=…")
        return listed

    def pulled(inputs: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        """The cotangents of the inputs that have some."""
        smooth = [i for i, x in enumerate(inputs) if _is_smooth(x.dtype)]

        def of_smooth(*values: Any) -> Any:
            arguments = list(inputs)
            for i, value in zip(smooth, values, strict=True):
                arguments[i] = value
            return tuple(y for y in flat(*arguments) if _is_smooth(y.dtype))

        return list(rlx.vjp(of_smooth, *(inputs[i] for i in smooth))[1](tuple(cotangents)))

    options = {"target": target, "config": config}
    forward = _operator(f"rlx::{called}", "(Tensor[] inputs) -> Tensor[]", lambda inputs: list(flat(*inputs)), options)
    schema = "(Tensor[] inputs, Tensor[] cotangents) -> Tensor[]"
    backward = _operator(f"rlx::{called}_backward", schema, pulled, options)

    def kept(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[0])
        ctx.results = [y.new_zeros(y.shape) for y in output]

    def back(ctx: Any, grads: Sequence[Any]) -> Any:
        inputs = list(ctx.saved_tensors)
        arguments = [z if g is None else g for g, z in zip(grads, ctx.results, strict=True)]
        result = iter(backward(inputs, [g for g in arguments if g.is_floating_point() or g.is_complex()]))
        return [next(result) if x.is_floating_point() or x.is_complex() else None for x in inputs]

    forward.register_autograd(back, setup_context=kept)

    @functools.wraps(function)
    def operator(*tensors: torch.Tensor) -> Any:
        result = forward(list(tensors))
        return result[0] if results is None else tuple(result)

    return operator


def _is_smooth(dtype: Any) -> bool:
    return dtype.kind in ("float", "complex", "f", "c")


def _operator(name: str, schema: str, function: Callable[..., Any], options: Any) -> Any:
    """A custom op of lists of tensors that runs a function of lists of values, and is one of its handlers."""
    aten(name)(function)
    compiled = rlx.jit(function, **options)

    def run(*lists: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [tensor_of(y) for y in compiled(*([array_of(x) for x in each] for each in lists))]

    def fake(*lists: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        sizes = {str(n): n for each in lists for x in each for n in x.shape if isinstance(n, torch.SymInt)}
        result = rlx.eval_shape(function, *([type_of(x, SymbolTable()) for x in each] for each in lists))
        like = lists[0][0]
        shapes = [[torch_size(n, sizes) for n in y.shape] for y in result]
        return [like.new_empty(s, dtype=DTYPES.element(y.dtype)) for s, y in zip(shapes, result, strict=True)]

    created = torch.library.custom_op(name, run, mutates_args=(), schema=schema)
    created.register_fake(fake)
    return created
