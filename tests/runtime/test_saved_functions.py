"""Files with a program and its weights: called as before, on any target; weights stay in the file; no file is believed."""

from __future__ import annotations

import hashlib
import json
import random
import struct
import tracemalloc

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.contributions import BackendSpec
from rlx_core.errors import ConfigError, DeviceError, FormatError, RlxError, ShapeError
from rlx_core.hooks import hookimpl
from rlx_core.ir.bundle import Bundle
from rlx_core.ir.graph import leaf_name
from rlx_core.ir.interpret import interpret
from rlx_core.ir.serialize import load, load_stored
from rlx_core.ops import Op
from rlx_core.pipeline.backend import Backend, Program, Target
from rlx_core.pipeline.contributed import HostOps
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.plugins import PluginEntry, PluginHost, default_host
from rlx_core.runtime.signature import Signature

from .travelling import WEIGHTS, Pair, X, compiled

GIVEN = {"x": X, "scale": 2.5}
PREFIX = struct.Struct("<8sIQ32s")


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "model.rlx"
    rlx.save(found, compiled())
    return found


def same(found, expected):
    assert type(found["all"][0]) is Pair
    assert found["all"][0].second[1] is None
    np.testing.assert_array_equal(found["y"], expected["y"])


@pytest.mark.medium
def test_a_saved_function_is_called_as_before(path):
    function, loaded = compiled(), rlx.load(path, classes=[Pair])
    assert repr(loaded) == repr(function)
    for rows in (2, 1, 2, 2, 2):  # the straight road too
        given = {"x": X[:rows], "scale": 2.5}
        same(loaded(given), function(given))
        same(loaded(x=given), function(given))
    with pytest.raises(ConfigError, match=r"x\.scale was compiled as 2\.5, not 3\.0"):
        loaded({"x": X, "scale": 3.0})
    with pytest.raises(ShapeError, match="another structure"):
        loaded({"x": X, "scale": 2.5, "z": X})


def test_its_parameters_can_be_bound_again(path):
    loaded = rlx.load(path, classes=[Pair])
    loaded.rebind(params={**WEIGHTS, "b": np.zeros(4, np.float32)})
    assert not np.array_equal(loaded(GIVEN)["y"], compiled()(GIVEN)["y"])
    with pytest.raises(ShapeError, match=r"missing +params\.b"):
        loaded.rebind(params={"w": WEIGHTS["w"]})


def test_it_can_be_saved_again_over_itself(path):
    loaded = rlx.load(path, classes=[Pair])
    before = path.read_bytes()
    rlx.save(path, loaded)
    assert path.read_bytes() == before
    same(loaded(GIVEN), compiled()(GIVEN))


def test_arguments_and_results_of_every_structure_come_back(tmp_path):
    def f(a, /, b, *rest, c):
        return [a, (b["k"][0], None), {"n": rest[0] + c[1]}]

    specs = rlx.spec("f32[2]"), {"k": [rlx.spec("i64[]")]}, rlx.spec("f64[2]")
    function = rlx.compile(lambda a, b, r, c: f(a, b, r, c=c), *specs, (np.float64(2), np.float64(3)))
    rlx.save(tmp_path / "f.rlx", function)
    args = np.float32([1, 2]), {"k": [np.int64(7)]}, np.float64([1, 2])
    a, (k, nothing), n = rlx.load(tmp_path / "f.rlx")(*args)
    assert (a.tolist(), int(k), nothing, n["n"].tolist()) == ([1, 2], 7, None, [4, 5])


