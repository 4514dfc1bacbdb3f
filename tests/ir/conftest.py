"""What the tests of the IR share: a table of all standard ops, and graphs with something of everything in them."""

from enum import Enum

import numpy as np
import pytest
from attrs import frozen

from rlx_core.ir.block import Block, define_block
from rlx_core.ir.dims import symbol
from rlx_core.ir.dtypes import f64
from rlx_core.ir.graph import Builder, Graph, building
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import TensorType, spec
from rlx_core.ops import standard_ops
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import add
from rlx_core.ops.conversion import cast
from rlx_core.ops.structural import reshape, sum_axes


class Rounding(Enum):
    UP = "up"
    DOWN = "down"


@frozen
class Window:
    low: float
    high: float
    rounding: Rounding = Rounding.UP


@define_op(domain="test")
class Everything(Op):
    """An op with an attribute of every kind."""

    flag: bool = True
    count: int = 3
    scale: float = 0.5
    phase: complex = 1j
    word: str = "a"
    size: object = 4
    window: Window | None = None
    shape: tuple = ()
    type: TensorType | None = None
    body: Graph | None = None
    inner: Op | None = None

    def infer(self, x, extra=None):
        return x

    def decompose(self, x, extra=None):
        return exp(x)


@define_op(domain="test")
class Split(Op):
    """Two results."""

    def infer(self, x: TensorType):
        return x, x.with_dtype(f64)

    def reference(self, x):
        return x, x.astype(np.float64)


@define_block(domain="test", kind="scale")
class Scale(Block):
    """x + w, then exp if asked."""

    is_exp: bool = False

    def fusable(self, x, w):
        total = x + w
        return exp(total) if self.is_exp else total

    def direct(self, x, w):
        return self.fusable(w, x)


OPS = {op.name: op for op in (*standard_ops(), Everything, Split, Scale)}


def everything(**attributes):
    """A graph around one `Everything`."""
    b = Builder("one")
    x = b.input("x", spec("f32[2]"))
    return b.finish([Everything(**attributes)(x)])


def rich_graph():
    """Symbols, guards, names, constants of many dtypes, several results, repeated outputs."""
    b = Builder("rich graph")
    x = b.input("x", spec("f32[BATCH, 64]"))
    w = b.param("layer.0.w", spec("f32[64]"))
    b.input("odd name", spec("c64[]"))
    with building(b):
        h = add(x, w, name="h")
        again = exp(h, name="h")
        odd = b.constant(np.array([0.1, np.nan, -0.0, np.inf, 1e-30], np.float32))
        many = b.constant(np.arange(40.0))
        for data in (True, np.float16(0.1), np.int8(-3), np.array([1 + 2j, complex(-0.0, np.nan)], np.complex64)):
            b.constant(np.asarray(data))
        n = symbol("n")
        late = b.input("late", TensorType(x.dtype, (n, 4)))
        flat = reshape(late, (3, -1))
        total = sum_axes(reshape(again, (x.shape[0] * 8, 8)), axes=(0,), keep_dim=True)
        one, two = Split()(total)
        y = cast(two, to=f64)
    return b.finish([y, x, h, many, odd, one, y, flat])


def hir_graph():
    """Two named blocks, an unnamed one, and a plain op between them."""
    b = Builder("blocks")
    x, w = b.input("x", spec("f32[4]")), b.param("w", spec("f32[4]"))
    with building(b):
        a = Scale()(x, w, name="first")
        c = exp(a)
        d = Scale(is_exp=True)(c, w)
        e = Scale(is_exp=True)(d, w)
    return b.finish([e])


@pytest.fixture
def ops():
    return OPS


@pytest.fixture
def rich():
    return rich_graph()


@pytest.fixture
def hir():
    return hir_graph()


@pytest.fixture
def make_everything():
    return everything


@pytest.fixture
def kinds():
    """The classes of this file, which tests cannot import."""
    return {"Everything": Everything, "Split": Split, "Scale": Scale, "Window": Window, "Rounding": Rounding}


@pytest.fixture
def attribute_rows():
    """One value or more of every attribute kind."""
    body = Builder("body")
    nested = body.finish([exp(body.input("a", spec("f32[2]")))])
    payload_nan = float(np.frombuffer(bytes.fromhex("010000000000f8ff"), np.float64)[0])
    return [
        {"flag": False, "count": -(2**70)},
        {"scale": -0.0},
        {"scale": float("inf")},
        {"scale": float("nan")},
        {"scale": payload_nan},
        {"scale": 1e22},
        {"scale": 5e-324},
        {"phase": complex(-0.0, float("nan"))},
        {"word": 'quote " backslash \\ newline \n # é'},
        {"size": symbol("n") * 2 + 1},
        {"size": None},
        {"window": Window(-0.5, 0.5, Rounding.DOWN)},
        {"shape": (1, (2, ()), symbol("n"), -1, f64, "x", None, True, 0.0)},
        {"shape": (1,)},
        {"type": spec("bf16[n, 3]")},
        {"body": nested},
        {"inner": Everything(body=nested, scale=0.25)},
    ]
