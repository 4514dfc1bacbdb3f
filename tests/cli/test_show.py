"""`rlx show`: saved programs, and their text, as text."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

from rlx_core.files.load_save import save as save_file
from rlx_core.ir.graph import Builder, building
from rlx_core.ir.module import Module
from rlx_core.ir.serialize import save
from rlx_core.ir.text import print_graph
from rlx_core.ir.text_lir import print_lir
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp
from rlx_core.pipeline.backend import Target
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.pipeline.planning.planner import make_lir
from rlx_core.runtime.compiled_function import compile_function


@pytest.fixture
def graph():
    """A program whose text is far longer than a line of 80 columns."""
    builder = Builder("main")
    x = builder.input("an_input_with_a_name_that_is_so_long_that_it_would_be_folded_if_it_were_folded", spec("f32[4]"))
    with building(builder):
        y = exp(x)
    return builder.finish([y])


def test_a_saved_graph_is_printed_as_text_that_shows_again(rlx, graph) -> None:
    (rlx.place / "g.rlx").write_bytes(save(graph))
    ran = rlx("show", "g.rlx")
    assert ran.out.rstrip("\n") == print_graph(graph).rstrip("\n")
    (rlx.place / "g.txt").write_text(ran.out)
    assert rlx("show", "g.txt").out == ran.out
    assert rlx("show", "g.rlx", "--json").json == {"stage": "graph", "text": print_graph(graph)}


def test_a_saved_module_says_its_stage(rlx, graph) -> None:
    (rlx.place / "m.rlx").write_bytes(save(Module.of_mir(graph)))
    assert rlx("show", "m.rlx").out.startswith("# MIR\ngraph main")
    assert rlx("show", "m.rlx", "--json").json["stage"] == "MIR"
    assert "main" in rlx("show", "m.rlx", "--origins").out


def test_a_compiled_function_is_shown_with_its_weights_counted(rlx) -> None:
    function = compile_function(lambda w, x: x * w, np.ones((1000,), np.float32), spec("f32[n, 1000]"))
    save_file(rlx.place / "f.rlx", function)
    ran = rlx("show", "f.rlx")
    assert ran.out.startswith("# a compiled function with 1 array bound, 4,000 bytes\ngraph ")
    (rlx.place / "f.txt").write_text(ran.out)
    assert rlx("show", "f.txt").out == ran.out.partition("\n")[2]
    assert rlx("show", "f.rlx", "--json").json == {"stage": "bundle", "text": ran.out}


def test_a_plan_is_shown_with_its_arena_and_steps(rlx, graph) -> None:
    kernels = KernelTable("toy")
    kernels.register(exp.op)(lambda op, x, *, out, workspace: None)
    lir = make_lir(graph, Target("toy", kernels))
    (rlx.place / "plan.rlx").write_bytes(save(Module.of_lir(lir)))
    assert rlx("show", "plan.rlx").out == f"# LIR\n{print_lir(lir)}"
    (rlx.place / "plan.txt").write_text(rlx("show", "plan.rlx").out)
    assert rlx("show", "plan.txt", "--json").json == {"stage": "LIR", "text": f"# LIR\n{print_lir(lir)}"}


def test_the_options_of_a_plan_are_in_its_json_alone(rlx, graph) -> None:
    kernels = KernelTable("toy")
    kernels.register(exp.op)(lambda op, x, *, out, workspace: None)
    lir = evolve(make_lir(graph, Target("toy", kernels)), options={"pipeline": "mine"})
    (rlx.place / "plan.rlx").write_bytes(save(Module.of_lir(lir)))
    assert "mine" not in rlx("show", "plan.rlx").out
    assert "mine" in rlx("show", "plan.rlx", "--json").json["text"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff\xfe\x00", "neither a saved program nor text"),
        (b"graph main {", "FormatError"),
        (b"graph main {\n  %0 = rlx.sofmax() : f32[4]\n  return %0\n}", "did you mean `rlx.softmax`?"),
    ],
)
def test_what_is_no_program_is_refused(rlx, content, says) -> None:
    (rlx.place / "x").write_bytes(content)
    ran = rlx("show", "x")
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err


def test_a_damaged_file_is_refused(rlx, graph) -> None:
    data = save(graph)
    (rlx.place / "x").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert "it is damaged or cut off" in rlx("show", "x").err


def test_a_file_that_is_not_there_is_refused(rlx) -> None:
    assert "FileError: show: nowhere cannot be read (No such file or directory)" in rlx("show", "nowhere").err
