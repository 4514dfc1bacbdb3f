"""For every overload of core ATen that is handled, operands that it is tried with; a dict at the end has those by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Case = Callable[[], tuple[Any, ...]]


def f(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64)


def p(*shape: int) -> torch.Tensor:
    """Positive, and away from 0."""
    return torch.rand(shape, dtype=torch.float64) + 0.5


def u(*shape: int) -> torch.Tensor:
    """Between -0.9 and 0.9."""
    return torch.rand(shape, dtype=torch.float64) * 1.8 - 0.9


def i(*shape: int, high: int = 5) -> torch.Tensor:
    return torch.randint(0, high, shape)


def b(*shape: int) -> torch.Tensor:
    return torch.rand(shape) > 0.5


def c(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.complex128)


_UNARY = {
    f: "abs asinh atan ceil clone cos cosh elu erf exp expm1 floor gelu hardtanh leaky_relu neg relu round sigmoid sign sin sinh "
    "tan tanh trunc alias isinf isnan logical_not",
    p: "log log10 log1p log2 reciprocal rsqrt sqrt",
    u: "acos asin atanh",
}
_BINARY = "add.Tensor sub.Tensor mul.Tensor div.Tensor atan2.default maximum.default minimum.default"
_SCALAR = "add.Scalar sub.Scalar mul.Scalar div.Scalar pow.Tensor_Scalar remainder.Scalar fmod.Scalar"
_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
_BITS = ("bitwise_and", "bitwise_or", "bitwise_xor")

CASES: dict[str, list[Case]] = {
    **{
        f"{name}.default": [lambda draw=draw: (draw(3, 4),)] for draw, names in _UNARY.items() for name in names.split()
    },
    **{name: [lambda: (f(3, 4), f(4)), lambda: (f(2, 1), f(3))] for name in _BINARY.split()},
    **{name: [lambda: (p(3, 4), 2.5)] for name in _SCALAR.split()},
    **{f"{name}.Tensor": [lambda: (i(3, 4), i(4)), lambda: (i(3), 2.5 * f(3))] for name in _COMPARED},
    **{f"{name}.Scalar": [lambda: (i(3, 4), 2)] for name in _COMPARED},
    **{f"{name}.Tensor": [lambda: (i(3, 4, high=99), i(4, high=99)), lambda: (b(3), b(3))] for name in _BITS},
    **{f"{name}.Scalar": [lambda: (i(3, 4, high=99), 6)] for name in _BITS},
    **{f"logical_{name}.default": [lambda: (b(3), b(3)), lambda: (i(3), f(3))] for name in ("and", "or", "xor")},
    "acosh.default": [lambda: (p(3) + 1,)],
    "bitwise_not.default": [lambda: (i(4),), lambda: (b(4),)],
    "pow.Scalar": [lambda: (2.0, f(3))],
    "pow.Tensor_Tensor": [lambda: (p(3, 4), f(4)), lambda: (i(3), i(3))],
    "remainder.Tensor": [lambda: (f(3, 4), p(4)), lambda: (i(3) - 2, i(3) + 1)],
    "fmod.Tensor": [lambda: (f(3, 4), p(4)), lambda: (i(3) - 2, i(3) + 1)],
    "div.Tensor_mode": [
        *(lambda how=how: (f(9), p(9), {"rounding_mode": how}) for how in ("floor", "trunc")),
        *(lambda how=how: (i(9) - 3, i(9) + 1, {"rounding_mode": how}) for how in ("floor", "trunc")),
    ],
    "div.Scalar_mode": [
        lambda: (f(9), 0.7, {"rounding_mode": "floor"}),
        lambda: (i(9) - 3, 2, {"rounding_mode": "trunc"}),
    ],
    "clamp.default": [lambda: (f(9), -0.5, 0.5), lambda: (f(9), None, 0.1)],
    "clamp.Tensor": [lambda: (f(9), f(9), None), lambda: (f(9), f(9) - 1, f(9) + 1)],
    "where.self": [lambda: (b(3, 4), f(3, 1), f(4))],
    "copy.default": [lambda: (f(3, 4), f(4))],
    "_to_copy.default": [lambda: (f(3),)],
    "fill.Scalar": [lambda: (f(3), 2.0)],
    "full.default": [lambda: ((2, 3), 1.5)],
    "full_like.default": [lambda: (f(3), 2)],
    "scalar_tensor.default": [lambda: (2.5,)],
    "arange.start_step": [lambda: (1, 9, 2), lambda: (0.5, 2.0, 0.25)],
    # reductions
    "amax.default": [lambda: (f(3, 4), [1]), lambda: (f(3, 4), [], True)],
    "amin.default": [lambda: (f(3, 4), [0, 1])],
    "any.default": [lambda: (b(3, 4),)],
    "any.dim": [lambda: (b(3, 4), 1)],
    "any.dims": [lambda: (b(3, 4), [0, 1])],
    "argmax.default": [lambda: (f(3, 4), 1), lambda: (f(3, 4),)],
    "argmin.default": [lambda: (f(3, 4), 0, True)],
    "max.dim": [lambda: (f(3, 4), 1)],
    "min.dim": [lambda: (f(3, 4), 0, True)],
    "mean.default": [lambda: (f(3, 4),)],
    "mean.dim": [lambda: (f(3, 4, 2), [0, 2], True)],
    "prod.default": [lambda: (p(3, 4),)],
    "prod.dim_int": [lambda: (p(3, 4), 1)],
    "sum.dim_IntList": [lambda: (f(3, 4), [1]), lambda: (i(3, 4), None)],
    "var.correction": [lambda: (f(3, 4), [1])],
    "var.dim": [lambda: (f(3, 4), [0], False)],
    "cumsum.default": [lambda: (f(3, 4), 1), lambda: (i(3), 0)],
    # shapes
    "as_strided.default": [lambda: (f(12), (3, 2), (4, 1), 1)],
    "cat.default": [lambda: ([f(2, 3), f(1, 3)],), lambda: ([f(2, 3), f(2, 1)], 1)],
    "constant_pad_nd.default": [lambda: (f(2, 3), (1, 2), 0.5), lambda: (f(2, 4), (-1, 1))],
    "diagonal.default": [lambda: (f(3, 4), 1)],
    "expand.default": [lambda: (f(3, 1), (2, -1, 4))],
    "flip.default": [lambda: (f(3, 4), [0])],
    "permute.default": [lambda: (f(2, 3, 4), (2, 0, 1))],
    "reflection_pad1d.default": [lambda: (f(1, 2, 5), (2, 1))],
    "reflection_pad2d.default": [lambda: (f(1, 2, 4, 5), (2, 1, 1, 0))],
    "reflection_pad3d.default": [lambda: (f(1, 1, 3, 4, 5), (1, 1, 1, 0, 0, 2))],
    "replication_pad2d.default": [lambda: (f(1, 2, 4, 5), (2, 1, 1, 0))],
    "replication_pad3d.default": [lambda: (f(1, 1, 3, 4, 5), (1, 1, 1, 0, 0, 2))],
    "repeat.default": [lambda: (f(2, 3), (2, 1, 2))],
    "select.int": [lambda: (f(3, 4), 1, -2)],
    "select_scatter.default": [lambda: (f(3, 4), f(3), 1, -2)],
    "slice.Tensor": [lambda: (f(9), 0, 1, -2, 3)],
    "slice_scatter.default": [lambda: (f(9, 2), f(3, 2), 0, 1, 9, 3)],
    "split_with_sizes.default": [lambda: (f(5, 2), [2, 3])],
    "squeeze.dim": [lambda: (f(3, 1, 2), 1)],
    "squeeze.dims": [lambda: (f(1, 1, 2), [0, 1])],
    "unsqueeze.default": [lambda: (f(3), -1)],
    "view.default": [lambda: (f(3, 4), (2, -1))],
    # indices and order
    "embedding.default": [lambda: (f(5, 3), i(2, 4)), lambda: (f(5, 3), i(6), 1)],
    "embedding_dense_backward.default": [
        lambda: (f(6, 3), i(6), 5, 1, False),
        lambda: (f(6, 3), i(6), 5, -1, True),
    ],
    "gather.default": [lambda: (f(3, 5), 1, i(2, 4))],
    "index.Tensor": [lambda: (f(5, 5), [i(3), i(3)]), lambda: (f(2, 5, 3), [None, i(2, 2) - 2])],
    "index_put.default": [
        lambda: (f(5, 5), [i(3), i(3)], f(3), True),
        lambda: (f(2, 5, 3), [None, torch.tensor([0, 4])], f(2, 2, 3)),
        lambda: (f(5), [b(5)], f()),
    ],
    "index_select.default": [lambda: (f(3, 5), 1, i(4))],
    "masked_scatter.default": [lambda: (f(3, 4), b(3, 4), f(12))],
    "scatter.src": [lambda: (f(5, 5), 0, torch.tensor([[0, 1, 2]]), f(1, 5))],
    "scatter.value": [lambda: (f(5, 5), 1, i(2, 1), 2.5)],
    "scatter_add.default": [lambda: (f(5, 5), 0, i(4, 3), f(4, 3))],
    "scatter_reduce.two": [
        *(lambda how=how: (f(5, 3), 0, i(4, 3), f(4, 3), how) for how in ("sum", "prod", "mean", "amax", "amin")),
    ],
    "sort.default": [lambda: (f(3, 5),), lambda: (f(5, 2), 0, True)],
    "topk.default": [lambda: (f(3, 5), 2), lambda: (f(5, 2), 3, 0, False)],
    # products, norms
    "addmm.default": [lambda: (f(4), f(2, 3), f(3, 4))],
    "bmm.default": [lambda: (f(2, 3, 4), f(2, 4, 5))],
    "mm.default": [lambda: (f(3, 4), f(4, 5))],
    "_log_softmax.default": [lambda: (f(3, 4), 1, False)],
    "_softmax.default": [lambda: (f(3, 4), -1, False)],
    "native_layer_norm.default": [lambda: (f(2, 3, 4), [3, 4], f(3, 4), f(3, 4), 1e-5)],
    "native_group_norm.default": [lambda: (f(2, 4, 3), f(4), f(4), 2, 4, 3, 2, 1e-5)],
    "_native_batch_norm_legit.default": [lambda: (f(3, 2, 4), f(2), f(2), f(2), p(2), True, 0.1, 1e-5)],
    "_native_batch_norm_legit.no_stats": [lambda: (f(3, 2, 4), f(2), f(2), True, 0.1, 1e-5)],
    "_native_batch_norm_legit_no_training.default": [lambda: (f(3, 2, 4), f(2), f(2), f(2), p(2), 0.1, 1e-5)],
    # convolution and pooling
    "convolution.default": [
        lambda: (f(2, 4, 5, 6), f(6, 2, 3, 3), f(6), [2, 1], [1, 1], [1, 2], False, [0, 0], 2),
        lambda: (f(2, 4, 5), f(4, 3, 3), None, [2], [1], [1], True, [1], 1),
    ],
    "convolution_backward.default": [
        lambda: (f(2, 6, 3, 4), f(2, 4, 5, 4), f(6, 2, 3, 3), [6], [2, 1], [1, 1], [1, 1], False, [0, 0], 2, [True] * 3)
    ],
    "avg_pool1d.default": [lambda: (f(1, 2, 7), [3], [2], [1])],
    "avg_pool2d.default": [lambda: (f(1, 2, 7, 6), [3, 2], [2, 2], [1, 0], True, False)],
    "avg_pool2d_backward.default": [lambda: (f(1, 2, 3, 3), f(1, 2, 6, 6), [2, 2], [2, 2], [0, 0], False, True, None)],
    "avg_pool3d.default": [lambda: (f(1, 1, 4, 4, 4), [2, 2, 2])],
    "max_pool2d_with_indices.default": [lambda: (f(1, 2, 7, 6), [3, 2], [2, 2], [1, 0])],
    "max_pool2d_with_indices_backward.default": [
        lambda: (
            f(1, 1, 2, 2),
            f(1, 1, 4, 4),
            [2, 2],
            [2, 2],
            [0, 0],
            [1, 1],
            False,
            torch.tensor([[[[0, 3], [9, 15]]]]),
        )
    ],
    "max_pool3d_with_indices.default": [lambda: (f(1, 1, 4, 4, 4), [2, 2, 2])],
    "adaptive_avg_pool1d.default": [lambda: (f(1, 2, 7), [3])],
    "_adaptive_avg_pool2d.default": [lambda: (f(1, 2, 7, 6), [3, 2])],
    "_adaptive_avg_pool2d_backward.default": [lambda: (f(1, 2, 3, 2), f(1, 2, 7, 6))],
    "_adaptive_avg_pool3d.default": [lambda: (f(1, 1, 4, 5, 4), [2, 2, 3])],
    "col2im.default": [lambda: (f(1, 8, 9), (4, 4), (2, 2), (1, 1), (0, 0), (1, 1))],
    "grid_sampler_2d.default": [
        *(
            lambda how=how: (f(1, 2, 4, 5), u(1, 3, 3, 2) * 1.3, *how)
            for how in (
                (0, 0, False),
                (0, 1, True),
                (1, 0, False),
                (0, 2, False),
                (2, 0, False),
                (2, 1, True),
                (2, 2, False),
            )
        ),
    ],
    "upsample_bilinear2d.vec": [
        lambda: (f(1, 2, 3, 4), [5, 6], False, None),
        lambda: (f(1, 2, 3, 4), None, True, [2.0, 2.0]),
    ],
    "upsample_nearest2d.vec": [lambda: (f(1, 2, 3, 4), [5, 6], None), lambda: (f(1, 2, 3, 4), None, [2.0, 2.0])],
    # distances, spectra, bags
    "_cdist_forward.default": [lambda: (f(3, 4), f(5, 4), 2.0, None), lambda: (f(3, 4), f(5, 4), 1.0, None)],
    "_pdist_forward.default": [lambda: (f(4, 3), 2.0), lambda: (f(4, 3), 3.0)],
    "_fft_r2c.default": [lambda: (f(3, 8), [1], 0, True), lambda: (f(3, 4), [0, 1], 2, False)],
    "_fft_c2r.default": [lambda: (c(3, 5), [1], 2, 8)],
    "_embedding_bag.default": [
        *(lambda mode=mode: (f(5, 3), i(6), torch.tensor([0, 2, 2]), False, mode) for mode in (0, 1)),
    ],
}

UNSCALED = ("embedding_dense_backward.default-1",)
"""Whose derivative is another one in torch, which leaves the scaling by frequency out of it."""

SIZES = {
    "sym_size.int": lambda x: (x, 1),
    "sym_numel.default": lambda x: (x,),
    "sym_stride.int": lambda x: (x, 0),
    "sym_storage_offset.default": lambda x: (x,),
    "sym_is_contiguous.default": lambda x: (x,),
}
"""What gives sizes, which are no tensors."""

RANDOM = ("rand.default", "randn.default", "randperm.default", "native_dropout.default")
"""What draws, from another stream than torch's."""

ELSEWHERE = {
    "nonzero.default": "by modules in test_parts.py",
    "native_layer_norm_backward.default": "by the gradient of layer_norm in test_dynamo.py",
    "native_group_norm_backward.default": "by the gradient of group_norm in test_dynamo.py",
    "empty.memory_format": "zeros here",
    "empty_strided.default": "zeros here",
    "atan2.out": "writes into an operand",
}
"""What is tried elsewhere, or has no result that could be compared."""
