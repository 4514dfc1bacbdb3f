"""`rlx compile`: programs from files, functions and single ops, printed at every level, with typed refusals."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from rlx_core.codegen import parse_kernel
from rlx_core.files.load_save import save
from rlx_core.ir.module import Module
from rlx_core.ir.parse import parse_graph
from rlx_core.ir.serialize import load
from rlx_core.ir.text_lir import parse_lir
from rlx_core.ir.types import spec
from rlx_core.ops import standard_ops
from rlx_core.runtime.compiled_function import compile_function

OPS = {op.name: op for op in standard_ops()}
SOFTMAX = ("--op", "softmax f32[64,128]")

MODEL = """
from rlx_core import nn

def predict(x, w, b):
    return nn.softmax(nn.linear(nn.softmax(x), w, b))

def stumble(x):
    return x + nothing

def square(x):
    return x @ x

WIDTH = 8
"""

pytestmark = pytest.mark.skipif(importlib.util.find_spec("rlx_cpu") is None, reason="it compiles for the CPU")
needs_native = pytest.mark.skipif(importlib.util.find_spec("llvmlite") is None, reason="it prints native code")


@pytest.fixture
def compiling(rlx):
    """`rlx compile` where the CPU is the only device."""
    return lambda *words: rlx("--plugin", "cpu=rlx_cpu.plugin", "compile", *words)


def test_one_op_is_printed_at_every_level_of_the_core(compiling) -> None:
    hir, mir = (parse_graph(compiling(*SOFTMAX, "--emit", level).out, OPS) for level in ("hir", "mir"))
    lir = parse_lir(compiling(*SOFTMAX, "--emit", "lir").out, OPS)
    kernel = parse_kernel(compiling(*SOFTMAX, "--emit", "loops").out, OPS)

    assert hir.input_types == mir.input_types == lir.graph.input_types
    assert [step.node.op.name for step in lir.steps] == ["rlx.softmax"]
    assert (kernel.extents, kernel.grid) == ((64, 128), 1)


@needs_native
def test_one_op_is_printed_as_native_code(compiling) -> None:
    llvm, asm = (compiling(*SOFTMAX, "--emit", level).out for level in ("llvm", "asm"))

    assert llvm.startswith("; step 0: rlx.softmax by native_loop_rows[rlx.softmax]\n")
    assert 'define void @"step0_softmax"(ptr' in llvm
    assert asm.startswith("# step 0: rlx.softmax by native_loop_rows[rlx.softmax]\n")
    assert "step0_softmax:" in asm


def test_an_op_without_types_is_that_of_its_samples_and_attributes_can_be_given(compiling) -> None:
    assert "softmax(%x0, axis=-1" in compiling("--op", "softmax", "--emit", "hir").out
    assert "axis=0" in compiling(*SOFTMAX, "--attr", "axis=0", "--emit", "hir").out


def test_a_function_in_a_file_is_traced_and_its_sizes_are_bound(rlx, compiling) -> None:
    (rlx.place / "model.py").write_text(MODEL)
    words = ("model.py:predict", "f32[n,64]", "f32[64,32]", "f32[32]")

    assert "f32[n, 64]" in compiling(*words, "--emit", "mir").out
    assert "kernel softmax grid [8] row [32]" in compiling(*words, "--emit", "loops", "--bind", "n=8").out
    unbound = compiling(*words, "--emit", "loops")
    assert unbound.code == 2
    assert "loops needs to know where values lie, and n is not known" in unbound.err
    assert "--bind n=8" in unbound.err


def test_a_function_of_a_module_that_can_be_imported(rlx, compiling) -> None:
    (rlx.place / "a_model_here.py").write_text(MODEL)
    assert "linear" in compiling("a_model_here:predict", "f32[4,64]", "f32[64,32]", "f32[32]", "--emit", "hir").out


def test_steps_that_are_one_function_are_printed_once(rlx, compiling) -> None:
    (rlx.place / "model.py").write_text(
        "import rlx_core as rlx\ndef twice(x, y): return rlx.softmax(x), rlx.softmax(y), rlx.sum(x)\n"
    )
    out = compiling("model.py:twice", "f32[4,64]", "f32[4,64]", "--emit", "loops").out
    assert out.count("kernel softmax") == 1
    assert "steps 0, 1: rlx.softmax by" in out
    assert "kernel sum" in out

    one = compiling("model.py:twice", "f32[4,64]", "f32[4,64]", "--emit", "loops", "--step", "sum").out
    assert "softmax" not in one
    assert one == compiling("model.py:twice", "f32[4,64]", "f32[4,64]", "--emit", "loops", "--step", "2").out


@pytest.mark.parametrize("level", ["mir", "lir"])
def test_one_step_of_a_graph_or_plan_is_its_node_and_how_it_runs(compiling, level) -> None:
    out = compiling(*SOFTMAX, "--emit", level, "--step", "softmax").out
    assert out.startswith("# step 0: rlx.softmax by ")
    assert "%1 = softmax(%x0, axis=1" in out
    assert ("steady-state" in out) == (level == "lir")


@pytest.mark.medium
def test_a_plan_in_a_file_is_printed_as_it_is(rlx, compiling) -> None:
    assert "stages" in compiling(*SOFTMAX, "-o", "plan.rlx").out
    saved = load((rlx.place / "plan.rlx").read_bytes(), OPS)
    assert isinstance(saved, Module)

    assert compiling("plan.rlx", "--emit", "loops").out == compiling(*SOFTMAX, "--emit", "loops").out
    assert compiling("plan.rlx", "--emit", "lir").out == compiling(*SOFTMAX, "--emit", "lir").out
    again = compiling("plan.rlx")
    assert "plan.rlx is compiled already" in again.err
    assert "levels  mir, lir, loops" in compiling("plan.rlx", "--emit", "hir").err


def test_a_compiled_function_in_a_file_is_its_program(rlx, compiling) -> None:
    save(rlx.place / "f.rlx", compile_function(lambda w, x: x * w, np.ones(3, np.float32), spec("f32[n, 3]")))
    graph = parse_graph(compiling("f.rlx", "--emit", "mir").out, OPS)
    assert (list(graph.param_types), list(graph.input_types)) == (["w"], ["x"])


def test_text_goes_to_a_file_or_into_json(rlx, compiling) -> None:
    text = compiling(*SOFTMAX, "--emit", "loops").out
    assert "14 lines" in compiling(*SOFTMAX, "--emit", "loops", "-o", "k.txt").out
    assert (rlx.place / "k.txt").read_text() == text
    found = compiling(*SOFTMAX, "--emit", "loops", "--json").json
    assert (found["program"], found["target"], found["level"]) == ("softmax", "cpu", "loops")
    assert found["text"] == text
    assert compiling(*SOFTMAX, "--json").json["stages"]["LIR steps"] == 1


def test_text_of_a_graph_is_compiled(rlx, compiling) -> None:
    (rlx.place / "g.txt").write_text(compiling(*SOFTMAX, "--emit", "hir").out)
    assert compiling("g.txt", "--emit", "loops").out == compiling(*SOFTMAX, "--emit", "loops").out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "neither a program nor an op was named"),
        (("g.txt", *SOFTMAX), "a program and an op were named"),
        (("g.txt", "--emit", "mir"), "g.txt cannot be read (No such file or directory)"),
        ((*SOFTMAX, "--emit", "loop"), "did you mean `loops`?"),
        ((*SOFTMAX, "--emit", "ptx"), "levels  hir, mir, lir, loops"),
        ((*SOFTMAX, "--emit", "loops", "--step", "7"), "there is no step 7; the plan has 1 (0..0)"),
        ((*SOFTMAX, "--emit", "loops", "--step", "sotfmax"), "did you mean `softmax`?"),
        ((*SOFTMAX, "--emit", "hir", "--step", "0"), "hir has none"),
        ((*SOFTMAX, "--step", "0"), "nothing is printed without --emit"),
        ((*SOFTMAX, "--emit", "lir", "--bind", "n"), "--bind n: wanted SYMBOL=SIZE"),
        ((*SOFTMAX, "--emit", "lir", "--bind", "n=3"), "softmax has no symbol 'n'"),
        (("--op", "sofmax f32[4]", "--emit", "mir"), "did you mean `rlx.softmax`?"),
        (("--op", "matmul f32[4,5] f32[6,7]", "--emit", "mir"), "ShapeError: matmul"),
        (("model.py:predict", "f32[4]", "--emit", "mir"), "signature  predict(x, w, b)"),
        (("model.py:prdict", "--emit", "mir"), "did you mean `predict`?"),
        (("model.py:WIDTH", "--emit", "mir"), "model.py has no function WIDTH"),
        (("nowhere.py:f", "--emit", "mir"), "nowhere.py cannot be imported"),
        (("model.py:predict", "--attr", "axis=1"), "--attr axis=1 is for --op"),
        (("model.txt", "f32[4]"), "f32[4] is one too many"),
        (("model.py", "f32[4]"), "hint  rlx compile model.py:FUNCTION 'f32[4]'"),
        (("model.py:stumble", "f32[4]"), "stumble raises NameError: name 'nothing' is not defined"),
        (("model.py:stumble", "f32[4]"), "at    model.py:8  return x + nothing"),
        (("model.py:square", "f32[4,3]"), "at    model.py:11  return x @ x"),
        ((*SOFTMAX, "--attr", "axis"), "--attr axis=VALUE"),
        ((*SOFTMAX, "-o", "nowhere/plan.rlx"), "nowhere/plan.rlx cannot be written (No such file or directory)"),
        ((*SOFTMAX, "--emit", "mir", "-o", "nowhere/k.txt"), "nowhere/k.txt cannot be written"),
    ],
)
def test_what_makes_no_sense_is_refused(rlx, compiling, words, says) -> None:
    (rlx.place / "model.py").write_text(MODEL)
    ran = compiling(*words)
    assert ran.code == 2
    assert says in ran.err


def test_an_error_in_a_program_of_the_command_line_names_no_line_of_the_command(compiling) -> None:
    assert "main.py" not in compiling("--op", "matmul f32[4,5] f32[6,7]", "--emit", "mir").err


def test_options_of_the_target_count(rlx, compiling) -> None:
    (rlx.place / "rlx.toml").write_text('[options]\n"cpu.threads" = 0\n')
    assert "cpu.threads: must be at least 1, not 0" in compiling(*SOFTMAX, "--emit", "mir").err


@pytest.mark.parametrize("table", ["[cpu]\nthreads = 1", "[options.cpu]\nthreads = 1", "[options]\ncpu.threads = 1"])
def test_an_option_written_as_a_table_is_refused_with_the_key_that_was_meant(rlx, compiling, table) -> None:
    (rlx.place / "rlx.toml").write_text(table)
    assert 'one key of [options], dots included: "cpu.threads" = ...' in compiling(*SOFTMAX, "--emit", "mir").err


@needs_native
def test_without_native_code_the_levels_say_why(rlx, compiling) -> None:
    (rlx.place / "rlx.toml").write_text('[options]\n"cpu.tier" = "numpy"\n')
    err = compiling(*SOFTMAX, "--emit", "llvm").err
    assert "cpu has no level 'llvm'" in err
    assert "cpu.tier is numpy" in err


def test_help_has_an_example() -> None:
    from typer.testing import CliRunner

    from rlx_core.cli.main import app

    assert "rlx compile --op 'softmax f32[64,128]' --emit loops\n" in CliRunner().invoke(app, ["compile", "-h"]).output
