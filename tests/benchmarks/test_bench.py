"""How programs are timed, compared and reported; no time is asserted."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # the benchmarks are programs of the checkout, not an installed package

from benchmarks import runner  # noqa: E402
from benchmarks.case import Case, Program  # noqa: E402
from benchmarks.cases import CASES, GROUPS, chosen  # noqa: E402
from benchmarks.machine import description  # noqa: E402
from benchmarks.measure import Timing, disagreement, measure, sampled, verify_threads  # noqa: E402
from benchmarks.peers import Peer, plain_numpy  # noqa: E402
from benchmarks.place import BenchmarkPlace, place_of  # noqa: E402
from benchmarks.report import CaseOutcome, bars, rows_of, table  # noqa: E402
from benchmarks.runner import Settings, one  # noqa: E402
from rlx_core.errors import DeviceError, UnknownNameError  # noqa: E402
from rlx_core.plugins import set_default_host  # noqa: E402
from rlx_core.testing.fake_device import FakeDriver, fake_host  # noqa: E402

HERE = BenchmarkPlace("cpu", None)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeDriver]]:
    """The fake device among the targets of everybody; its drivers."""
    drivers: list[FakeDriver] = []
    before = set_default_host(fake_host(1, drivers=drivers))
    monkeypatch.setenv("RLX_TARGET", "cpu")  # what the run sets is undone
    description.cache_clear()
    yield drivers
    set_default_host(before)
    description.cache_clear()


def case(**settings: Any) -> Case:
    fixed = Program(lambda: None, lambda: [np.ones(3)])
    return Case("toy", "toy", dict, lambda data: fixed, **settings)


def outcome(rlx: float, **peers: float) -> CaseOutcome:
    return CaseOutcome(case(aim=0.5), Timing((rlx,), 1.0), {n: Timing((ms,), 1.0) for n, ms in peers.items()})


@pytest.mark.medium
def test_every_round_runs_every_program_and_begins_elsewhere() -> None:
    calls: list[str] = []
    programs = {n: Program(lambda n=n: calls.append(n), list) for n in "abc"}
    timings = measure(programs, seconds=0, is_repeatable=False, least=3)
    assert calls == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert all(len(t.samples) == 3 for t in timings.values())


def test_a_sample_is_the_mean_of_runs_after_others_that_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    now, calls = 0.0, 0
    monkeypatch.setattr("benchmarks.measure.time.perf_counter", lambda: now)

    def run() -> None:
        nonlocal now, calls
        now += 0.004 if calls < 2 else 0.003
        calls += 1

    sample = sampled(Program(run, list), is_repeatable=True)
    assert (calls, sample.count) == (2 + 4, 4), "5 ms untimed, then 10 ms"
    assert sample.wall == pytest.approx(4 * 0.003)


def test_another_process_takes_the_time_itself() -> None:
    clocked = Program(lambda: None, list, clock=lambda: 0.25)
    assert measure({"clocked": clocked}, seconds=0, is_repeatable=False, least=2)["clocked"].samples == (250.0, 250.0)


@pytest.mark.parametrize(
    ("theirs", "says"),
    [([np.ones(3)], None), ([np.ones(3) + 1e-6], None), ([np.ones(3) * 1.01], "by up to 0.01"), ([np.ones((1, 3))], "is [1, 3]"),
     ([], "0 results, not 1"), ([np.array([1, 1, np.nan])], "differs")],
)  # fmt: skip
def test_results_that_differ_are_said_to_differ(theirs: list[np.ndarray], says: str | None) -> None:
    found = disagreement([np.ones(3)], theirs, case())
    assert (found is None) if says is None else says in str(found)


def test_a_program_with_other_threads_is_refused() -> None:
    assert verify_threads("x", Program(lambda: None, list, 2), 2) is None
    assert verify_threads("x", Program(lambda: None, list, 8), 2) == "x uses 8 threads, not 2"


def test_threads_are_limited_before_anything_is_imported() -> None:
    program = (
        "from benchmarks.measure import limit_threads, verify_threads; from benchmarks.case import Program; import os;"
        "limit_threads(1); print(os.environ['OMP_NUM_THREADS'], verify_threads('x', Program(print, list), 1))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == "1"
    assert done.stdout.split()[1] == "None" or not hasattr(os, "sched_setaffinity")


def test_the_ratio_is_to_the_fastest_peer() -> None:
    found = outcome(1.0, slow=4.0, fast=2.0)
    assert (found.best_peer, found.ratio) == ("fast", 0.5)
    (row,) = rows_of([found])
    assert json.loads(json.dumps(row))["peers"] == {"slow": 4.0, "fast": 2.0}
    assert list(row) == ["case", "rlx_ms", "peers", "ratio_to_best_peer", "processor", "isa"]
    assert rows_of([outcome(1.0)])[0]["ratio_to_best_peer"] is None


def test_numbers_say_for_which_instructions_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A set that is forced is the one that is said."""
    sets = pytest.importorskip("rlx_cpu.native.llvm.isa", reason="it is about native code: rlx-cpu is not installed")
    for isa in sets.available():
        monkeypatch.setenv("RLX_CPU_ISA", isa.name)
        description.cache_clear()
        assert description()["isa"] == isa.name
    monkeypatch.undo()
    description.cache_clear()


