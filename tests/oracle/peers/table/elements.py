"""Functions of two and more operands, with broadcasting and mixed dtypes, and movements of elements."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import torch

import rlx_core as rlx

from ..rows import COMPLEX, DTYPES, FLOATS, INTEGERS, PEERS, WIDE, Draw, Family, Row

__all__ = ["FAMILY"]

BOTH = (*FLOATS, *COMPLEX)
DISCRETE = {"asks": ("dtype", "forward", "batch")}


def shapes(d: Draw) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two that broadcast with each other: sizes of 1, and fewer axes."""
    shape = d.shape(d.size(1, 3))
    a = tuple(1 if d.choice([False, False, True]) else n for n in shape)
    b = tuple(1 if d.choice([False, False, True]) else n for n in shape)
    return a, b[d.size(0, len(b)) :]


def two(low: float = -2.0, high: float = 2.0) -> Any:
    return lambda d: ((lambda s: (d.floats(s[0], low, high), d.floats(s[1], low, high)))(shapes(d)), {})


def two_apart(d: Draw) -> Any:
    """Elements of which no two are equal or nearly so."""
    a, b = shapes(d)
    return (d.apart(a, 0.25), d.rounded(np.asarray(d.apart(b, 0.25), np.float64) + 0.0625)), {}


def integers(low: int = 0, high: int = 9) -> Any:
    def cases(d: Draw) -> Any:
        a, b = shapes(d)
        least = max(low, 0) if d.dtype == np.uint8 else low
        name = next(key for key, value in DTYPES.items() if value == d.dtype)
        return (d.integers(high, a, name, least), d.integers(high, b, name, max(least, 1))), {}

    return cases


def mixed(d: Draw) -> Any:
    """An array of the case's dtype, and one of integers that is no wider."""
    a, b = shapes(d)
    return (d.floats(a), d.integers(5, b, "i32")), {}


def selected(d: Draw) -> Any:
    a, b = shapes(d)
    return (d.bools(a), d.floats(b), d.floats(a)), {}


def moved(name: str, ours: Any, torch_: Any, jax_: Any, rank: int = 3, attributes: Any = None, **more: Any) -> Row:
    """A row about where elements go: dims of which none is 0, and attributes that depend on no dim."""
    draw = attributes or (lambda d: {})
    return Row(
        name,
        ours,
        lambda d: ((d.floats(d.shape(rank, 2, 5)),), draw(d)),
        torch_,
        jax_,
        dtypes=(*WIDE, "bf16", "c64"),
        **more,
    )


