"""Poison mode: programs give the same bits in it, and a kernel or a plan that strays is named."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import pytest
from attrs import evolve

import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core import nn
from rlx_core.ir.lir import Slot
from rlx_core.ops import standard_ops
from rlx_core.pipeline.compile import compile_graph, set_up
from rlx_core.pipeline.compiled import CompiledProgram
from rlx_core.pipeline.config.records import Configuration
from rlx_core.plugins import PluginHost
from rlx_core.run.memory import CANARY
from rlx_core.run.plan import ARENA
from rlx_core.run.poison import Guard, PoisonError, with_gaps
from rlx_core.run.program import PlannedProgram
from rlx_core.runtime.executable import Executable
from rlx_core.testing.cases import OpProgram, programs
from rlx_core.testing.fuzz import FuzzSetup, complaint
from rlx_core.testing.generate import generate
from rlx_cpu.kernels import kernels
from rlx_cpu.numpy_program import numpy_program

HOST = PluginHost([rlx_cpu.plugin])
TIERS = ("native", "numpy")
RNG = np.random.default_rng(0)


def poisoned(tier: str, **more: Any) -> dict[str, Any]:
    return {"options": {"cpu.tier": tier, "cpu.poison": True, "cpu.threads": 2}, **more}


# ------------------------------------------------------------------------------------------- the suite

# Two samples an op, the first and the last: generated programs bring other sizes and dtypes.
BY_OP = [list(found) for _, found in groupby((p for p in programs(standard_ops()) if p.is_static), lambda p: p.op)]
CASES = [p for found in BY_OP for p in dict.fromkeys([found[0], found[-1]])]
FUZZ_SETUPS = (
    FuzzSetup("poisoned", poisoned("native")),
    FuzzSetup("poisoned, without passes", poisoned("native", use="none"), every=5),
    FuzzSetup("poisoned, NumPy", poisoned("numpy")),
)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_samples_of_every_op_keep_to_their_own_memory(part: int) -> None:
    """The poisoned run has the bits of the plain one: what a kernel reads too much is not used, what it writes is its own."""
    for program in CASES[part::8]:
        plain = run(program, {"use": "none", "options": {"cpu.threads": 2}})
        for a, b in zip(run(program, {"use": "none", **poisoned("native")}), plain, strict=True):
            assert same_bits(a, b), program


def run(program: OpProgram, config: Any) -> tuple[np.ndarray, ...]:
    executable = Executable(compile_graph(program.graph, target="cpu", host=HOST, config=config_of(config)))
    return executable.run(dict(zip(program.graph.input_types, program.draw(), strict=True)))


_READ: dict[str, Configuration] = {}


def config_of(table: dict[str, Any]) -> Configuration:
    """A configuration that is read once for all samples."""
    if repr(table) not in _READ:
        _READ[repr(table)] = set_up(table, HOST)[1]
    return _READ[repr(table)]


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 150, 25))
def test_generated_programs_keep_to_their_own_memory(first: int) -> None:
    for seed in range(first, first + 25):
        assert complaint(generate(seed), FUZZ_SETUPS, host=HOST) is None, seed


def perceptron(weights: Any, x: Any, labels: Any) -> Any:
    h = nn.gelu(nn.linear(x, weights["w"], weights["b"]))
    return -rlx.mean(rlx.take_along_axis(rlx.log_softmax(h @ weights["v"]), labels[:, None], axis=1))


def block(weights: Any, x: Any) -> Any:
    h = rlx.layer_norm(x)
    q, k, v = (rlx.reshape(h @ weights[n], (2, 7, 2, 8)) for n in "qkv")
    scores = rlx.softmax(rlx.einsum("bihd,bjhd->bhij", q, k) / 3.0)
    mixed = rlx.reshape(rlx.einsum("bhij,bjhd->bihd", scores, v), (2, 7, 16))
    return rlx.mean((x + mixed) ** 2)


def training(tier: str, **options: Any) -> list[np.ndarray]:
    """A few steps of gradient descent with donated weights, of a perceptron and of an attention block."""
    rng = np.random.default_rng(1)
    weights = {n: rng.standard_normal((16, 16)).astype("f4") / 4 for n in "qkvw"} | {"b": np.zeros(16, "f4")}
    x = rng.standard_normal((2, 7, 16)).astype("f4")
    labels = rng.integers(0, 16, (5,))

    def step(weights: Any, x: Any, labels: Any) -> Any:
        def loss(w: Any) -> Any:
            return perceptron(w, x[0, :5], labels) + block(w, x)

        value, grads = rlx.value_and_grad(loss)(weights)
        return value, {n: weights[n] - 0.1 * grads[n] for n in weights}

    made = rlx.jit(step, donate=["weights"], host=HOST, target="cpu", config={"options": {"cpu.tier": tier, **options}})
    values = []
    for _ in range(3):
        value, weights = made({n: w.copy() for n, w in weights.items()}, x, labels)
        values.append(np.asarray(value))
    return [*values, *(np.asarray(weights[n]) for n in sorted(weights))]


@pytest.mark.medium
@pytest.mark.parametrize("tier", TIERS)
def test_training_with_donated_weights_keeps_to_its_own_memory(tier: str) -> None:
    for a, b in zip(training(tier, **{"cpu.poison": True}), training(tier), strict=True):
        assert same_bits(a, b)


# ------------------------------------------------------------------------------------ what strays is named


def chain() -> CompiledProgram:
    """Three steps through the arena, with NumPy."""
    graph = rlx.trace(lambda x: rlx.sort(rlx.exp(rlx.sort(x)) * x), rlx.spec("f32[40]"))
    return compile_graph(graph, target="cpu", host=HOST, config={"use": "none", "options": {"cpu.tier": "numpy"}})


def guard_of(compiled: CompiledProgram) -> tuple[PlannedProgram, Guard]:
    program = numpy_program(compiled.lir, compiled.target.kernels, poison=True)
    assert program.guard is not None
    return program, program.guard


@pytest.mark.parametrize("where", ["before", "after", "far"])
def test_a_write_outside_of_a_slot_is_named_with_step_and_slot(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    compiled = chain()
    program, guard = guard_of(compiled)
    slot = next(iter(program.lir.slots.values()))
    at = {"before": slot.offset - 1, "after": slot.end, "far": slot.end + CANARY - 1}[where]
    look = guard.after

    def stray(number: int, following: int, frame: Any, *rest: Any) -> None:
        if number == 0:
            frame.bound[ARENA].buffer[at] = 0
        look(number, following, frame, *rest)

    monkeypatch.setattr(guard, "after", stray)
    with pytest.raises(
        PoisonError, match=r"poison: \S+ wrote 1 bytes that are not its own, byte \d+ of the arena"
    ) as found:
        program.run([np.ones(40, "f4")])
    facts = {fact.label: str(fact.value) for fact in found.value.facts}
    assert "rlx." in facts["step"]
    assert f"bytes {slot.offset} to {slot.end}" in facts["next to"]


@pytest.mark.parametrize("side", [0, -1])
def test_a_write_beside_an_output_is_named(monkeypatch: pytest.MonkeyPatch, side: int) -> None:
    program, guard = guard_of(chain())
    look = guard.after

    def stray(number: int, following: int, frame: Any, results: Any, scratch: Any) -> None:
        next(iter(results)).base[side] = 0
        look(number, following, frame, results, scratch)

    monkeypatch.setattr(guard, "after", stray)
    with pytest.raises(PoisonError, match=r"(before|after) an output of 160 bytes"):
        program.run([np.ones(40, "f4")])


def test_what_is_read_after_it_was_freed_is_nan() -> None:
    """If the plan were wrong about the last reader of the first step's result, everything after it would be NaN."""
    graph = rlx.trace(lambda x: rlx.sort(rlx.matmul(rlx.sort(x), x) + 1), rlx.spec("f32[40, 40]"))
    compiled = compile_graph(graph, target="cpu", host=HOST, config={"use": "none", "options": {"cpu.tier": "numpy"}})
    program, guard = guard_of(compiled)
    x = np.ones((40, 40), "f4")
    assert np.isfinite(program.run([x])[0]).all()
    first = min(guard._occupied, key=lambda o: o.birth)
    guard._occupied = [evolve(o, death=o.birth) if o is first else o for o in guard._occupied]

    assert np.isnan(program.run([x])[0]).all()


def test_gaps_lie_between_all_slots() -> None:
    lir = with_gaps(chain().lir)
    ends = sorted({(s.offset, s.end) for s in lir.slots.values()})

    assert ends[0][0] >= CANARY
    assert lir.arena_nbytes >= ends[-1][1] + CANARY
    assert all(isinstance(slot, Slot) for slot in lir.slots.values())
    assert len(kernels) > 0