def test_tables_and_bars_show_every_program() -> None:
    outcomes = [outcome(1.0, slow=4.0, fast=2.0), outcome(0.01)]
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table(outcomes))
    assert {"slow", "fast", "rlx", "toy"} <= set(console.export_text().split())
    root = ElementTree.fromstring(bars(outcomes))
    assert sum(e.tag.endswith("rect") for e in root.iter()) == 1 + 4


def test_groups_and_names_choose_cases() -> None:
    assert [c.name for c in chosen(["minilm"])] == ["minilm-1x16", "minilm-1x128", "minilm-8x128"]
    assert [c.name for c in chosen(["call"])] == ["call"]
    assert len(chosen(["gemm"])) == 48
    assert {"memory-transpose", "memory-scatter"} <= {c.name for c in chosen(["memory"])}
    assert len(chosen([])) < len(CASES)
    assert [chosen([name])[0].name.startswith(name) for name in GROUPS] == [True] * len(GROUPS)
    assert {c.name for name in GROUPS for c in chosen([name])} == {c.name for c in CASES}
    with pytest.raises(UnknownNameError, match="no case is called 'nothing'"):
        chosen(["call", "nothing"])


class Broken:
    """A peer whose programs cannot be made."""

    @staticmethod
    def make(kind: str, data: Any, threads: int) -> Any:
        raise RuntimeError("no such kernel")


MEMORY = [c.name for c in chosen(["memory"]) if c.name != "memory-fresh"]


@pytest.mark.parametrize("name", ["call", "math-exp", "mlp-train", *MEMORY])
def test_cases_agree_with_numpy_and_a_broken_peer_is_left_out(name: str) -> None:
    """rlx's program and NumPy's give the same, and a peer that fails does not stop the others."""
    (found,) = chosen([name])
    peers = [Peer("numpy", np.__version__, plain_numpy), Peer("broken", "1", Broken)]
    settings = Settings((name,), True, 1, 0.0, 1, Path("unused"))
    result = one(found, peers, settings, HERE)
    assert result.left_out[-1] == "broken has no program: RuntimeError: no such kernel"
    assert not [said for said in result.left_out if "disagrees" in said]
    assert result.rlx.median > 0


def text_of(outcomes: list[CaseOutcome]) -> str:
    console = Console(width=110, record=True, file=io.StringIO())
    console.print(table(outcomes))
    return console.export_text()


