"""What bad input gets: a typed error with the op, file or key, both numbers, the user's own line, and what would work.

Each row is a mistake of a user. After every one of them the objects it was made with still work.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_core.builder import GraphBuilder
from rlx_core.errors import (
    AxisError,
    BindingError,
    ConfigError,
    DeviceError,
    DeviceUnavailableError,
    DtypeError,
    FileError,
    FormatError,
    GuardError,
    IndexRangeError,
    LengthMismatchError,
    MissingInputError,
    PassOrderError,
    PluginError,
    PromotionError,
    RlxError,
    ShapeError,
    TraceError,
    UnknownNameError,
    UnsupportedError,
    WrongInputCountError,
)
from rlx_core.plugins import PluginHost, PluginPolicy, default_host
from rlx_core.runtime.executable import Executable

pytestmark = pytest.mark.every_case

X = np.float32([[1, 2, 3], [4, 5, 6]])
W = np.float32([[1, 0], [0, 1], [1, 1]])
HERE = Path(__file__).name


class Bench:
    """The objects that mistakes are made with, and the proof that they still work."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.builder = GraphBuilder("bench")
        self.x = self.builder.input("x", "f32[n, 3]")
        self.jitted = rlx.jit(lambda x, w: x @ w)
        self.gradient = rlx.grad(lambda w, x: rlx.sum(x @ w))
        g = GraphBuilder("model")
        g.set_outputs(g.input("x", "f32[n, 3]") @ g.param("w", "f32[3, 2]") + g.input("bias", "f32[2]"))
        self.executable = rlx.Session().compile(g.build())
        self.executable.set_param("w", W)
        self.compiled = rlx.compile(lambda weights, x: x @ weights["w"], {"w": W}, rlx.spec("f32[n, 3]"))
        self.weights = folder / "weights.safetensors"
        rlx.save(self.weights, {"w": W})

    def expect_working(self) -> None:
        np.testing.assert_array_equal(self.jitted(X, W), X @ W)
        np.testing.assert_array_equal(self.gradient(W, X), X.T @ np.ones((2, 2), np.float32))
        np.testing.assert_array_equal(self.run()[0], X @ W)
        np.testing.assert_array_equal(self.compiled(X), X @ W)
        np.testing.assert_array_equal(rlx.load(self.weights)["w"], W)
        self.builder.set_outputs(self.builder.exp(self.x))
        (found,) = rlx.Session().compile(self.builder.build()).run({"x": X})
        np.testing.assert_allclose(found, np.exp(X), rtol=1e-6)

    def run(self, **inputs: Any) -> Any:
        return self.executable.run({"x": X, "bias": np.zeros(2, np.float32), **inputs})

    def directory(self, name: str) -> Path:
        """A new directory beside the weights."""
        path = self.folder / name
        path.mkdir()
        return path

    def file(self, change: Callable[[bytes], bytes]) -> Path:
        """The weights with other bytes."""
        path = self.folder / "broken.safetensors"
        path.write_bytes(change(self.weights.read_bytes()))
        return path


@frozen
class Mistake:
    """What a user does, the error's class, what it must say, and whether it shows the user's line (it names this file)."""

    name: str
    act: Callable[[Bench], Any]
    error: type[RlxError]
    says: tuple[str, ...]
    at_line: bool = False

    def __str__(self) -> str:
        return self.name


def row(name: str, act: Callable[[Bench], Any], error: type[RlxError], *says: str, at_line: bool = False) -> Mistake:
    return Mistake(name, act, error, says, at_line)


Z, N, H = np.zeros, np.float32, HERE

