"""Keyword arguments that a function does not have, as errors that name those that it has."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

from rlx_core.errors import UnknownNameError, nearest

__all__ = ["KEYWORDS", "with_known_keywords"]

_P = ParamSpec("_P")
_R = TypeVar("_R")

KEYWORDS: Final[dict[str, str]] = {
    "dim": "axis=",
    "keepdim": "keepdims=",
    "ddof": "correction=",
    "unbiased": "correction=1 is unbiased, correction=0 is not",
    "where": "rlx.where(condition, x, identity) before the reduction",
    "initial": "combine the result with it: rlx.maximum(rlx.max(x), initial)",
    "out": "results are returned",
    "holomorphic": "the derivative of a holomorphic f is 2 * rlx.conj(rlx.grad(lambda z: rlx.real(f(z)))(z))",
}
"""A keyword of NumPy, JAX or PyTorch → what is written here."""


def with_known_keywords(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function, which refuses an unknown keyword with the nearest one that it has.

    Raises:
        UnknownNameError: A call has a keyword that the function does not have.
    """
    parameters = inspect.signature(function).parameters

    @functools.wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for name in kwargs:
            if name not in parameters:
                known = list(parameters)
                raise UnknownNameError(
                    f"{function.__name__}: takes ({', '.join(known)}), not {name}=",
                    hint=KEYWORDS.get(name) or nearest(name, known),
                )
        return function(*args, **kwargs)

    named: Any = checked
    named.__code__ = named.__code__.replace(co_name=function.__name__)  # by which errors name the function
    return checked
