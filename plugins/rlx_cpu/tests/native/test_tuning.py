"""Programs with tuned schedules: choices are measured, stored, used, reported, and part of the keys of caches."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hosts import HOSTS, Row

import rlx_core as rlx
from rlx_core.errors import ConfigError
from rlx_core.testing.fake_clock import FakeClock
from rlx_core.tuning.clock import Clock, HostClock, Run
from rlx_core.tuning.problem import Candidate
from rlx_core.tuning.store import ChoiceStore, default_store
from rlx_cpu import tier
from rlx_cpu.native.llvm.isa import assuming_host, available, host_isa
from rlx_cpu.native.machine import assuming
from rlx_cpu.native.runtime import steps
from rlx_cpu.native.sharing import SHARING

RNG = np.random.default_rng(0)
W, V = RNG.standard_normal((256, 320)).astype("f4"), RNG.standard_normal((320, 128)).astype("f4")
X = RNG.standard_normal((160, 256)).astype("f4")
LINES = ["product f32[160, 256] @ f32[256, 320] bound", "product f32[160, 320] @ f32[320, 128] bound"]
CHOSEN = "items=8"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store for this test alone, and no mode from outside."""
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("RLX_CPU_TUNE", raising=False)


@contextmanager
def assuming_clock(clock: Clock) -> Iterator[None]:
    """Let another clock replace the host's inside, so that decisions do not depend on the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HostClock, "seconds", lambda _, *measured: clock.seconds(*measured))
        yield


@pytest.fixture
def prefers() -> Iterator[FakeClock]:
    """A clock by which another schedule than the default is the fastest."""
    clock = FakeClock({CHOSEN: [1e-3]})
    with assuming_clock(clock):
        yield clock


class NoClock:
    """Measures nothing."""

    def seconds(self, candidate: Candidate, run: Run, count: int) -> float:
        raise AssertionError(f"{candidate.name} is measured")


def two_products(weights: Any, x: Any) -> Any:
    return rlx.tanh(x @ weights["w"]) @ weights["v"]


def compiled(mode: str, threads: int = 2, size: str = "160", **options: Any) -> Any:
    config = {"options": {"cpu.tune": mode, "cpu.threads": threads, **options}}
    return rlx.compile(two_products, {"w": W, "v": V}, rlx.spec(f"f32[{size}, 256]"), target="cpu", config=config)


def bits(program: Any, x: np.ndarray = X) -> bytes:
    return np.asarray(program(x)).tobytes()


def names(program: Any) -> list[str]:
    return [each.candidate.name for each in program.report.tuned]


def origins(program: Any) -> list[str]:
    return [each.origin for each in program.report.tuned]


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The LLVM IR of the functions of each program that is compiled in the test, in the order of compilation."""
    recorded: list[list[str]] = []
    library = steps.library

    def recording(functions: Any, isa: Any, emit: Any, packages: Any) -> Any:
        modules = [emit(number) for number in range(len(functions))]
        recorded.append([str(each[0]) for each in modules])
        return library(functions, isa, emit, packages)

    monkeypatch.setattr(steps, "library", recording)
    return recorded


@pytest.mark.medium
def test_a_measured_schedule_gives_the_same_bits_and_other_code(prefers: FakeClock, texts: list[list[str]]) -> None:
    default, tuned = compiled("off"), compiled("measure")
    expected = bits(default)
    assert bits(tuned) == expected
    assert names(tuned) == [CHOSEN, CHOSEN]
    assert default.report.tuned == ()
    assert {CHOSEN, "model"} < {*prefers.order}
    before, *candidates, after = texts
    assert len(before) == len(after) == 2
    assert all(x != y for x, y in zip(before, after, strict=True))
    assert all([text.replace("k1_", "k0_")] in candidates for text in after)  # what was measured is what runs
    step = "matmul"
    assert tuned.emit("llvm", step=step) != default.emit("llvm", step=step)


@pytest.mark.medium
def test_a_measured_epilogue_reads_operands_and_literals_as_in_the_program(
    prefers: FakeClock, texts: list[list[str]]
) -> None:
    bias, mask = np.linspace(-1, 1, 320, dtype=np.float32), X[:, :1] > 0

    def program(mode: str) -> Any:
        config = {"options": {"cpu.tune": mode, "cpu.threads": 2}}
        parameters = {"w": W, "b": bias}
        types = rlx.spec("f32[160, 256]"), rlx.spec("bool[160, 1]")
        return rlx.compile(masked, parameters, *types, target="cpu", config=config)

    def masked(p: Any, x: Any, m: Any) -> Any:
        return rlx.where(m, rlx.tanh(x @ p["w"] + p["b"]) * 2.5, 0.0)

    default, tuned = program("off"), program("measure")
    expected = np.asarray(default(X, mask)).tobytes()
    assert np.asarray(tuned(X, mask)).tobytes() == expected
    (problem,) = tuned.report.tuned
    assert problem.candidate.name == CHOSEN
    assert problem.problem.endswith("reads f32[320], bool[160, 1]")
    (text,) = texts[-1]
    assert [text] in texts[1:-1]


@pytest.mark.medium
def test_the_clock_of_the_host_selects_one_of_the_candidates() -> None:
    program = compiled("measure")
    assert bits(program) == bits(compiled("off"))
    assert origins(program) == ["measured"] * 2
    assert all(choice.median_us > 0 for choice in default_store().choices())


