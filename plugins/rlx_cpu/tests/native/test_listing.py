"""What is printed of a native program is what runs: the same loops, the same functions, each once."""

from __future__ import annotations

import re

import pytest

import rlx_core as rlx
from rlx_core import nn
from rlx_core.codegen import print_kernel
from rlx_core.codegen.meaning import loop_kernel
from rlx_cpu.native.loops.rows import emit_loop
from rlx_cpu.native.runtime.steps import layouts
from rlx_cpu.native.table import emitter_in, native


def model(x, w, b):
    h = nn.softmax(nn.gelu(nn.linear(x, w, b)))
    return nn.softmax(h + 1.0) * rlx.sum(h, axis=0), rlx.solve(w, w)


@pytest.fixture(scope="module")
def compiled():
    types = map(rlx.spec, ("f32[8, 48]", "f32[48, 48]", "f32[48]"))
    return rlx.compile(model, *types, target="cpu", config={"options": {"cpu.tier": "native"}})


def test_the_loops_of_the_listing_are_those_that_are_compiled(compiled) -> None:
    lir = compiled.executable.lir
    own = {n: layout for n, layout in layouts(lir) if emitter_in(native, lir.steps[n].kernel) is emit_loop}
    assert own, "the program has loops of its own"
    for number, layout in own.items():
        text = compiled.emit("loops", number).partition("\n")[2]
        assert text == print_kernel(loop_kernel(lir.steps[number].node, layout))


@pytest.mark.parametrize("level", ["llvm", "asm"])
def test_every_step_is_in_one_listing_and_equal_steps_share_one(compiled, level) -> None:
    text = compiled.emit(level)
    mark = ";" if level == "llvm" else "#"
    heads = re.findall(rf"^{mark} steps? ([\d, ]+): ", text, re.MULTILINE)
    numbers = [int(n) for head in heads for n in head.split(",")]
    assert sorted(numbers) == list(range(len(compiled.executable.lir.steps)))
    assert "rlx.dense_solve by lapack_solve[rlx.dense_solve]; runs with NumPy" in text


def test_a_function_is_called_after_its_first_step(compiled) -> None:
    names = [s.node.op.name.removeprefix("rlx.") for s in compiled.executable.lir.steps]
    assert names[0] == "fused_matmul_bias_act"
    assert f'@"step0_{names[0]}"' in compiled.emit("llvm", names[0])
    assert f"step0_{names[0]}:" in compiled.emit("asm", 0)
