"""Pickles and copies: what travels arrives as it was, by way of the file format, and what does not says so."""

from __future__ import annotations

import copy
import importlib
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import optree
import pytest

import rlx_core as rlx
from rlx_core.errors import FormatError, RlxError
from rlx_core.ir.dims import DimBinding, symbol
from rlx_core.ir.dtypes import bf16, bool_, c64, f32
from rlx_core.ir.graph import literal
from rlx_core.ir.module import Module
from rlx_core.pipeline.config.reading import load_config
from rlx_core.pipeline.config.records import Configuration
from rlx_core.plugins import PluginHost

from . import travelling
from .executables import executable_of
from .travelling import STAGED, WEIGHTS, Pair, X, compiled, squares


def back(value, protocol=pickle.HIGHEST_PROTOCOL):
    return pickle.loads(pickle.dumps(value, protocol))  # noqa: S301  our own


def same(found, expected):
    assert type(found["all"][0]) is Pair
    assert found["all"][0].second[1] is None
    np.testing.assert_array_equal(found["y"], expected["y"])
    np.testing.assert_array_equal(found["all"][0].first, expected["all"][0].first)


# ------------------------------------------------------------------------------- parts of programs

n, m = symbol("n"), symbol("m")
ADDS = rlx.trace(lambda x, y: x @ y + np.float32(2), rlx.spec("f32[n, 8]"), rlx.spec("f32[8, m]"))

PARTS = {
    "dtypes": [f32, bf16, bool_, c64],
    "types": [rlx.spec("f32[]"), rlx.spec("bf16[n, 2*m + 1, 3]")],
    "dims": [n, 2 * n * m - 7, (n * m) // (n + 3)],
    "symbols": sorted(rlx.spec("f32[n, m]").shape[0].terms[0][0][0][:1]),
    "binding": [DimBinding.of(n=3, m=0)],
    "literals": [literal([0.1, -0.0, np.nan]), literal(np.zeros((2, 0), np.int8)), literal(True)],
    "ops": [node.op for node in ADDS.nodes],
    "functions": [rlx.exp, rlx.layer_norm],
    "graph": [ADDS],
    "modules": [Module.of_hir(ADDS, "fusable"), Module.of_hir(ADDS).lower()],
    "configuration": [
        Configuration(),
        load_config(overrides={"passes": {"cse": {}}, "pipeline": {"own": {"mir": ["cse", {"cse": {}}]}}}),
    ],
}


@pytest.mark.parametrize("values", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_parts_of_programs_arrive_as_they_were(values, protocol):
    for value in values:
        again = back(value, protocol)
        assert again == value or again.op is value.op  # the function of an op
        assert copy.copy(value) == value
        assert copy.deepcopy(value) == value


def test_a_dtype_is_the_one_that_there_is():
    assert back(f32) is f32
    assert copy.deepcopy([f32])[0] is f32


def test_what_cannot_change_is_its_own_copy():
    for value in (ADDS, ADDS.nodes[0], ADDS.outputs[0], ADDS.nodes[0].op, Module.of_hir(ADDS)):
        assert copy.copy(value) is value
        assert copy.deepcopy([value])[0] is value


def test_a_plan_arrives_with_its_offsets():
    lir = compiled().executable.lir
    again = back(lir)
    assert again.fingerprint == lir.fingerprint
    assert Module.of_lir(again) == Module.of_lir(lir)


def test_a_symbol_is_told_by_its_name_and_not_by_its_number():
    text = pickle.dumps(rlx.spec("f32[a_symbol_of_this_test]"))
    assert b"a_symbol_of_this_test" in text
    assert not any(str(s.id).encode() in text for s in symbol("a_symbol_of_this_test").terms[0][0][0][:1])


def test_a_pickle_holds_the_bytes_of_a_file_and_is_checked_like_one():
    data = pickle.dumps(ADDS)
    assert rlx.to_bytes(ADDS) in data
    place = data.index(b"f32[n, 8]")
    with pytest.raises(FormatError, match="it is damaged or cut off"):
        pickle.loads(data[:place] + b"f64" + data[place + 3 :])  # noqa: S301  our own


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ADDS.outputs[0], "a value .* belongs to a program.*\n.*pickle the graph"),
        (lambda: ADDS.nodes[-1], "a node .* belongs to a program"),
        (lambda: compiled().executable, "is machine code of this process(.|\n)*what rlx.compile returns"),
        (lambda: rlx.jit(lambda x: x), "<lambda> cannot be found in .*test_travel(.|\n)*at the top of a module"),
        (lambda: rlx.jit(rlx.grad(lambda x: x)), "<lambda> cannot be found"),
        (lambda: rlx.jit(squares, host=PluginHost()), "squares was made with a plugin host of its own"),
        (lambda: rlx.Session(host=PluginHost()), "a plugin host of its own"),
        (lambda: compiled(host=PluginHost()), "model was made with a plugin host of its own"),
    ],
    ids=["value", "node", "executable", "lambda", "grad of a lambda", "jit's host", "session's host", "compile's host"],
)
def test_what_does_not_travel_says_what_to_do(make, says):
    with pytest.raises(FormatError, match=says):
        pickle.dumps(make())