IN_PROGRAMS = [
    row("contracted dims", lambda b: b.jitted(X, W.T), ShapeError, "matmul", "3", "2", at_line=True),
    row("contracted dims, built", lambda b: b.builder.matmul(b.x, W.T), ShapeError, "matmul", "3", "2", at_line=True),
    row("broadcast", lambda b: rlx.jit(lambda x: x + Z(2, N))(X), ShapeError, "add", "3", "2", at_line=True),
    row("broadcast, at once", lambda b: rlx.add(X, Z(2, N)), ShapeError, "add", "3", "2"),
    row(
        "elements of a reshape",
        lambda b: rlx.jit(lambda x: x.reshape(4, 2))(X),
        ShapeError,
        "reshape",
        "6",
        "8",
        at_line=True,
    ),
    row(
        "dtype of an op",
        lambda b: rlx.jit(lambda x: rlx.bitwise_and(x, x))(X),
        DtypeError,
        "bitwise_and",
        "f32",
        at_line=True,
    ),
    row("no common dtype", lambda b: rlx.jit(lambda a, c: a + c)(Z(2, "u8"), Z(2, "i8")), PromotionError, "u64", "i64"),
    row("rank", lambda b: rlx.jit(lambda x: rlx.matmul(x, 2.0))(X), ShapeError, "matmul", at_line=True),
    row("axis of a sum", lambda b: rlx.jit(lambda x: rlx.sum(x, axis=2))(X), AxisError, "sum", "2", at_line=True),
    row("axis twice", lambda b: rlx.jit(lambda x: rlx.sum(x, axis=(0, -2)))(X), AxisError, "sum", "0", at_line=True),
    row(
        "permutation",
        lambda b: rlx.jit(lambda x: x.transpose(0, 0))(X),
        ShapeError,
        "transpose",
        "[0, 0]",
        at_line=True,
    ),
    row("index", lambda b: rlx.jit(lambda x: x[2])(X), IndexRangeError, "getitem", "2", at_line=True),
    row(
        "layer", lambda b: rlx.jit(lambda x: nn.linear(x, W, Z(3, N)))(X), ShapeError, "linear", "2", "3", at_line=True
    ),
    row("dim that is not there", lambda b: rlx.spec("f32[2, -1]"), ShapeError, "-1"),
    row("dtype that is not there", lambda b: rlx.spec("f23[2]"), DtypeError, "f23", "did you mean"),
    row("input twice", lambda b: b.builder.input("x", "f32[3]"), FormatError, "bench", "'x'"),
    row("parameter like an input", lambda b: b.builder.param("x", "f32[3]"), FormatError, "bench", "'x'"),
    row(
        "truth of a value",
        lambda b: rlx.jit(lambda x: 1 if x.sum() > 0 else 2)(X),
        TraceError,
        "truth value",
        at_line=True,
    ),
    row("no scalar loss", lambda b: rlx.grad(lambda x: x * 2)(X), ShapeError, "grad", "f32[2, 3]", at_line=True),
    row("integer gradient", lambda b: b.gradient(Z((3, 2), "i4"), X), DtypeError, "grad", "w", "i32"),
    row("unknown attribute", lambda b: rlx.jit(lambda x: rlx.softmax(x, axs=1))(X), UnknownNameError, "softmax", "axs"),
    row("no operand", lambda b: rlx.exp(), WrongInputCountError, "exp: takes 1 operand (x), not 0"),
    row("an absent operand", lambda b: rlx.exp(None), WrongInputCountError, "exp: operand x is required"),
    row(
        "no operand of three",
        lambda b: rlx.layer_norm(),
        WrongInputCountError,
        "takes (x, weight, bias, axis, eps): missing a required argument: 'x'",
    ),
    row("too many attributes", lambda b: rlx.exp(X, 1), WrongInputCountError, "exp: takes (x), not 2 arguments"),
    row(
        "a word for an axis",
        lambda b: rlx.softmax(X, axis="x"),
        ConfigError,
        "softmax: attribute axis must be an integer",
    ),
    row("half a size", lambda b: rlx.reshape(X, (1.5, 4)), ShapeError, "reshape", "integer or a symbol, not 1.5"),
    row("a dtype for a size", lambda b: rlx.zeros("f32"), ConfigError, "full: shape must be a sequence, not 'f32'"),
    row("a number for a type", lambda b: rlx.spec(3), FormatError, "3 is int", "f32[4, SEQ, 384]"),
    row("a text for an array", lambda b: rlx.exp("abc"), TraceError, "'abc' is text, not an array", "NumPy"),
    row("a text for a spec", lambda b: rlx.compile(rlx.exp, "f32[3]"), TraceError, 'rlx.spec("f32[3]")'),
    row("no function", lambda b: rlx.jit(X), TraceError, "jit: takes a function, not ndarray"),
    row("no function to differentiate", lambda b: rlx.grad(3), TraceError, "grad: takes a function, not int"),
    row("no function to trace", lambda b: rlx.trace(3, X), TraceError, "trace: takes a function, not int"),
    row("too few arguments", lambda b: b.jitted(X), WrongInputCountError, "'w'", "lambda(x, w)"),
    row("too many arguments", lambda b: b.gradient(W, X, X), WrongInputCountError, "lambda", "too many", "(w, x)"),
    row("an argument that is none", lambda b: b.jitted(X, v=W), WrongInputCountError, "'w'", "lambda(x, w)"),
    row("argument by name", lambda b: rlx.grad(rlx.sum, argnums="w")(X), AxisError, "'w'", "1 argument", "0 x"),
    row(
        "a Jacobian by integers",
        lambda b: rlx.jacfwd(rlx.negative)(np.arange(3)),
        DtypeError,
        "jacfwd: argument",
        "i64",
    ),
    row("a Jacobian of integers", lambda b: rlx.jacrev(rlx.argmax)(X), DtypeError, "jacobian", "real float", "i64"),
    row(
        "a Jacobian by nothing",
        lambda b: rlx.hessian(two_arrays, 2)(X, X),
        AxisError,
        "argument 2 of a call with 2",
        "0 x, 1",
    ),
    row("no tuple", lambda b: rlx.jvp(rlx.exp, X, X), ShapeError, "jvp: primals is ndarray", "(x,)"),
    row("a smaller tangent", lambda b: rlx.jvp(rlx.sum, (X,), (X[:1],)), ShapeError, "f32[2, 3]", "f32[1, 3]"),
    row("a wider tangent", lambda b: rlx.jvp(rlx.sum, (X,), (Z((2, 3)),)), DtypeError, "f32[2, 3]", "f64[2, 3]"),
    row("a smaller cotangent", lambda b: rlx.vjp(rlx.exp, X)[1](X[:1]), ShapeError, "f32[2, 3]", "f32[1, 3]"),
    row("a position to donate", lambda b: rlx.jit(rlx.exp, donate=0), ConfigError, "donate", "names", "not 0"),
]


