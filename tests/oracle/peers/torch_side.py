"""A case computed by PyTorch in float64: values, gradients of a sum, derivatives along a direction, each example alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import optree
import torch

from .answers import Answers
from .arguments import is_inexact, taken_apart

__all__ = ["answers", "types"]


def tensor(x: np.ndarray) -> torch.Tensor:
    if x.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(x.astype(np.float32)).to(torch.bfloat16)
    return torch.from_numpy(np.array(x))


def tensors(tree: Any) -> Any:
    return optree.tree_map(tensor, tree)


def array(x: torch.Tensor) -> np.ndarray:
    return np.asarray(x.numpy(force=True))


def leaves(result: Any) -> list[torch.Tensor]:
    return list(optree.tree_leaves(result))


def smooth(result: Any) -> list[torch.Tensor]:
    return [r for r in leaves(result) if is_inexact(r.dtype)]


def weighted(results: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]) -> torch.Tensor:
    terms = [
        (r.conj() * w).real.sum() if r.is_complex() else (r * w).sum() for r, w in zip(results, weights, strict=True)
    ]
    return torch.stack(terms).sum()


def answers(
    function: Callable[..., Any],
    examples: Sequence[Sequence[Any]],
    tangents: Sequence[np.ndarray],
    cotangents: Sequence[np.ndarray],
    asks: frozenset[str],
) -> Answers:
    """What is asked of the function; the first example is the one that is differentiated."""
    arguments = taken_apart(examples[0])
    others, weights, directions = tensors(arguments.leaves), tensors(list(cotangents)), tensors(list(tangents))
    points = tensors(arguments.points)

    def at(*values: torch.Tensor) -> Any:
        return function(*arguments.at(values, others))

    found = {"forward": [array(r) for r in leaves(at(*points))]}
    if "gradient" in asks:
        leaf = [p.clone().requires_grad_() for p in points]
        kept = {"create_graph": "second" in asks, "allow_unused": True, "materialize_grads": True}
        gradients = torch.autograd.grad(weighted(smooth(at(*leaf)), weights), leaf, **kept)
        # PyTorch's gradient by a complex z is twice the derivative by its conjugate, which is what rlx gives.
        found["gradient"] = [array(g) / (2 if g.is_complex() else 1) for g in gradients]
        if "second" in asks:
            along = (
                weighted(gradients, directions) + 0 * leaf[0].real.sum()
            )  # of a linear function nothing would be left
            again = torch.autograd.grad(along, leaf, allow_unused=True, materialize_grads=True)
            found["second"] = [array(g) for g in again]
    if "jvp" in asks:
        _, derivatives = torch.func.jvp(lambda *values: tuple(smooth(at(*values))), tuple(points), tuple(directions))
        found["jvp"] = [array(d) for d in derivatives]
    if "batch" in asks:
        each = [[array(r) for r in leaves(function(*tensors(list(args))))] for args in examples]
        found["batch"] = [np.stack(results) for results in zip(*each, strict=True)]
    return found


def types(function: Callable[..., Any], args: Sequence[Any]) -> list[tuple[tuple[int, ...], str]] | None:
    """Dims and dtypes of the results for arguments as they are; `None` where PyTorch has no code for their dtypes."""
    try:
        results = leaves(function(*tensors(list(args))))
    except RuntimeError as error:  # NotImplementedError is one of these
        if "not implemented for" in str(error):
            return None
        raise
    return [(tuple(r.shape), str(r.dtype).removeprefix("torch.")) for r in results]
