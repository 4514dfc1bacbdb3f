"""The table of handlers: one function for each operation, filled by the modules of `rlx_onnx.handlers`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from rlx_core.system.records import frozen

__all__ = ["INSTEAD", "Handler", "handler_for", "handlers", "handles"]

Function = Callable[..., Any]

FAMILIES: Final = (
    "activations",
    "elementwise",
    "conversions",
    "reductions",
    "shapes",
    "movement",
    "indexing",
    "creation",
    "products",
    "normalization",
    "losses",
    "convolution",
    "pooling",
    "resampling",
    "recurrent",
    "control",
    "sequences",
    "quantised",
    "attention",
    "signals",
    "ordering",
    "detection",
    "suppression",
    "randomness",
    "optimisers",
    "classical",
    "contributed.operations",
    "contributed.codes",
    "contributed.grouped",
)
"""The modules of `rlx_onnx.handlers`."""

INSTEAD: Final[Mapping[str, str]] = {
    "StringConcat": "texts outside of the model",
    "StringSplit": "texts outside of the model",
    "StringNormalizer": "texts in lower case outside of the model",
    "RegexFullMatch": "texts outside of the model",
    "TfIdfVectorizer": "counts of words as an input",
    "ImageDecoder": "decoded pictures as an input",
    "TreeEnsemble": "the ensemble as comparisons and sums",
}
"""Alternatives to operations that this package does not support."""


@frozen
class Handler:
    """The implementation of an operation.

    Attributes:
        function: `function(node, *operands)`, on arrays and traced values alike; one result, or a tuple of several.
        takes_sizes: Whether operands may be sizes with symbols among them.
        takes_coded: Whether operands may be `Coded`.
        grows: Whether a result may be much larger than all operands, so that it is folded only if it is small.
        finds_sizes: Whether a size of a result is data-dependent, and computed on the host unless its operands are known.
        is_pure: Whether equal operands give equal results; if not, it is never folded.
        most: Maximum number of operands; `None` for any number.
    """

    function: Function
    takes_sizes: bool = False
    takes_coded: bool = False
    grows: bool = False
    finds_sizes: bool = False
    is_pure: bool = True
    most: int | None = None


_TABLE: dict[tuple[str, str], Handler] = {}


def handles(
    *operations: str,
    domain: str = "",
    takes_sizes: bool = False,
    takes_coded: bool = False,
    grows: bool = False,
    finds_sizes: bool = False,
    is_pure: bool = True,
) -> Callable[[Function], Function]:
    """Enter the function below for operations."""

    def entered(function: Function) -> Function:
        kinds = [each.kind for each in inspect.signature(function).parameters.values()]
        most = None if inspect.Parameter.VAR_POSITIONAL in kinds else len(kinds) - 1
        for operation in operations:
            key = (domain, operation)
            assert key not in _TABLE, f"{operation}: {_TABLE[key].function.__module__} handles it already"
            _TABLE[key] = Handler(function, takes_sizes, takes_coded, grows, finds_sizes, is_pure, most)
        return function

    return entered


@cache
def handlers() -> Mapping[tuple[str, str], Handler]:
    """Every handler by domain and operation."""
    for family in FAMILIES:
        importlib.import_module(f"rlx_onnx.handlers.{family}")
    return _TABLE


def handler_for(domain: str, operation: str) -> Handler | None:
    """Return the handler of an operation, if there is one."""
    return handlers().get(("" if domain == "ai.onnx" else domain, operation))