def two_arrays(x: Any, y: Any) -> Any:
    return x + y


IN_RUNS = [
    row("dims of an input", lambda b: b.run(x=X.T), ShapeError, "x must be f32[n, 3]", "f32[3, 2]", at_line=True),
    row("rank of an input", lambda b: b.run(x=X[0]), ShapeError, "x must be f32[n, 3]", "f32[3]", at_line=True),
    row("dtype of an input", lambda b: b.run(x=X.astype("f8")), DtypeError, "x must be f32, not f64", at_line=True),
    row("no array", lambda b: b.run(x=object()), TraceError, "x is object, not an array", at_line=True),
    row("ragged list", lambda b: b.run(x=[[1.0], [1.0, 2.0]]), TraceError, "x is list, not an array", at_line=True),
    row(
        "missing input",
        lambda b: b.executable.run({"x": X}),
        MissingInputError,
        "bias is not given",
        "f32[2]",
        at_line=True,
    ),
    row(
        "unknown input",
        lambda b: b.run(biass=X),
        UnknownNameError,
        "model has no input 'biass'",
        "did you mean `bias`?",
    ),
    row("parameter as input", lambda b: b.run(w=W), UnknownNameError, "no input 'w'; it is a parameter"),
    row(
        "unbound parameter",
        lambda b: fresh().run({"x": Z(1, N)}),
        MissingInputError,
        "parameter w was never bound",
        "1 of 1",
    ),
    row("unknown parameter", lambda b: b.executable.set_param("v", W), UnknownNameError, "no parameter 'v'"),
    row(
        "one wrong of two",
        lambda b: b.executable.set_params({"w": 2 * W, "v": W}),
        UnknownNameError,
        "no parameter 'v'",
    ),
    row(
        "dims of a parameter",
        lambda b: b.executable.set_param("w", W.T),
        ShapeError,
        "w must be f32[3, 2]",
        "f32[2, 3]",
    ),
    row(
        "dtype of a parameter",
        lambda b: b.compiled.rebind(weights={"w": W > 0}),
        DtypeError,
        "weights.w",
        "f32",
        "bool",
    ),
    row(
        "structure of a parameter", lambda b: b.compiled.rebind(weights={"v": W}), ShapeError, "weights.w", "weights.v"
    ),
    row(
        "number of bytes",
        lambda b: b.executable.set_param_typed("w", bytes(23), "f32"),
        LengthMismatchError,
        "w (f32[3, 2]) has 24 bytes, not 23",
    ),
    row(
        "bytes of no element",
        lambda b: b.executable.run_typed({"x": (bytes(23), "f32"), "bias": (bytes(8), "f32")}),
        LengthMismatchError,
        "x has 23 bytes, not a multiple of the 4",
    ),
    row(
        "elements of no row",
        lambda b: b.executable.run_flat({"x": Z(4, N), "bias": Z(2, N)}),
        BindingError,
        "x has 4 elements, not a multiple of 3",
    ),
    row("number of slots", lambda b: b.executable.run_slots([X]), MissingInputError, "takes 2 inputs (x, bias), not 1"),
    row(
        "number of arguments", lambda b: b.compiled(X, X), WrongInputCountError, "takes (x), not 2 arguments", "weights"
    ),
    row("argument twice", lambda b: b.compiled(X, x=X), WrongInputCountError, "given twice", "x"),
    row("sizes that disagree", lambda b: two(n="n", m="n")(Z(2, N), Z(3, N)), BindingError, "n is 2", "3"),
    row("a guard", lambda b: two(n="n", m="m")(Z(2, N), Z(3, N)), GuardError, "2", "3", at_line=True),
]


