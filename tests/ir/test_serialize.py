"""Files: the same program back, and never anything but a typed error from a damaged or hostile one."""

import hashlib
import random
import struct

import numpy as np
import pytest

from rlx_core.errors import FormatError, UnknownNameError, VerifyError
from rlx_core.ir.graph import Builder, Graph
from rlx_core.ir.interpret import interpret
from rlx_core.ir.module import Module
from rlx_core.ir.serialize import load, save
from rlx_core.ir.types import spec
from rlx_core.ops import standard_ops
from rlx_core.testing.cases import programs

PREFIX = 52  # magic, version, length of the header, digest


def test_a_graph_comes_back_with_names_origins_and_bytes(rich, ops):
    again = load(save(rich), ops)
    assert again == rich
    assert again.name == rich.name
    assert [(n.name, n.origin) for n in again.nodes] == [(n.name, n.origin) for n in rich.nodes]
    assert [(g.node, g.source) for g in again.guards] == [(g.node, g.source) for g in rich.guards]


@pytest.mark.parametrize("program", programs(tuple(standard_ops())), ids=repr)
def test_the_program_of_every_sample_comes_back(program, ops):
    if not program.graph.is_storable:
        with pytest.raises(FormatError, match="it calls a function of this process"):
            save(program.graph)
        return
    again = load(save(program.graph), ops)
    assert again == program.graph
    assert save(again) == save(program.graph)


def test_it_computes_the_same(ops):
    b = Builder()
    x = b.input("x", spec("f32[3]"))
    graph = b.finish([x * b.constant(np.array([0.1, -0.0, np.inf], np.float32)) + 1])
    fed = {"x": np.array([1.5, 2.5, 3.5], np.float32)}
    (expected,), (found,) = interpret(graph, fed), interpret(load(save(graph), ops), fed)
    assert found.tobytes() == expected.tobytes()


def test_modules_come_back_at_their_stage(hir, ops):
    for module in (Module.of_hir(hir, "fusable"), Module.of_hir(hir).lower()):
        again = load(save(module), ops)
        assert again == module
        assert again.stage is module.stage


def test_every_attribute_kind_is_stored(attribute_rows, make_everything, ops):
    for row in attribute_rows:
        graph = make_everything(**row)
        assert load(save(graph), ops) == graph, row


def test_equal_constants_are_stored_once():
    b = Builder()
    big = np.arange(1000.0)
    graph = b.finish([b.constant(big), b.constant(big)])
    assert len(save(graph)) < 2 * big.nbytes


def test_saving_is_deterministic(rich):
    assert save(rich) == save(rich)


def test_empty_arrays_survive(ops):
    b = Builder()
    graph = b.finish([b.constant(np.zeros((2, 0, 3), np.int16))])
    assert load(save(graph), ops) == graph


def with_digest(data):
    """`data` with a digest that fits, so that what is behind it gets read."""
    data = bytearray(data)
    if len(data) > PREFIX:
        data[20:PREFIX] = hashlib.sha256(data[PREFIX:]).digest()
    return bytes(data)


def test_every_truncation_is_a_format_error(rich, ops):
    data = save(rich)
    for end in [*range(PREFIX + 4), *range(PREFIX, len(data), 13)]:
        with pytest.raises(FormatError):
            load(data[:end], ops)


def test_every_flipped_bit_is_a_format_error(rich, ops):
    data = save(rich)
    for place in range(0, len(data), 3):
        damaged = bytearray(data)
        damaged[place] ^= 1 << (place % 8)
        with pytest.raises(FormatError):
            load(bytes(damaged), ops)


@pytest.mark.parametrize("seed", range(4))
def test_a_forged_file_gives_a_program_or_a_typed_error(seed, rich, ops):
    """Bits flipped behind a digest that fits: nothing but these errors may come out."""
    draw = random.Random(seed)
    data = save(rich)
    header = struct.unpack_from("<8sIQ", data)[2]
    outcomes = set()
    for _ in range(400):
        damaged = bytearray(data)
        for _ in range(draw.choice([1, 1, 2, 6])):
            damaged[draw.randrange(PREFIX, PREFIX + header)] ^= 1 << draw.randrange(8)
        if draw.random() < 0.2:
            del damaged[draw.randrange(len(damaged)) :]
        try:
            program = load(with_digest(damaged), ops)
        except (FormatError, VerifyError, UnknownNameError) as error:
            outcomes.add(type(error))
        else:
            assert isinstance(program, Graph)
            outcomes.add(Graph)
    assert {FormatError, Graph} <= outcomes


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (b'"kind":"graph"', b'"kind":"grapj"', "no kind 'grapj'"),
        (b'"rlx.exp",1', b'"rlx.exp",7', "version 7, and version 1"),
    ],
)
def test_a_wrong_place_or_version_is_named_with_both_numbers(old, new, says, rich, ops):
    data = save(rich)
    assert old in data
    with pytest.raises(FormatError) as error:
        load(with_digest(data.replace(old, new)), ops)
    assert says in error.value.message


def test_a_blob_outside_the_file_is_named_with_both_numbers(ops):
    b = Builder()
    data = save(b.finish([b.constant(np.zeros(5, np.float32))]))
    with pytest.raises(FormatError, match=r"blob 0 is bytes 9\.\.29 of 20"):
        load(with_digest(data.replace(b"[[0,20]]", b"[[9,20]]")), ops)


def test_a_program_that_breaks_the_rules_is_not_loaded(rich, ops):
    data = save(rich).replace(b'"f64[1, 8]"', b'"f64[2, 8]"')
    with pytest.raises(VerifyError, match="declared type"):
        load(with_digest(data), ops)


@pytest.mark.parametrize("data", [b"", b"x", b"\x89RLX\r\n\x1a\n", b"\x80\x04" * 40], ids=repr)
def test_what_is_no_such_file_is_refused(data, ops):
    with pytest.raises(FormatError, match="file:"):
        load(data, ops)


def test_a_header_nested_without_end_is_refused(ops):
    header = b"[" * 100_000
    data = struct.pack("<8sIQ32s", b"\x89RLX\r\n\x1a\n", 1, len(header), b"") + header
    with pytest.raises(FormatError, match="not JSON"):
        load(with_digest(data), ops)