@pytest.mark.medium
def test_the_report_lists_problems_choices_defaults_and_times(prefers: FakeClock) -> None:
    program = compiled("measure")
    assert "tuned" not in str(program.report)  # nothing is compiled for this process yet
    bits(program)
    tuned = program.report.tuned
    assert [each.problem.partition(", epilogue")[0] for each in tuned] == LINES
    last = f"  tuned: {LINES[1]}: {CHOSEN}, default model; measured: 1000.0 ± 0.0 us, default 2000.0 ± 0.0 us"
    assert str(program.report).splitlines()[-1] == last
    assert program.report.to_json()["tuned"] == [each.to_json() for each in tuned]
    assert ("tuned", "2 of 2 schedules differ from the default") in [*program.report.rows()]


@pytest.mark.medium
def test_stored_choices_are_used_without_measuring(prefers: FakeClock) -> None:
    bits(compiled("measure"))
    with assuming_clock(NoClock()):
        for mode in ("stored", "measure"):
            program = compiled(mode)
            bits(program)
            assert (names(program), origins(program)) == ([CHOSEN] * 2, ["stored"] * 2)


def test_a_problem_without_a_stored_choice_has_its_default() -> None:
    with assuming_clock(NoClock()):
        program = compiled("stored")
        assert bits(program) == bits(compiled("off"))
    assert (names(program), origins(program)) == (["model"] * 2, ["default"] * 2)
    assert default_store().choices() == []


@pytest.mark.medium
def test_an_undecided_measurement_keeps_the_default() -> None:
    with assuming_clock(FakeClock({CHOSEN: [1.99e-3]})):
        program = compiled("measure")
        bits(program)
    assert (names(program), origins(program)) == (["model"] * 2, ["measured"] * 2)


@pytest.mark.medium
def test_a_choice_for_another_number_of_threads_does_not_apply(prefers: FakeClock) -> None:
    bits(compiled("measure", threads=2))
    program = compiled("stored", threads=1)
    bits(program)
    assert origins(program) == ["default"] * 2


@pytest.mark.medium
def test_keys_of_programs_change_with_the_choices(prefers: FakeClock) -> None:
    """A program that was compiled with other choices is another program, in this process and on disk."""
    off, before = compiled("off"), compiled("stored")
    assert compiled("stored").report.lir.fingerprint == before.report.lir.fingerprint
    bits(compiled("measure"))
    after = compiled("stored")
    assert len({each.report.lir.fingerprint for each in (off, before, after)}) == 3
    assert compiled("off").report.lir.fingerprint == off.report.lir.fingerprint
    bits(before)
    bits(after)
    assert names(after) == [CHOSEN] * 2


@pytest.mark.medium
def test_another_process_has_the_choice(prefers: FakeClock) -> None:
    bits(compiled("measure"))
    (line, *_), machine = LINES, tier.machine_line(_isa(), 2)
    script = (
        "from rlx_core.tuning.store import default_store\n"
        f"print([c.candidate for c in default_store().choices() if c.machine == {machine!r} and {line!r} in c.problem])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"['{CHOSEN}']"


def _isa() -> Any:
    isa = host_isa()
    assert isa is not None
    return isa


def test_programs_of_symbolic_sizes_are_not_tuned() -> None:
    """Their functions serve all sizes."""
    with assuming_clock(NoClock()):
        program = compiled("measure", size="n")
        assert bits(program) == bits(compiled("off", size="n"))
    assert program.report.tuned == ()


@pytest.mark.medium
def test_the_environment_enables_tuning(prefers: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CPU_TUNE", "measure")
    program = rlx.jit(lambda x: x @ W, target="cpu")
    program(X)
    assert [choice.candidate for choice in default_store().choices()] == [CHOSEN]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cpu.tune": "measured"}, "cpu.tune: 'measured' is none of off, stored, measure"),
        ({"cpu.tune": "stored", "cpu.tier": "numpy"}, "cpu.tune: stored needs native code, and there is none"),
    ],
)
def test_modes_that_are_not_available_are_errors(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rlx.compile(lambda x: x @ W, rlx.spec("f32[160, 256]"), target="cpu", config={"options": options})


@pytest.mark.medium
def test_nothing_of_tuning_is_imported_unless_it_is_enabled() -> None:
    script = (
        "import sys\nimport numpy as np\nimport rlx_core as rlx\n"
        "f = rlx.jit(lambda x: x @ x, target='cpu')\nf(np.ones((160, 160), np.float32))\nstr(f)\n"
        "print([name for name in sys.modules if 'tuning' in name or 'candidates' in name])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("row", HOSTS, ids=lambda row: row.name)
def test_every_processor_is_another_machine(row: Row) -> None:
    with assuming_host(row.host):
        lines = [tier.machine_line(isa, threads) for isa in available() for threads in (1, 2)]
    assert len({*lines}) == 2 * len(row.sets)
    assert lines[0] == f"cpu {row.name} ({row.host.arch}), {row.sets[0]}, 1 thread"


def test_assumed_machine_parameters_are_another_machine() -> None:
    isa = tier.isa_of({})
    with assuming(SHARING):
        shared = tier.isa_of({})
    assert isa is not None
    assert shared is not None
    lines = [tier.machine_line(each, 2) for each in (isa, shared)]
    assert lines[1].startswith(f"{lines[0]}, sizes ")


@pytest.mark.medium
def test_the_file_is_in_the_cache_directory(prefers: FakeClock, tmp_path: Path) -> None:
    bits(compiled("measure"))
    store = ChoiceStore(tmp_path / "cache" / "tuning" / "choices.jsonl")
    assert sorted(choice.candidate for choice in store.choices()) == [CHOSEN] * 2