def test_the_part_of_a_limit_is_that_of_as_many_threads() -> None:
    limited = CaseOutcome(
        case(work=(2.0, "GFLOP/s"), limit="peak"),
        Timing((10.0,), 1.0),
        {},
        (),
        {1: 125.0, 2: 250.0},
        2,
        Timing((20.0,), 1.0),
    )
    said = text_of([limited])
    assert "200 GFLOP/s, 80 % of peak" in said  # 2 G in 10 ms, of 250
    assert "rlx, 1 thread" in said
    assert "100 GFLOP/s, 80 % of peak" in said  # 2 G in 20 ms, of 125


@pytest.mark.medium
def test_limits_are_measured_in_the_rounds_of_their_case() -> None:
    fixed = Program(lambda: None, lambda: [np.ones(3)])
    limited = case(work=(1.0, "GB/s"), limit="copy", single=lambda data: fixed)
    found = one(limited, [], Settings((), False, 2, 0.0, 1, Path("unused")), HERE)
    assert set(found.limits) == {1, 2}
    assert all(rate > 0 for rate in found.limits.values())
    assert found.single is not None
    assert found.peers == {}


@pytest.mark.parametrize("done", [0, 1])
def test_what_was_timed_is_published_when_a_run_is_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, done: int
) -> None:
    cases = [case() for _ in range(3)]
    results = iter([outcome(1.0)] * done)

    def stopped(*_: Any) -> CaseOutcome:
        try:
            return next(results)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(runner, "chosen", lambda words: cases)
    monkeypatch.setattr(runner, "one", stopped)
    monkeypatch.setattr(runner, "machine", lambda *_: None)
    monkeypatch.setattr(runner, "place_of", lambda target: HERE)
    console = Console(width=100, record=True, file=io.StringIO())
    with pytest.raises(KeyboardInterrupt):
        runner.run(Settings((), False, 1, 0.0, 1, tmp_path, tmp_path / "x.json"), console)
    said = console.export_text()
    assert f"stopped: {done} of 3 cases were timed" in said
    assert ("picture:" in said) == (done > 0)
    if done:
        assert [row["case"] for row in json.loads((tmp_path / "x.json").read_text())] == ["toy"]


def test_a_profile_lists_the_steps_of_a_case_by_their_kernels() -> None:
    product = next(c for c in CASES if c.name == "gemm-16x384x384")
    said = runner.steps(product, HERE)
    assert "GFLOP/s" in said.splitlines()[0]
    assert "matmul(f32[16, 384], f32[384, 384]) -> f32[16, 384]" in said
    assert runner.steps(case(), HERE) == "  no steps: it does not run in this process"


def test_on_a_device_the_data_lies_there_and_a_repetition_ends_when_it_has_finished(fake: list[FakeDriver]) -> None:
    place, (found,) = place_of("fake:0"), chosen(["math-exp"])
    program = place.made(found.rlx, found.data())
    program.run()
    crossed = fake[0].count("write"), fake[0].count("read")
    program.run()
    assert (fake[0].count("write"), fake[0].count("read")) == crossed
    assert fake[0].waiting == 0
    x = found.data()["x"]
    np.testing.assert_allclose(program.results()[0], np.exp(x), rtol=1e-5)
    result = one(found, [], Settings((), False, 2, 0.0, 1, Path("unused")), place)
    assert (result.limits, result.single) == ({}, None)
    assert description()["device"].startswith("fake:0 Recorder")


def test_a_profile_on_a_device_is_by_its_own_clock(fake: list[FakeDriver]) -> None:
    said = runner.steps(next(c for c in CASES if c.name == "math-exp"), place_of("fake"))
    assert "loop(f32[16384]) -> f32[16384]" in said
    assert said.splitlines()[1].split()[:4] == ["100.0%", "1.0", "0%", "1"], "which takes a microsecond a launch"


def test_a_target_that_is_not_there_is_named(fake: list[FakeDriver]) -> None:
    with pytest.raises(DeviceError, match="there is 1, counted from 0"):
        place_of("fake:3")
