"""Calls that do not fit a function's parameters, as typed errors that name these."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, ParamSpec, TypeVar

from rlx_core.errors import RlxError, UnknownNameError, WrongInputCountError, nearest
from rlx_core.errors.tracebacks import shorten

__all__ = ["FORMER", "KEYWORDS", "checked_call", "renamed_keywords"]

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

FORMER: Final[dict[tuple[str, str], str]] = {
    ("attention", "score_scale"): "scale=",
    ("attention", "attn_logit_softcap"): "softcap=",
    ("attention", "mask_kind"): "causal=True or window=; a mask needs no kind",
    ("attention", "head_dim"): "nothing: the head size is read off the operands",
    ("batch_norm", "axis"): "layout='nhwc' where the channels are last",
    ("batch_norm_inference", "axis"): "layout='nhwc' where the channels are last",
    ("one_hot", "on"): "rlx.where(rlx.nn.one_hot(ids, depth), on, off)",
    ("one_hot", "off"): "rlx.where(rlx.nn.one_hot(ids, depth), on, off)",
    ("one_hot", "axis"): "rlx.moveaxis of the result",
}
"""A function and a keyword that it had in an earlier version → what is written now."""


def checked_call(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return the function, with typed errors for calls that do not fit its parameters, and short tracebacks for all errors.

    Raises:
        UnknownNameError: A call has a keyword that the function does not have; the hint has the nearest one.
        WrongInputCountError: An argument is missing, given twice, or one too many.
    """
    return _checked(function, {})


def renamed_keywords(former: Mapping[str, str]) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Return a decorator: `checked_call` with further hints, for functions of packages other than the core.

    Args:
        former: A keyword of an earlier version → its replacement.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        return _checked(function, former)

    return decorate


def _checked(function: Callable[_P, _R], former: Mapping[str, str]) -> Callable[_P, _R]:
    @functools.wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            shorten(error)  # the frame that is kept is this one
            if isinstance(error, RlxError) or not isinstance(error, TypeError):
                raise
            signature = inspect.signature(function)
            known = list(signature.parameters)
            takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.parameters.values())
            for name in kwargs:
                if name not in known and not takes_any:
                    raise UnknownNameError(
                        f"{function.__name__}: takes ({', '.join(known)}), not {name}=",
                        hint=former.get(name)
                        or FORMER.get((function.__name__, name))
                        or KEYWORDS.get(name)
                        or nearest(name, known),
                    ) from None
            try:
                signature.bind(*args, **kwargs)
            except TypeError as mismatch:
                raise WrongInputCountError(f"{function.__name__}: takes ({', '.join(known)}): {mismatch}") from None
            raise  # the call fits, and something in the function failed

    named: Any = checked
    named.__code__ = named.__code__.replace(co_name=function.__name__)  # by which errors name the function
    return checked
