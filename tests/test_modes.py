"""One meaning in every mode: public functions, methods and operators have the same results evaluated at once, compiled, folded,
in a batch, in a loop, in a branch, and in a transform that captured other values before."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import optree
import pytest
from public_calls import X, functions, required_arguments

import rlx_core as rlx
from rlx_core import nn, quantization
from rlx_core.errors import RlxError
from rlx_core.ir.graph import ops_inside
from rlx_core.testing.special_points import same_bits

KEY: Final = np.arange(2, dtype=np.uint32)


def image(x: Any) -> Any:
    return rlx.reshape(x, (1, 3, 2, 2))


def over_rows(function: Callable[[Any], Any], x: Any) -> Any:
    return rlx.vmap(function, axis_name="rows")(x)


CALLS: Final[dict[str, Callable[[Any], Any]]] = {
    "rlx.astype": lambda x: rlx.astype(x, "f64"),
    "rlx.axis_index": lambda x: over_rows(lambda row: row + rlx.astype(rlx.axis_index("rows"), "f32"), x),
    "rlx.axis_size": lambda x: over_rows(lambda row: row * rlx.axis_size("rows"), x),
    "rlx.bincount": lambda x: rlx.bincount(rlx.astype(x[0] > 0, "i32"), length=3),
    "rlx.bitcast": lambda x: rlx.bitcast(x, "i32"),
    "rlx.bitwise_and": lambda x: rlx.bitwise_and(rlx.bitcast(x, "i32"), 255),
    "rlx.bitwise_invert": lambda x: rlx.bitwise_invert(rlx.bitcast(x, "u32")),
    "rlx.bitwise_left_shift": lambda x: rlx.bitwise_left_shift(rlx.bitcast(x, "i32"), 3),
    "rlx.bitwise_or": lambda x: rlx.bitwise_or(rlx.bitcast(x, "u32"), 255),
    "rlx.bitwise_right_shift": lambda x: rlx.bitwise_right_shift(rlx.bitcast(x, "i32"), 3),
    "rlx.bitwise_xor": lambda x: rlx.bitwise_xor(rlx.bitcast(x, "i32"), -1),
    "rlx.convolve": lambda x: rlx.convolve(x[0], x[1]),
    "rlx.correlate": lambda x: rlx.correlate(x[0], x[1]),
    "rlx.cumulative_logsumexp": lambda x: rlx.cumulative_logsumexp(x, axis=1),
    "rlx.cumulative_max": lambda x: rlx.cumulative_max(x, axis=1),
    "rlx.cumulative_min": lambda x: rlx.cumulative_min(x, axis=1),
    "rlx.cumulative_prod": lambda x: rlx.cumulative_prod(x, axis=1),
    "rlx.cumulative_sum": lambda x: rlx.cumulative_sum(x, axis=0),
    "rlx.einsum": lambda x: rlx.einsum("ij,kj->ik", x, x),
    "rlx.full_like": lambda x: rlx.full_like(x, 2) + x,
    "rlx.interp": lambda x: rlx.interp(x, np.float32([0, 1, 2]), np.float32([0, 2, 3])),
    "rlx.matmul": lambda x: rlx.matmul(x, rlx.matrix_transpose(x)),
    "rlx.meshgrid": lambda x: rlx.meshgrid(x[0], x[1]),
    "rlx.moveaxis": lambda x: rlx.moveaxis(x, 0, 1),
    "rlx.nanquantile": lambda x: rlx.nanquantile(x, 0.3, axis=1),
    "rlx.one_hot": lambda x: rlx.one_hot(rlx.astype(x > 0, "i32"), 2),
    "rlx.outer": lambda x: rlx.outer(x[0], x[1]),
    "rlx.pad": lambda x: rlx.pad(x, ((1, 0), (0, 2))),
    "rlx.permute_dims": lambda x: rlx.permute_dims(x, (1, 0)),
    "rlx.pmax": lambda x: over_rows(lambda row: rlx.pmax(row, "rows"), x),
    "rlx.pmean": lambda x: over_rows(lambda row: rlx.pmean(row, "rows"), x),
    "rlx.pmin": lambda x: over_rows(lambda row: rlx.pmin(row, "rows"), x),
    "rlx.polyval": lambda x: rlx.polyval(np.float32([1, 2, 3]), x),
    "rlx.psum": lambda x: over_rows(lambda row: rlx.psum(row, "rows"), x),
    "rlx.quantile": lambda x: rlx.quantile(x, 0.7, axis=0),
    "rlx.repeat": lambda x: rlx.repeat(x, 2, axis=1),
    "rlx.roll": lambda x: rlx.roll(x, 1, axis=1),
    "rlx.searchsorted": lambda x: rlx.searchsorted(np.float32([0, 0.5, 1]), x),
    "rlx.segment_max": lambda x: rlx.segment_max(x, np.int32([0, 1, 0]), 2),
    "rlx.segment_sum": lambda x: rlx.segment_sum(x, np.int32([0, 1, 0]), 2),
    "rlx.split": lambda x: rlx.split(x, 2, axis=1),
    "rlx.take": lambda x: rlx.take(x, np.int32([2, 0, 1]), axis=0),
    "rlx.tile": lambda x: rlx.tile(x, (2, 1)),
    "rlx.top_k": lambda x: rlx.top_k(x, 2),
    "rlx.view_as_complex": lambda x: rlx.view_as_complex(rlx.reshape(x, (3, 2, 2))),
    "quantization.quantize_linear": lambda x: quantization.quantize_linear(x, 0.1, 3, dtype="u8"),
    "quantization.dequantize_linear": lambda x: quantization.dequantize_linear(rlx.astype(x * 9, "i8"), 0.1, 3),
    "quantization.fake_quantize": lambda x: quantization.fake_quantize(x, 0.01, mode="fixed", bits=4)[:2],
    "quantization.fake_quantize of an average": lambda x: quantization.fake_quantize(x, 0.01, mode="average"),
    "quantization.learned_scale_quantize": lambda x: quantization.learned_scale_quantize(x, x[:, 0], bits=4, axis=0),
    "quantization.quantized_matmul": lambda x: quantization.quantized_matmul(
        rlx.astype(x * 99, "i8"),
        np.arange(8, dtype=np.uint8).reshape(4, 2),
        x_zero_point=3,
        w_zero_point=4,
        multiplier=0.1,
    ),
    "quantization.quantized_conv": lambda x: quantization.quantized_conv(
        rlx.astype(image(x) * 99, "i8"),
        np.arange(24, dtype=np.uint8).reshape(2, 3, 2, 2),
        x_zero_point=3,
        multiplier=0.1,
        padding=1,
    ),
    "nn.avg_pool": lambda x: nn.avg_pool(image(x), 2),
    "nn.conv": lambda x: nn.conv(image(x), np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 2, 2)),
    "nn.cross_entropy": lambda x: nn.cross_entropy(x, np.int32([0, 3, 1])),
    "nn.dropout": lambda x: nn.dropout(x, rlx.random.key(0), 0.5),
    "nn.embedding": lambda x: nn.embedding(np.int32([2, 0]), x),
    "nn.group_norm": lambda x: nn.group_norm(image(x), num_groups=3),
    "nn.linear": lambda x: nn.linear(x, np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)),
    "nn.max_pool": lambda x: nn.max_pool(image(x), 2),
    "nn.nll_loss": lambda x: nn.nll_loss(x, np.int32([0, 3, 1])),
    "nn.pixel_unshuffle": lambda x: nn.pixel_unshuffle(image(x), 2),
    "x + y": lambda x: x + x[0],
    "x - number": lambda x: 1 - x,
    "x * y": lambda x: x * x[:, :1],
    "x / integer": lambda x: x / 3,
    "integers / integers": lambda x: rlx.astype(x > 0, "i32") / 3,
    "x // y": lambda x: x // 0.3,
    "x % y": lambda x: x % 0.3,
    "x ** y": lambda x: x**2,
    "number ** x": lambda x: 2**x,
    "x @ y": lambda x: x @ x.T,
    "x < y": lambda x: x < 0.5,
    "x == y": lambda x: x == x[0],
    "-x": lambda x: -x,
    "abs(x)": abs,
    "~x": lambda x: ~(x > 0.5),
    "x & y": lambda x: (x > 0) & (x < 1),
    "x << y": lambda x: rlx.bitcast(x, "i32") << 2,
    "x[i]": lambda x: x[1],
    "x[a:b, ::-1]": lambda x: x[1:, ::-1],
    "x[..., None]": lambda x: x[..., None],
    "x[indices]": lambda x: x[np.int32([2, -1])],
    "x.at[i].set": lambda x: x.at[1].set(7),
    "x.at[indices].add": lambda x: x.at[np.int32([0, 0])].add(1),
    "x.T": lambda x: x.T,
    "x.T of three axes": lambda x: x[None].T,
    "x.mT": lambda x: x.mT,
    "x.sum()": lambda x: x.sum(axis=1),
    "integers.mean()": lambda x: rlx.astype(x > 0, "i32").mean(),
    "x.std()": lambda x: x.std(axis=0),
    "x.max()": lambda x: x.max(),
    "x.argmin()": lambda x: x.argmin(axis=1),
    "x.reshape()": lambda x: x.reshape(2, -1),
    "x.astype()": lambda x: x.astype("f16"),
    "x.clip()": lambda x: x.clip(0.1, 0.6),
    "x.round()": lambda x: x.round(),
    "x.cumsum()": lambda x: x.cumsum(axis=1),
    "x.flatten()": lambda x: x.flatten(),
    "x.swapaxes()": lambda x: x.swapaxes(0, 1),
    "x.repeat()": lambda x: x.repeat(2, axis=0),
    "x.real": lambda x: x.real,
}
"""Functions that need other arguments than arrays of one shape, methods and operators, each as a function of one array."""


OTHER_ARGUMENTS: Final = frozenset(
    """
    nn.adaptive_avg_pool nn.adaptive_max_pool nn.affine_grid nn.alpha_dropout nn.attention nn.batch_norm
    nn.batch_norm_inference nn.bilinear nn.channel_shuffle nn.conv_transpose nn.cosine_embedding_loss nn.ctc_loss
    nn.embedding_bag nn.fold nn.fractional_max_pool nn.gated_delta_net nn.global_avg_pool nn.global_max_pool
    nn.grid_sample nn.gru nn.gumbel_softmax nn.instance_norm nn.linear_attention nn.local_response_norm nn.lp_pool nn.lstm
    nn.max_unpool nn.min_pool nn.multi_head_attention nn.multi_margin_loss nn.one_hot nn.pixel_shuffle nn.prelu
    nn.prod_pool nn.residual_rms_norm nn.resize nn.rope nn.selective_scan nn.shared_linear_pair nn.sum_pool nn.swiglu
    nn.threshold nn.unfold nn.update_cache rlx.arange rlx.associative_scan rlx.at rlx.attention rlx.available_devices
    rlx.batch_norm rlx.batch_norm_inference rlx.can_cast rlx.checkpoint rlx.checkpoint_name rlx.compile rlx.complex_abs
    rlx.complex_norm_sq rlx.cond rlx.device_put rlx.devices rlx.dynamic_slice rlx.dynamic_update_slice rlx.empty
    rlx.eval_shape rlx.eye rlx.finfo rlx.fori_loop rlx.forward_backward rlx.from_bytes rlx.full rlx.gather_nd rlx.grad
    rlx.grouped_matmul rlx.hessian rlx.hvp rlx.iinfo rlx.interpret rlx.iota rlx.is_available rlx.isdtype rlx.jacfwd
    rlx.jacrev rlx.jit rlx.jvp rlx.linearize rlx.linspace rlx.lora_matmul rlx.nanpercentile rlx.nonzero rlx.ones
    rlx.package rlx.percentile rlx.profile rlx.pure_callback rlx.register_dataclass rlx.register_pytree_node
    rlx.result_type rlx.rope rlx.scan rlx.scatter rlx.scatter_add rlx.scatter_nd rlx.segment_mean rlx.segment_min
    rlx.segment_prod rlx.solve rlx.spec rlx.switch rlx.symbol rlx.to_bytes rlx.trace rlx.train_step rlx.unique_all
    rlx.unique_counts rlx.unique_inverse rlx.unique_values rlx.value_and_grad rlx.view_as_real rlx.vjp rlx.vmap
    rlx.while_loop rlx.zeros
    """.split()  # noqa: SIM905
)
"""Functions that take functions, sizes, files or several related arrays: tests of their own call them."""


def calls() -> dict[str, Callable[[Any], Any]]:
    """Every function that the law is about, as a function of one array."""
    found = dict(CALLS)
    for name, function in functions().items():
        if name not in CALLS and name not in OTHER_ARGUMENTS:
            arguments, named = required_arguments(function)
            found[name] = with_array(function, arguments, named)
    return found


def with_array(function: Callable[..., Any], arguments: list[Any], named: dict[str, Any]) -> Callable[[Any], Any]:
    return lambda x: function(*[x if each is X else each for each in arguments], **named)


INPUTS: Final = {
    "special": np.float32([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1, 3.4e38, 2, -0.5, 0.5, 1]).reshape(3, 4),
    "double": X.astype(np.float64) - 0.4,
    "complex": (X - 0.4 + 1j * (0.6 - X)).astype(np.complex64),
    "integers": np.int32([[0, 1, -1, 2], [2**31 - 1, -(2**31), 7, -7], [3, 4, 5, 31]]),
}


def modes(call: Callable[[Any], Any], x: np.ndarray) -> dict[str, Callable[[], Any]]:
    """Ways to evaluate a function of one array, each with the results for `x`."""
    twice = np.stack([x, x])

    def last(results: Any) -> Any:
        return optree.tree_map(lambda a: a[-1], results)

    def captured() -> Any:
        state = {"x": np.flip(x).copy()}
        batched = rlx.vmap(lambda _: call(rlx.asarray(state["x"])))
        batched(np.zeros(2, np.float32))
        state["x"] = x
        return last(batched(np.zeros(2, np.float32)))

    return {
        "compiled": lambda: rlx.jit(call)(x),
        "folded": lambda: rlx.jit(lambda: call(rlx.asarray(x)))(),
        "in a batch": lambda: last(rlx.vmap(call)(twice)),
        "in a loop": lambda: last(rlx.scan(lambda carry, row: (carry, call(row)), np.float32(0), twice)[1]),
        "in a branch": lambda: rlx.jit(lambda p, a: rlx.cond(p, call, call, a))(np.bool_(True), x),
        "captured, after a change": captured,
    }


def is_exact(call: Callable[[Any], Any], x: np.ndarray) -> bool:
    """Whether every element of the results depends on elements in one order only."""
    return all(op.category in ("elementwise", "movement") for op in ops_inside(rlx.trace(call, x)))


def magnitude(array: np.ndarray) -> float:
    """The largest finite magnitude, by which the rounding of sums is judged."""
    return float(np.abs(array.astype(np.complex128))[np.isfinite(array)].max(initial=0))


def expect_same(call: Callable[[Any], Any], x: np.ndarray, names: Iterable[str]) -> None:
    """Compare the results of the named modes with those of an eager call; what is refused there is refused in all."""
    ways = modes(call, x)
    try:
        expected = [np.asarray(a) for a in optree.tree_leaves(call(rlx.asarray(x)))]
    except RlxError as refusal:
        for name in names:
            with pytest.raises(type(refusal)):
                ways[name]()
        return
    rtol = 0.0 if is_exact(call, x) else 64 * float(np.finfo(np.float32).eps)
    for name in names:
        results = [np.asarray(a) for a in optree.tree_leaves(ways[name]())]
        assert len(results) == len(expected), name
        for a, b in zip(expected, results, strict=True):
            assert (b.dtype, b.shape) == (a.dtype, a.shape), name
            if rtol and a.dtype.kind in "fc":
                scale = max(magnitude(a), magnitude(x))
                wide = [each.astype(np.complex128) for each in (b, a)]
                np.testing.assert_allclose(*wide, rtol=rtol, atol=rtol * scale, err_msg=name)
            else:
                differs = ~same_bits(a, b)
                assert not differs.any(), f"{name}: {b[differs][:3]}, and evaluated at once {a[differs][:3]}"


@pytest.mark.parametrize("name", calls())
def test_a_function_has_one_meaning_in_every_mode(name: str) -> None:
    call = calls()[name]
    expect_same(call, X, modes(call, X))


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", calls())
def test_compiled_and_folded_results_of_special_inputs_are_those_of_an_eager_call(name: str, kind: str) -> None:
    expect_same(calls()[name], INPUTS[kind], ("compiled", "folded"))