@pytest.mark.parametrize("of", ["bf16", "f16", "bool", "u8", "c64", "i64"])
def test_weights_of_every_dtype_and_layout_come_back(tmp_path, of):
    kind = rlx.spec(f"{of}[]").dtype.numpy
    weights = [
        np.arange(6).reshape(2, 3).astype(kind),
        np.arange(6).reshape(2, 3).T.astype(kind)[::2],
        np.zeros((0, 2), kind),
    ]
    rlx.save(tmp_path / "f.rlx", rlx.compile(lambda p: p, weights))
    for found, expected in zip(rlx.load(tmp_path / "f.rlx")(), weights, strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


# ------------------------------------------------------------------------------------------ targets

kernels = KernelTable("interpreted")


@kernels.register(Op)
def whole(op, *operands, out, workspace):
    raise AssertionError("the program is interpreted as a whole")


class Interpreted(Program):
    def __init__(self, lir):
        self.lir, self.params = lir, {}

    def bind(self, params):
        self.params = dict(params)

    def run(self, inputs):
        return interpret(self.lir.graph, dict(zip(self.lir.graph.input_types, inputs, strict=True)), self.params)

    def clone(self):
        return self


class Interpreter(Backend):
    target = Target("interpreted", kernels)

    def compile(self, lir, target, options):
        return Interpreted(lir)


class Acme:
    @hookimpl
    def rlx_backends(self):
        return [BackendSpec("interpreted", Interpreter)]


def test_it_is_compiled_for_the_target_that_is_asked_for(path):
    host = PluginHost([PluginEntry("acme", plugin=Acme())])
    loaded = rlx.load(path, classes=[Pair], target="interpreted", host=host)
    assert loaded.report.target == "interpreted"
    np.testing.assert_allclose(loaded(GIVEN)["y"], compiled()(GIVEN)["y"], rtol=1e-5)
    plain = rlx.load(path, classes=[Pair], target="cpu", config={"fusion.enabled": False})
    assert "rlx.fused" not in str(plain.report.graph)
    with pytest.raises(DeviceError, match="nowhere"):
        rlx.load(path, classes=[Pair], target="nowhere")


def test_what_is_not_compiled_takes_no_target(tmp_path):
    rlx.save(tmp_path / "g.rlx", rlx.trace(lambda x: x + 1, X))
    rlx.save(tmp_path / "w.safetensors", WEIGHTS)
    for file, given in (
        ("g.rlx", {"target": "cpu"}),
        ("w.safetensors", {"config": {}}),
        ("g.rlx", {"classes": [Pair]}),
    ):
        with pytest.raises(ConfigError, match=f"load: {next(iter(given))} is for a compiled function") as caught:
            rlx.load(tmp_path / file, **given)
        assert caught.value.facts[-1].value == tmp_path / file


# ------------------------------------------------------------------------------------------- memory


def test_large_weights_are_neither_copied_when_saved_nor_when_loaded(tmp_path):
    """NumPy tells `tracemalloc` what it allocates; a mapped file is none of that."""
    weights = np.ones((4 << 20,), np.float32)
    function = rlx.compile(lambda w, x: x * w[:2] + w[-1], weights, rlx.spec("f32[2]"))
    place = tmp_path / "large.rlx"
    tracemalloc.start()
    try:
        rlx.save(place, function)
        loaded = rlx.load(place)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < weights.nbytes / 4
    found = loaded.executable.weights["w"]
    assert not found.flags.writeable
    assert found.ctypes.data % 64 == 0
    np.testing.assert_array_equal(loaded(np.float32([1, 2])), [2, 3])


def test_equal_weights_are_stored_once(tmp_path):
    tied = np.ones(1000, np.float32)
    rlx.save(tmp_path / "f.rlx", rlx.compile(lambda p: p[0] + p[1], (tied, tied.copy())))
    assert (tmp_path / "f.rlx").stat().st_size < 2 * tied.nbytes


# ------------------------------------------------------------------------------------ hostile files


def forged(data, edit):
    """`data` with another header, and a length and a digest that fit."""
    magic, version, length, _ = PREFIX.unpack_from(data)
    header = json.loads(data[PREFIX.size : PREFIX.size + length])
    blobs = data[PREFIX.size + length + (-(PREFIX.size + length) % 64) :]
    edit(header)
    text = json.dumps(header).encode()
    body = text + bytes(-(PREFIX.size + len(text)) % 64) + blobs
    return PREFIX.pack(magic, version, len(text), hashlib.sha256(body).digest()) + body


def set_in(*place):
    *way, last, value = place

    def edit(header):
        at = header
        for step in way:
            at = at[step]
        at[last] = value

    return edit


def without_a_param(header):
    del header["params"]["params.w"]


def another_type(header):
    header["params"]["params.w"]["literal"][1] = [4, 3]


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (set_in("params", 3), "params must be dict"),
        (without_a_param, "params.w are not in both"),
        (another_type, r"params.w is f32\[4, 3\], and the graph has f32\[3, 4\]"),
        (set_in("params", "params.w", "literal", 1, [3, 5]), r"f32\[3, 5\] needs 60 bytes, not 48"),
        (set_in("params", "params.w", "literal", 1, [3, 2**61]), "bytes, not 48"),
        (set_in("params", "params.w", 7), "params.w is no array"),
        (set_in("blobs", 0, [0, 2**62]), "blob 0 is bytes 0"),
        (set_in("call", None), "the call must be dict"),
        (set_in("call", "arguments", 0, 1, True), "the inputs are params.b, params.w, x.x, and those of the graph x.x"),
        (set_in("call", "arguments", 1, 0, "params"), "two arguments params"),
        (set_in("call", "statics", {"x.scale": [1]}), "no scalars"),
        (set_in("call", "statics", {"y": 1}), "no leaves"),
        (set_in("call", "results", ["leaf"]), "1 results, and the graph has 3"),
        (set_in("call", "results", None), "a structure must be list"),
        (set_in("kind", "pickle"), "no kind 'pickle'"),
        (set_in("kind", "op"), "must be a list of 3"),
    ],
)
def test_a_forged_file_is_refused(path, edit, says):
    path.write_bytes(forged(path.read_bytes(), edit))
    with pytest.raises(FormatError, match=says) as caught:
        rlx.load(path, classes=[Pair])
    assert caught.value.facts[-1].value == path


