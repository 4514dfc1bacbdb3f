"""Every public function, and arguments by which most of them can be called, for laws that try all functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import optree

import rlx_core as rlx
from rlx_core import nn

__all__ = ["X", "functions", "required_arguments", "usual"]

X = np.arange(12, dtype=np.float32).reshape(3, 4) / 12


def functions() -> dict[str, Callable[..., Any]]:
    """The functions of `rlx` and `rlx.nn` by name."""
    named = {f"rlx.{name}": getattr(rlx, name) for name in dir(rlx)} | {
        f"nn.{n}": getattr(nn, n) for n in vars(nn)["__all__"]
    }
    return {
        name: f
        for name, f in named.items()
        if callable(f)
        and not isinstance(f, type | ModuleType)
        and "._" not in name
        and name not in ("rlx.load", "rlx.save")
    }


def usual(parameter: inspect.Parameter, x: np.ndarray = X) -> Any:
    """An argument for a parameter by its name: `x` unless it is an axis, a shape, a count, an index or a function."""
    name = parameter.name
    if name in ("function", "f", "fn"):
        return lambda v: sum((x * x).sum() for x in optree.tree_leaves(v))
    if "ax" in name:
        return 0
    if "shape" in name:
        return (3, 4)
    if name in ("groups", "num_heads"):
        return 2
    return np.zeros((3, 4), int) if name in ("indices", "index") else x


def required_arguments(function: Callable[..., Any], x: np.ndarray = X) -> tuple[list[Any], dict[str, Any]]:
    """Arguments for the parameters without defaults: by position, and by keyword where they have to be."""
    kinds = inspect.Parameter
    parameters = [p for p in inspect.signature(function).parameters.values() if p.default is kinds.empty]
    by_position = [usual(p, x) for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    if not by_position and any(p.kind is kinds.VAR_POSITIONAL for p in parameters):
        by_position = [x, x]
    return by_position, {p.name: usual(p, x) for p in parameters if p.kind is kinds.KEYWORD_ONLY}
