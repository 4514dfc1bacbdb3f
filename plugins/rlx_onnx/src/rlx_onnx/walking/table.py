"""The table of handlers: one function for each operation, registered by the modules of `rlx_onnx.handlers`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from attrs import field

from rlx_core.importing.table import Handler, HandlerTable, register_rows
from rlx_core.system.records import frozen

F = TypeVar("F", bound=Callable[..., Any])


@frozen
class OnnxHandler(Handler):
    """The implementation of an operation: `function(node, *operands)`, on arrays and traced values alike, with one result or a
    tuple of several.

    Attributes:
        takes_sizes: Whether operands may be sizes with symbols among them.
        takes_coded: Whether operands may be `Coded`.
        grows: Whether a result may be much larger than all operands, so that it is folded only if it is small.
        widens: Whether a result is wider than its first operand, so that an array is not folded: the program reads the
            narrow one.
        finds_sizes: Whether a size of a result is data-dependent, and computed on the host unless its operands are known.
        is_pure: Whether equal operands give equal results; if not, it is never folded.
        max_operands: Maximum number of operands; `None` for any number.
    """

    takes_sizes: bool = False
    takes_coded: bool = False
    grows: bool = False
    widens: bool = False
    finds_sizes: bool = False
    is_pure: bool = True
    max_operands: int | None = field(init=False)

    @max_operands.default
    def _count_operands(self) -> int | None:
        kinds = [each.kind for each in inspect.signature(self.function).parameters.values()]
        is_variadic = inspect.Parameter.VAR_POSITIONAL in kinds
        return None if is_variadic else kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD) - 1


TABLE: Final = HandlerTable(
    OnnxHandler,
    package="rlx_onnx.handlers",
    registration='@rlx_onnx.walking.table.handles("{}") registers a function of the node and its operands',
    alternatives={
        "StringConcat": "texts outside of the model",
        "StringSplit": "texts outside of the model",
        "StringNormalizer": "texts in lower case outside of the model",
        "RegexFullMatch": "texts outside of the model",
        "TfIdfVectorizer": "counts of words as an input",
        "ImageDecoder": "decoded pictures as an input",
        "ai.onnx.ml.TreeEnsemble": "the ensemble as comparisons and sums",
    },
)
"""The handlers by `operation_name`."""


def operation_name(domain: str, operation: str) -> str:
    """Return the name of an operation in reports and in the table: with its domain, unless that is ONNX's own."""
    return operation if domain in ("", "ai.onnx") else f"{domain}.{operation}"


def handles(*operations: str, domain: str = "", **properties: bool) -> Callable[[F], F]:
    """Register the function below for operations; the properties are fields of `OnnxHandler`."""
    return TABLE.register(*(operation_name(domain, each) for each in operations), **properties)


rows: Final = partial(register_rows, handles)
"""Registers handlers of one expression each: operations → function of the node and its operands."""