@pytest.mark.medium
def test_every_damaged_byte_is_noticed(path):
    data = path.read_bytes()
    draw = random.Random(1)
    for place in sorted(draw.sample(range(len(data)), 60)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :])
        with pytest.raises(FormatError):
            rlx.load(path)
        path.write_bytes(data[:place])
        with pytest.raises(FormatError):
            rlx.load(path)


@pytest.mark.medium
@pytest.mark.parametrize("seed", range(2))
def test_bits_flipped_behind_a_digest_that_fits_give_a_program_or_a_typed_error(path, seed):
    draw = random.Random(seed)
    data, ops = path.read_bytes(), HostOps(default_host())
    length = PREFIX.unpack_from(data)[2]
    outcomes = set()
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(draw.choice([1, 1, 2, 6])):
            damaged[draw.randrange(PREFIX.size, PREFIX.size + length)] ^= 1 << draw.randrange(8)
        damaged[PREFIX.size - 32 : PREFIX.size] = hashlib.sha256(damaged[PREFIX.size :]).digest()
        try:
            found = load(bytes(damaged), ops)
            assert isinstance(found, Bundle)
            inputs, params = ([leaf_name(v) for v in values] for values in (found.graph.inputs, found.graph.params))
            Signature.read(found.call, inputs, params, len(found.graph.outputs), [Pair])
        except RlxError:
            outcomes.add("refused")
        else:
            outcomes.add("read")
    assert outcomes == {"refused", "read"}


def test_a_part_of_a_program_is_no_file(tmp_path):
    data = rlx.to_bytes(rlx.exp)
    assert load_stored(data, HostOps(default_host())).op is rlx.exp.op
    (tmp_path / "f.rlx").write_bytes(data)
    with pytest.raises(FormatError, match="a part of a program"):
        rlx.load(tmp_path / "f.rlx")


@pytest.mark.parametrize("classes", [[dict], [3], [Pair, type("Pair", (Pair,), {"__qualname__": "Pair"})]], ids=repr)
def test_classes_that_are_no_named_tuples_are_refused(path, classes):
    with pytest.raises(ConfigError, match="named tuple"):
        rlx.load(path, classes=classes)


def test_a_file_says_which_named_tuple_it_wants(path):
    with pytest.raises(FormatError, match=r"named tuple Pair(.|\n)*rlx.load\(path, classes=\[Pair\]\)"):
        rlx.load(path)


def test_what_cannot_be_stored_leaves_the_file_as_it_was(path):
    before = path.read_bytes()
    function = rlx.compile(lambda x: {b"key": x}, rlx.spec("f32[]"))
    with pytest.raises(FormatError, match="key b'key' of type bytes"):
        rlx.save(path, function)
    with pytest.raises(FormatError, match=r"not a Jitted(.|\n)*rlx\.compile"):
        rlx.save(path, rlx.jit(lambda x: x))
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]
