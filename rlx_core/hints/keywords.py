"""Calls that do not fit a function's parameters, as typed errors that name these."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, ParamSpec, TypeVar

from rlx_core.errors import RlxError, UnknownNameError, WrongInputCountError, nearest
from rlx_core.errors.tracebacks import shorten

__all__ = ["CHANGED_ORDER", "KEYWORDS", "RENAMED_ARGUMENTS", "checked_call", "renamed_keywords"]

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

RENAMED_ARGUMENTS: Final[dict[tuple[str, str], str]] = {
    ("adaptive_avg_pool", "sizes"): "output_size=",
    ("adaptive_max_pool", "sizes"): "output_size=",
    ("affine_grid", "sizes"): "size=",
    ("allclose", "x1"): "a=",
    ("allclose", "x2"): "b=",
    ("array_equal", "x1"): "a1=",
    ("array_equal", "x2"): "a2=",
    ("associative_scan", "function"): "fn=",
    ("associative_scan", "xs"): "elems=",
    ("attention", "q"): "query=",
    ("attention", "k"): "key=",
    ("attention", "v"): "value=",
    ("attention", "causal"): "is_causal=",
    ("attention", "score_scale"): "scale=",
    ("attention", "attn_logit_softcap"): "softcap=",
    ("attention", "mask_kind"): "is_causal=True or window=; a mask needs no kind",
    ("attention", "head_dim"): "nothing: the head size is read off the operands",
    ("avg_pool", "kernel"): "kernel_size=",
    ("batch_norm", "gamma"): "weight=",
    ("batch_norm", "beta"): "bias=",
    ("batch_norm", "axis"): "layout='nhwc' where the channels are last",
    ("batch_norm_inference", "gamma"): "weight=",
    ("batch_norm_inference", "beta"): "bias=",
    ("batch_norm_inference", "mean"): "running_mean=",
    ("batch_norm_inference", "var"): "running_var=",
    ("batch_norm_inference", "axis"): "layout='nhwc' where the channels are last",
    ("bilinear", "a"): "x1=",
    ("bilinear", "b"): "x2=",
    ("bilinear", "w"): "weight=",
    ("cond", "true_fn"): "true_fun=",
    ("cond", "false_fn"): "false_fun=",
    ("conv", "w"): "weight=",
    ("conv", "b"): "bias=",
    ("conv_transpose", "w"): "weight=",
    ("conv_transpose", "b"): "bias=",
    ("convolve", "x1"): "a=",
    ("convolve", "x2"): "v=",
    ("correlate", "x1"): "a=",
    ("correlate", "x2"): "v=",
    ("cosine_similarity", "a"): "x1=",
    ("cosine_similarity", "b"): "x2=",
    ("ctc_loss", "log_probabilities"): "log_probs=",
    ("ctc_loss", "labels"): "targets=",
    ("ctc_loss", "label_lengths"): "target_lengths=",
    ("dynamic_slice", "starts"): "start_indices=",
    ("dynamic_slice", "sizes"): "slice_sizes=",
    ("dynamic_update_slice", "starts"): "start_indices=",
    ("einsum", "spec"): "subscripts=",
    ("embedding", "table"): "weight=",
    ("embedding_bag", "table"): "weight=",
    ("embedding_bag", "weights"): "per_sample_weights=",
    ("embedding_bag", "ignore_index"): "padding_idx=",
    ("fold", "sizes"): "output_size=",
    ("fold", "kernel"): "kernel_size=",
    ("fori_loop", "body"): "body_fun=",
    ("fori_loop", "init"): "init_val=",
    ("fractional_max_pool", "kernel"): "kernel_size=",
    ("fractional_max_pool", "sizes"): "output_size=",
    ("gather", "oob"): "out_of_bounds=",
    ("gather", "fill"): "fill_value=",
    ("gather", "table"): "x=",
    ("gather_nd", "oob"): "out_of_bounds=",
    ("gaussian_nll_loss", "variance"): "var=",
    ("grid_sample", "method"): "mode=",
    ("grid_sample", "padding"): "padding_mode=",
    ("group_norm", "gamma"): "weight=",
    ("group_norm", "beta"): "bias=",
    ("group_norm", "groups"): "num_groups=, the second argument",
    ("instance_norm", "gamma"): "weight=",
    ("instance_norm", "beta"): "bias=",
    ("isclose", "x1"): "a=",
    ("isclose", "x2"): "b=",
    ("layer_norm", "gamma"): "weight=",
    ("layer_norm", "beta"): "bias=",
    ("layer_norm", "axes"): "axis=",
    ("leaky_relu", "slope"): "negative_slope=",
    ("linear", "w"): "weight=",
    ("linear", "b"): "bias=",
    ("lp_pool", "kernel"): "kernel_size=",
    ("map", "function"): "f=",
    ("max_pool", "kernel"): "kernel_size=",
    ("max_unpool", "kernel"): "kernel_size=",
    ("max_unpool", "sizes"): "output_size=",
    ("min_pool", "kernel"): "kernel_size=",
    ("multi_head_attention", "causal"): "is_causal=",
    ("multi_margin_loss", "power"): "p=",
    ("normalize", "ord"): "p=",
    ("one_hot", "ids"): "x=",
    ("one_hot", "depth"): "num_classes=",
    ("one_hot", "on"): "rlx.where(rlx.nn.one_hot(x, num_classes), on, off)",
    ("one_hot", "off"): "rlx.where(rlx.nn.one_hot(x, num_classes), on, off)",
    ("one_hot", "axis"): "rlx.moveaxis of the result",
    ("pad", "value"): "constant_values=",
    ("pairwise_distance", "a"): "x1=",
    ("pairwise_distance", "b"): "x2=",
    ("pairwise_distance", "ord"): "p=",
    ("pixel_shuffle", "factor"): "upscale_factor=",
    ("pixel_unshuffle", "factor"): "downscale_factor=",
    ("polygamma", "order"): "n=, the first argument",
    ("prelu", "alpha"): "weight=",
    ("prod_pool", "kernel"): "kernel_size=",
    ("put_along_axis", "oob"): "out_of_bounds=",
    ("put_along_axis", "updates"): "values=",
    ("residual_rms_norm", "gamma"): "weight=",
    ("residual_rms_norm", "beta"): "bias=",
    ("resize", "sizes"): "size=",
    ("rms_norm", "gamma"): "weight=",
    ("rms_norm", "beta"): "bias=",
    ("rms_norm", "axes"): "axis=",
    ("round", "ste"): "straight_through=",
    ("scan", "body"): "f=",
    ("scatter", "oob"): "out_of_bounds=",
    ("scatter_add", "oob"): "out_of_bounds=",
    ("scatter_add", "size"): "rlx.segment_sum(updates, indices, size), or zeros of that size as x",
    ("scatter_nd", "oob"): "out_of_bounds=",
    ("split", "sections"): "indices_or_sections=",
    ("sum_pool", "kernel"): "kernel_size=",
    ("take", "oob"): "out_of_bounds=",
    ("take_along_axis", "oob"): "out_of_bounds=",
    ("triplet_margin_loss", "ord"): "p=",
    ("unfold", "kernel"): "kernel_size=",
    ("where", "a"): "x1=",
    ("where", "b"): "x2=",
    ("while_loop", "cond"): "cond_fun=",
    ("while_loop", "body"): "body_fun=",
    ("while_loop", "init"): "init_val=",
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
