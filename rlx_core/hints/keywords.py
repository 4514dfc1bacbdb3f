"""Calls that do not fit a function's parameters, as typed errors that name these."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, ParamSpec, TypeVar

from rlx_core.errors import RlxError, UnknownNameError, WrongInputCountError, nearest
from rlx_core.errors.base import shorten

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
"""A keyword of NumPy, JAX or PyTorch → its equivalent in rlx."""

_RENAMED: Final[dict[str, dict[str, str]]] = {
    "adaptive_avg_pool adaptive_max_pool": {"sizes": "output_size="},
    "affine_grid resize": {"sizes": "size="},
    "allclose isclose": {"x1": "a=", "x2": "b="},
    "array_equal": {"x1": "a1=", "x2": "a2="},
    "associative_scan": {"function": "fn=", "xs": "elems="},
    "attention": {
        "q": "query=",
        "k": "key=",
        "v": "value=",
        "causal": "is_causal=",
        "score_scale": "scale=",
        "attn_logit_softcap": "softcap=",
        "lengths": "key_value_seq_lengths=",
        "mask_kind": "is_causal=True or window=; a mask needs no kind",
        "head_dim": "nothing: the head size is read off the operands",
    },
    "avg_pool lp_pool max_pool min_pool prod_pool sum_pool unfold": {"kernel": "kernel_size="},
    "batch_norm": {"gamma": "weight=", "beta": "bias=", "axis": "layout='nhwc' where the channels are last"},
    "batch_norm_inference": {
        "gamma": "weight=",
        "beta": "bias=",
        "mean": "running_mean=",
        "var": "running_var=",
        "axis": "layout='nhwc' where the channels are last",
    },
    "bilinear": {"a": "x1=", "b": "x2=", "w": "weight="},
    "cond": {"true_fn": "true_fun=", "false_fn": "false_fun="},
    "conv conv_transpose linear": {"w": "weight=", "b": "bias="},
    "convolve correlate": {"x1": "a=", "x2": "v="},
    "cosine_similarity where": {"a": "x1=", "b": "x2="},
    "ctc_loss": {"log_probabilities": "log_probs=", "labels": "targets=", "label_lengths": "target_lengths="},
    "dynamic_slice": {"starts": "start_indices=", "sizes": "slice_sizes="},
    "dynamic_update_slice": {"starts": "start_indices="},
    "einsum": {"spec": "subscripts="},
    "embedding": {"table": "weight="},
    "embedding_bag": {"table": "weight=", "weights": "per_sample_weights=", "ignore_index": "padding_idx="},
    "fold": {"sizes": "output_size=", "kernel": "kernel_size="},
    "fori_loop": {"body": "body_fun=", "init": "init_val="},
    "fractional_max_pool max_unpool": {"kernel": "kernel_size=", "sizes": "output_size="},
    "gather": {"oob": "out_of_bounds=", "fill": "fill_value=", "table": "x="},
    "gather_nd scatter scatter_nd take take_along_axis": {"oob": "out_of_bounds="},
    "gaussian_nll_loss": {"variance": "var="},
    "grid_sample": {"method": "mode=", "padding": "padding_mode="},
    "group_norm": {"gamma": "weight=", "beta": "bias=", "groups": "num_groups=, the second argument"},
    "instance_norm residual_rms_norm": {"gamma": "weight=", "beta": "bias="},
    "layer_norm rms_norm": {"gamma": "weight=", "beta": "bias=", "axes": "axis="},
    "leaky_relu": {"slope": "negative_slope="},
    "map": {"function": "f="},
    "multi_head_attention": {"causal": "is_causal="},
    "multi_margin_loss": {"power": "p="},
    "normalize triplet_margin_loss": {"ord": "p="},
    "one_hot": {
        "ids": "x=",
        "depth": "num_classes=",
        "on": "rlx.where(rlx.nn.one_hot(x, num_classes), on, off)",
        "off": "rlx.where(rlx.nn.one_hot(x, num_classes), on, off)",
        "axis": "rlx.moveaxis of the result",
    },
    "pad": {"value": "constant_values="},
    "pairwise_distance": {"a": "x1=", "b": "x2=", "ord": "p="},
    "pixel_shuffle": {"factor": "upscale_factor="},
    "pixel_unshuffle": {"factor": "downscale_factor="},
    "polygamma": {"order": "n=, the first argument"},
    "prelu": {"alpha": "weight="},
    "put_along_axis": {"oob": "out_of_bounds=", "updates": "values="},
    "round": {"ste": "straight_through="},
    "scan": {"body": "f="},
    "scatter_add": {
        "oob": "out_of_bounds=",
        "size": "rlx.segment_sum(updates, indices, size), or zeros of that size as x",
    },
    "split": {"sections": "indices_or_sections="},
    "while_loop": {"cond": "cond_fun=", "body": "body_fun=", "init": "init_val="},
}
"""Functions → keywords that they had in an earlier version, each with what replaces it."""

RENAMED_ARGUMENTS: Final[dict[tuple[str, str], str]] = {
    (function, old): new
    for functions, renamed in _RENAMED.items()
    for function in functions.split()
    for old, new in renamed.items()
}
"""A function and a keyword that it had in an earlier version → what replaces it."""

CHANGED_ORDER: Final[dict[str, str]] = {
    "associative_scan": "the order is (fn, elems, reverse, axis), as in JAX",
    "batch_norm": "the order is (x, running_mean, running_var, weight=, bias=), as in PyTorch",
    "batch_norm_inference": "the order is (x, running_mean, running_var, weight=, bias=), as in PyTorch",
    "group_norm": "the order is (x, num_groups, weight, bias), as in PyTorch",
    "polygamma": "the order is (n, x), as in SciPy, JAX and PyTorch",
    "put_along_axis": "the order is (x, indices, values, axis), as in NumPy",
    "scatter": "the order is (x, indices, updates), as in ONNX and JAX",
    "scatter_add": "the order is (x, indices, updates), as in JAX; sums into zeros are rlx.segment_sum",
    "scatter_nd": "the order is (x, indices, updates), as in ONNX",
}
"""A function whose arguments had another order in an earlier version → the order."""


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
                        or RENAMED_ARGUMENTS.get((function.__name__, name))
                        or KEYWORDS.get(name)
                        or nearest(name, known),
                    ) from None
            try:
                signature.bind(*args, **kwargs)
            except TypeError as mismatch:
                raise WrongInputCountError(
                    f"{function.__name__}: takes ({', '.join(known)}): {mismatch}",
                    hint=CHANGED_ORDER.get(function.__name__),
                ) from None
            raise  # the call fits, and something in the function failed

    named: Any = checked
    named.__code__ = named.__code__.replace(co_name=function.__name__)  # by which errors name the function
    return checked