FAMILY = Family(
    "Elements: arithmetic and movement",
    [
        Row("add", rlx.add, two(), torch.add, jnp.add, dtypes=BOTH),
        Row("subtract", rlx.subtract, two(), torch.subtract, jnp.subtract, dtypes=BOTH),
        Row("multiply", rlx.multiply, two(), torch.multiply, jnp.multiply, dtypes=BOTH),
        Row("divide", rlx.divide, two(0.3, 2.0), torch.divide, jnp.divide, dtypes=BOTH),
        Row("pow", rlx.pow, two(0.3, 2.0), torch.pow, jnp.power),
        Row("atan2", rlx.atan2, two(0.2, 2.0), torch.atan2, jnp.arctan2),
        Row("hypot", rlx.hypot, two(0.2, 2.0), torch.hypot, jnp.hypot),
        Row("logaddexp", rlx.logaddexp, two(), torch.logaddexp, jnp.logaddexp),
        Row("maximum", rlx.maximum, two_apart, torch.maximum, jnp.maximum),
        Row("minimum", rlx.minimum, two_apart, torch.minimum, jnp.minimum),
        Row("remainder", rlx.remainder, two(0.5, 3.0), torch.remainder, jnp.remainder, dtypes=WIDE),
        Row("copysign", rlx.copysign, two_apart, torch.copysign, jnp.copysign),
        Row("where", rlx.where, selected, torch.where, jnp.where, dtypes=BOTH),
        Row("add of floats and integers", rlx.add, mixed, torch.add, jnp.add, dtypes=WIDE),
        Row(
            "add of f16 or bf16 and i32",
            rlx.add,
            mixed,
            torch.add,
            jnp.add,
            dtypes=("f16", "bf16"),
            differs={
                (peer, "dtype"): "the result is f32, which holds more of an i32; there it stays narrow"
                for peer in PEERS
            },
        ),
        Row(
            "floor_divide of integers",
            rlx.floor_divide,
            integers(-9),
            torch.floor_divide,
            jnp.floor_divide,
            dtypes=INTEGERS,
            **DISCRETE,
        ),
        Row(
            "remainder of integers",
            rlx.remainder,
            integers(-9),
            torch.remainder,
            jnp.remainder,
            dtypes=INTEGERS,
            **DISCRETE,
        ),
        Row(
            "bitwise_and", rlx.bitwise_and, integers(), torch.bitwise_and, jnp.bitwise_and, dtypes=INTEGERS, **DISCRETE
        ),
        Row(
            "bitwise_xor", rlx.bitwise_xor, integers(), torch.bitwise_xor, jnp.bitwise_xor, dtypes=INTEGERS, **DISCRETE
        ),
        Row(
            "bitwise_left_shift",
            rlx.bitwise_left_shift,
            integers(0, 5),
            torch.bitwise_left_shift,
            jnp.left_shift,
            dtypes=INTEGERS,
            **DISCRETE,
        ),
        Row("less", rlx.less, two_apart, torch.less, jnp.less, **DISCRETE),
        Row("equal of integers", rlx.equal, integers(0, 3), torch.eq, jnp.equal, dtypes=INTEGERS, **DISCRETE),
        moved(
            "permute_dims",
            rlx.permute_dims,
            lambda x, *, axes: x.permute(axes),
            lambda x, *, axes: jnp.transpose(x, axes),
            attributes=lambda d: {"axes": d.choice([(2, 0, 1), (1, 0, 2), (2, 1, 0)])},
        ),
        moved(
            "flip",
            rlx.flip,
            lambda x, *, axis: x.flip(axis),
            jnp.flip,
            attributes=lambda d: {"axis": d.choice([(0,), (1, 2), (-1,)])},
        ),
        moved(
            "roll",
            rlx.roll,
            lambda x, *, shift, axis: x.roll(shift, axis),
            jnp.roll,
            attributes=lambda d: {"shift": d.size(-7, 7), "axis": d.size(0, 2)},
        ),
        moved(
            "reshape",
            lambda x: rlx.reshape(x, (-1, 2)) if x.size % 2 == 0 else rlx.reshape(x, (-1,)),
            lambda x: x.reshape(-1, 2) if x.numel() % 2 == 0 else x.reshape(-1),
            lambda x: x.reshape(-1, 2) if x.size % 2 == 0 else x.reshape(-1),
        ),
        moved(
            "broadcast_to",
            lambda x: rlx.broadcast_to(x, (3, *x.shape)),
            lambda x: x.broadcast_to(3, *x.shape),
            lambda x: jnp.broadcast_to(x, (3, *x.shape)),
        ),
        moved(
            "concat",
            lambda x, *, axis: rlx.concat([x, x * 2, x], axis),
            lambda x, *, axis: torch.cat([x, x * 2, x], axis),
            lambda x, *, axis: jnp.concatenate([x, x * 2, x], axis),
            attributes=lambda d: {"axis": d.size(-3, 2)},
        ),
        moved(
            "stack",
            lambda x, *, axis: rlx.stack([x, x * 2], axis),
            lambda x, *, axis: torch.stack([x, x * 2], axis),
            lambda x, *, axis: jnp.stack([x, x * 2], axis),
            attributes=lambda d: {"axis": d.size(-4, 3)},
        ),
        moved(
            "repeat",
            rlx.repeat,
            lambda x, *, repeats, axis: x.repeat_interleave(repeats, axis),
            jnp.repeat,
            attributes=lambda d: {"repeats": d.size(1, 3), "axis": d.size(0, 2)},
            note="`repeat_interleave` in PyTorch",
        ),
        moved(
            "tile",
            rlx.tile,
            lambda x, *, repetitions: x.tile(repetitions),
            lambda x, *, repetitions: jnp.tile(x, repetitions),
            attributes=lambda d: {"repetitions": d.choice([(2,), (1, 2, 1), (2, 1, 1, 3)])},
        ),
        moved(
            "pad",
            lambda x, *, p: rlx.pad(x, p, constant_values=1.5),
            lambda x, *, p: torch.nn.functional.pad(x, [v for pair in p[::-1] for v in pair], value=1.5),
            lambda x, *, p: jnp.pad(x, p, constant_values=1.5),
            attributes=lambda d: {"p": [(d.size(0, 2), d.size(0, 2)) for _ in range(3)]},
        ),
        moved(
            "pad(mode='reflect')",
            lambda x: rlx.pad(x, [(0, 0), (0, 0), (1, 1)], mode="reflect"),
            lambda x: torch.nn.functional.pad(x, (1, 1), mode="reflect"),
            lambda x: jnp.pad(x, [(0, 0), (0, 0), (1, 1)], mode="reflect"),
        ),
        moved("tril", rlx.tril, lambda x, *, k: x.tril(k), jnp.tril, attributes=lambda d: {"k": d.size(-2, 2)}),
        moved(
            "diagonal",
            lambda x: rlx.diagonal(x),
            lambda x: x.diagonal(dim1=-2, dim2=-1),
            lambda x: jnp.diagonal(x, axis1=-2, axis2=-1),
            note="of the last two axes",
        ),
        moved("diff", lambda x: rlx.diff(x), lambda x: x.diff(), lambda x: jnp.diff(x)),
        moved(
            "a slice with steps", lambda x: x[::2, 1:, ::-1], lambda x: x[::2, 1:].flip(2), lambda x: x[::2, 1:, ::-1]
        ),
        moved(
            "grad through split",
            lambda x: rlx.split(x, [1], axis=1)[1] * 2,
            lambda x: x[:, 1:] * 2,
            lambda x: jnp.split(x, [1], axis=1)[1] * 2,
        ),
    ],
)