def fresh() -> Executable:
    g = GraphBuilder("fresh")
    g.set_outputs(g.input("x", "f32[1]") * g.param("w", "f32[1]"))
    return rlx.Session().compile(g.build())


def two(n: str, m: str) -> Any:
    return rlx.compile(lambda a, b: a + b, rlx.spec(f"f32[{n}]"), rlx.spec(f"f32[{m}]"))


def compiled_with(**config: Any) -> Any:
    return rlx.jit(lambda x: x + 1, config=config)(X)


def plan(*passes: str) -> dict[str, Any]:
    return {"use": "mine", "pipeline": {"mine": {"mir": list(passes)}}}


IN_CONFIGURATIONS = [
    row(
        "unknown key", lambda b: compiled_with(fusion={"polcy": "direct"}), ConfigError, "fusion.polcy", "did you mean"
    ),
    row("unknown table", lambda b: compiled_with(fusio={}), ConfigError, "fusio", "did you mean `fusion`?"),
    row(
        "wrong value", lambda b: compiled_with(fusion={"policy": "indirect"}), ConfigError, "fusion.policy", "indirect"
    ),
    row("wrong type", lambda b: compiled_with(memory={"alignment": "wide"}), ConfigError, "memory.alignment", "wide"),
    row(
        "wrong order",
        lambda b: compiled_with(**plan("legalize", "lower-hir")),
        PassOrderError,
        "rlx.legalize",
        "rlx.lower-hir",
    ),
    row("unknown pass", lambda b: compiled_with(**plan("cs", "legalize")), RlxError, "cs", "did you mean"),
    row("file", lambda b: rlx.jit(lambda x: x, config=toml(b))(X), ConfigError, "rlx.toml", "fusion.polcy"),
    row("unknown target", lambda b: rlx.jit(lambda x: x, target="cpuu")(X), DeviceError, "cpuu", "did you mean `cpu`?"),
    row(
        "unknown target like one of a package",
        lambda b: rlx.jit(lambda x: x, target="cudda", host=PluginHost([]))(X),
        DeviceError,
        "did you mean `cuda`? It is not installed",
    ),
    row(
        "target of a package",
        lambda b: rlx.jit(lambda x: x, target="metal", host=PluginHost([]))(X),
        DeviceUnavailableError,
        "metal: no installed plugin provides this target",
    ),
    row("unknown op", lambda b: b.builder.sotfmax(b.x), UnknownNameError, "sotfmax", "did you mean `softmax`?"),
    row(
        "unknown op by name",
        lambda b: default_host().load("ops", "rlx.sotfmax"),
        UnknownNameError,
        "rlx.sotfmax",
        "rlx.softmax",
    ),
    row("unknown plugin", lambda b: enabling("acme").load("ops", "acme.norm"), PluginError, "acme.norm", "rlx.toml"),
    row(
        "suffix",
        lambda b: rlx.load("weights.safetensor"),
        UnknownNameError,
        ".safetensor",
        "did you mean `.safetensors`?",
    ),
    row("argument to donate", lambda b: rlx.jit(lambda x: x, donate="y")(X), UnknownNameError, "'y'", "x"),
]


def enabling(plugin: str) -> PluginHost:
    return PluginHost([], policy=PluginPolicy.of(enable=[plugin], source="rlx.toml"))


def toml(bench: Bench) -> Path:
    path = bench.folder / "rlx.toml"
    path.write_text('[fusion]\npolcy = "direct"\n')
    return path