@pytest.mark.parametrize(
    "value",
    [3, None, {"x": X}, squares, STAGED["jit"], rlx.spec("f32[]")],
    ids=["number", "nothing", "arrays", "function", "jit", "type"],
)
def test_what_is_no_program_has_no_bytes(value):
    with pytest.raises(FormatError, match="is no program"):
        rlx.to_bytes(value)


# ----------------------------------------------------------------------------------------- functions


def test_a_compiled_function_arrives_callable():
    function = compiled()
    again = back(function)
    for rows in (1, 2, 2, 2, 2):  # other sizes, and the straight road too
        same(again({"x": X[:rows], "scale": 2.5}), function({"x": X[:rows], "scale": 2.5}))
    with pytest.raises(RlxError, match=r"x\.scale was compiled as 2\.5, not 3"):
        again({"x": X, "scale": 3})
    assert repr(again) == repr(function)


def test_what_it_was_told_about_its_compilation_arrives_too():
    again = back(compiled(target="cpu", config={"fusion": {"enabled": False}}))
    assert again.report.target == "cpu"
    assert "rlx.fused" not in str(again.report.graph)
    assert "rlx.fused" not in str(back(again).report.graph)


def test_its_weights_of_now_travel():
    function = compiled()
    function.rebind(params={**WEIGHTS, "b": np.zeros(4, np.float32)})
    same(back(function)({"x": X, "scale": 2.5}), function({"x": X, "scale": 2.5}))


@pytest.mark.parametrize("name", STAGED)
def test_staged_functions_of_importable_functions_travel(name):
    staged = STAGED[name]
    again = back(staged)
    found, expected = (optree.tree_leaves(f(X[0])) for f in (again, staged))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_decorated_function_is_its_name():
    assert back(travelling.decorated) is travelling.decorated
    assert back(travelling.Model.times_two) is travelling.Model.times_two


def test_copies_of_staged_functions_compile_for_themselves():
    staged = rlx.jit(squares)
    staged(X)
    for again in (copy.copy(staged), copy.deepcopy(staged)):
        assert again.executables == []
        assert again(X) == staged(X)


def test_copies_of_a_compiled_function_have_weights_and_programs_of_their_own():
    function = compiled()
    expected = function({"x": X, "scale": 2.5})
    shallow, deep = copy.copy(function), copy.deepcopy(function)
    function.rebind(params={name: np.zeros_like(array) for name, array in WEIGHTS.items()})
    for again in (shallow, deep):
        same(again({"x": X, "scale": 2.5}), expected)
    assert np.shares_memory(shallow.executable.weights["params.w"], WEIGHTS["w"])
    assert not np.shares_memory(deep.executable.weights["params.w"], WEIGHTS["w"])
    assert not function({"x": X, "scale": 2.5})["y"].any()


def counter(g):
    total, x = g.param("total", "f32[2]"), g.input("x", "f32[2]")
    return total + x


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_the_state_of_a_copy_is_its_own(copied):
    """A donated parameter is written by runs: two that share it would count together."""
    one = np.ones(2, np.float32)
    program = executable_of(counter, donations={"total": 0})
    program.set_param("total", np.zeros(2, np.float32))
    program.run({"x": one})
    program.bind_handle("x", one)
    again = copied(program)
    for _ in range(3):
        found = again.run()
    np.testing.assert_array_equal(found[0], [4, 4])
    np.testing.assert_array_equal(program.run()[0], [2, 2])
    assert not np.shares_memory(again.read_handle("x"), one)


def test_tied_weights_stay_tied_in_a_deep_copy():
    tied = np.ones((2, 2), np.float32)
    function = rlx.compile(lambda p, x: x @ p[0] @ p[1], (tied, tied), rlx.spec("f32[n, 2]"))
    weights = copy.deepcopy(function).executable.weights
    assert np.shares_memory(weights["p.0"], weights["p.1"])


def test_a_session_arrives_with_its_device_and_its_configuration():
    again = back(rlx.Session("cpu", config={"fusion.enabled": False}))
    assert repr(again) == "Session('cpu', precision='f32')"
    assert "rlx.fused" not in str(
        again.compile(travelling.model, WEIGHTS, {"x": rlx.spec("f32[2, 3]"), "scale": 2.5}).report.graph
    )
    assert copy.deepcopy(again) is again


@pytest.mark.medium
def test_a_spawned_process_runs_compiled_and_jitted_functions(tmp_path, monkeypatch):
    (tmp_path / "a_module_of_functions.py").write_text(Path(travelling.__file__).read_text())
    monkeypatch.syspath_prepend(tmp_path)
    functions = importlib.import_module("a_module_of_functions")
    function = functions.compiled()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = pool.submit(function, {"x": X, "scale": 2.5}).result()
        assert type(found["all"][0]) is functions.Pair
        np.testing.assert_array_equal(found["y"], function({"x": X, "scale": 2.5})["y"])
        for name in ("decorated", "grad"):
            np.testing.assert_array_equal(pool.submit(functions.STAGED[name], X).result(), 2 * X)