def cut(length: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:length]


def swapped(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data.replace(old, new)


BROKEN, LONG = "broken.safetensors", b"\xff" * 8

IN_FILES = [
    row(
        "no such file",
        lambda b: rlx.load(b.folder / "weight.safetensors"),
        FileError,
        "weight.safetensors cannot be read (No such file",
        "did you mean `weights.safetensors`?",
    ),
    row("a directory", lambda b: rlx.load(b.directory("model.rlx")), FileError, "model.rlx", "Is a directory"),
    row(
        "no such directory",
        lambda b: rlx.save(b.folder / "there" / "w.safetensors", {"w": W}),
        FileError,
        "w.safetensors cannot be written",
        "there is no directory",
    ),
    row("empty", lambda b: rlx.load(b.file(cut(0))), FormatError, BROKEN, "0 bytes", "8"),
    row("cut in the header", lambda b: rlx.load(b.file(cut(20))), FormatError, BROKEN, "64 bytes", "12"),
    row("cut in the data", lambda b: rlx.load(b.file(cut(-1))), FormatError, BROKEN, "'w'", "24", "23"),
    row(
        "endless header", lambda b: rlx.load(b.file(lambda d: LONG + d[8:])), FormatError, BROKEN, str(2**64 - 1), "88"
    ),
    row("no JSON", lambda b: rlx.load(b.file(swapped(b'"w"', b"'w'"))), FormatError, BROKEN, "not JSON"),
    row(
        "dtype",
        lambda b: rlx.load(b.file(swapped(b"F32", b"F23"))),
        UnsupportedError,
        BROKEN,
        "'w'",
        "F23",
        "did you mean",
    ),
    row("dims", lambda b: rlx.load(b.file(swapped(b"[3,2]", b"[4,2]"))), FormatError, BROKEN, "'w'", "32 bytes", "24"),
    row(
        "offsets", lambda b: rlx.load(b.file(swapped(b"[0,24]", b"[8,32]"))), FormatError, BROKEN, "'w'", "8..32", "24"
    ),
    row("data after the end", lambda b: rlx.load(b.file(lambda d: d + b"\0")), FormatError, BROKEN, "24", "25"),
    row(
        "nothing to save",
        lambda b: rlx.save(b.weights, {"w": object()}),
        TraceError,
        "'w'",
        "object",
        "weights.safetensors",
    ),
    row(
        "complex128",
        lambda b: rlx.save(b.weights, {"w": Z(1, "c16")}),
        DtypeError,
        "'w'",
        "c128",
        "weights.safetensors",
    ),
]

MISTAKES = [*IN_PROGRAMS, *IN_RUNS, *IN_CONFIGURATIONS, *IN_FILES]


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_a_mistake_is_named_with_both_sides_and_changes_nothing(tmp_path, mistake):
    bench = Bench(tmp_path)
    with pytest.raises(mistake.error) as caught:
        mistake.act(bench)

    text = str(caught.value)
    assert [words for words in mistake.says if words not in text] == [], text
    if mistake.at_line:
        assert f"{HERE}:" in text, text
    bench.expect_working()


@pytest.mark.parametrize(
    ("mistaken", "says"),
    [
        (lambda x: rlx.sum(x, axis=2), "sum: axis 2 is outside a tensor with 2 axes (-2..1)"),
        (lambda x: x.sum(axis=2), "sum: axis 2 is outside a tensor with 2 axes (-2..1)"),
        (lambda x: rlx.expand_dims(x, axis=5), "expand_dims: axis 5 is outside a tensor with 3 axes (-3..2)"),
        (lambda x: rlx.vmap(rlx.sum, 3)(x), "axis 3 is outside a tensor with 2 axes (-2..1)"),
    ],
    ids=["function", "method", "new axis", "nested trace"],
)
def test_what_is_refused_before_there_is_a_node_says_who_refused_it(mistaken, says):
    with pytest.raises(AxisError) as caught:
        rlx.jit(mistaken)(X)
    assert caught.value.message.endswith(says)
    assert str(caught.value).count(f"{HERE}:") == 1


def test_the_line_that_is_named_is_the_users_own():
    def mistaken(x):
        return x @ W.T  # this line

    _, start = inspect.getsourcelines(mistaken)
    with pytest.raises(ShapeError) as caught:
        rlx.jit(mistaken)(X)
    assert f"{HERE}:{start + 1}" in str(caught.value)
