"""`rlx check --target`: a device that is in order passes, and each injected fault is reported as one."""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from rlx_core.cli import validating
from rlx_core.cli.main import app
from rlx_core.cli.session import CliSession
from rlx_core.cli.validating.bench import Bench, Skip
from rlx_core.cli.validating.probes import basics, large, speed
from rlx_core.cli.validating.results import BAD, StepResult
from rlx_core.cli.validating.runner import validate
from rlx_core.cli.validating.steps import MAX_SECONDS, chosen, every_step
from rlx_core.ops import standard_ops
from rlx_core.system.processes import cause

shim = pytest.importorskip("rlx_gpu.testing.shim.driver", reason="it examines a stand-in: rlx-gpu is not installed")
pytestmark = pytest.mark.skipif(shutil.which("c++") is None and shutil.which("g++") is None, reason="no C++ compiler")
pytest.importorskip("rlx_cuda")

FAULTY = Path(__file__).with_name("faulty.py")

QUICK = {
    "wrong-constant": ("first-kernel", "failed"),
    "short-read": ("copies", "failed"),
    "hangs": ("first-kernel", "timed out"),
    "aborts": ("first-kernel", "crashed"),
    "exits-with-code-0": ("first-kernel", "crashed"),
    "stale-pointers": ("host/pointers", "failed"),
}
SLOW = {
    "short-write": ("copies", "failed"),
    "short-copy": ("copies", "failed"),
    "segmentation-fault": ("first-kernel", "crashed"),
    "compiler-refuses": ("first-kernel", "failed"),
    "plugin-raises-late": ("first-kernel", "failed"),
    "recording-without-the-last-launch": ("host/replay", "failed"),
    "records-nothing": ("host/replay", "failed"),
    "shared-memory-of-results": ("host/pointers", "failed"),
    "never-recovers": ("host/memory", "failed"),
    "memory-without-end": ("host/memory", "failed"),
    "leaks": ("host/memory", "failed"),
    "wrong-strides-of-dlpack": ("host/dlpack", "failed"),
    "wrong-offset-of-dlpack": ("host/dlpack", "failed"),
    "memory-of-dlpack-is-reused": ("host/dlpack", "failed"),
    "other-bits-in-each-run": ("repeat", "failed"),
    "lost-nan": ("programs", "failed"),
    "inaccurate-f16": ("options", "failed"),
    "wrong-results-in-threads": ("host/threads", "failed"),
    "forked-child-is-served": ("host/fork", "failed"),
    "donation-is-ignored": ("host/donation", "failed"),
    "offsets-wrap-in-large-arrays": ("large", "failed"),
    "wrong-product-of-the-library": ("speed", "failed"),
    "library-raises": ("speed", "failed"),
}
"""The fault, the step that has to report it, and the status."""

LIMIT = 30.0


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliSession:
    """A session whose `cuda` is the stand-in with recordings."""
    monkeypatch.setenv("RLX_CUDA_STAND_IN", "1")
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return CliSession(enable=(f"faulty={FAULTY}",))


def run(session: CliSession, report: Path, *names: str, limit: float = LIMIT) -> list[StepResult]:
    return validate(session, "cuda", report, chosen(names), limit=limit)


@pytest.mark.medium
def test_a_device_in_order_passes(stand_in: CliSession, tmp_path: Path) -> None:
    results = run(stand_in, tmp_path / "out.zip", "facts", "first-kernel", "copies", "host/replay", "host/dlpack")
    assert [(each.step, each.status) for each in results if each.status != "passed"] == []
    with zipfile.ZipFile(tmp_path / "out.zip") as report:
        lines = [json.loads(line) for line in report.read("results.jsonl").splitlines()]
        assert [line["step"] for line in lines] == [each.step for each in results]
        assert not [name for name in report.namelist() if name.startswith("failed/")]


@pytest.mark.parametrize("fault", [*QUICK, *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW)])
def test_a_fault_is_reported(stand_in: CliSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    step, status = (QUICK | SLOW)[fault]
    monkeypatch.setenv("FAULT_OF_THE_STAND_IN", fault)
    (result,) = run(stand_in, tmp_path / "out.zip", step, limit=8.0 if status == "timed out" else LIMIT)
    assert result.status == status, result
    assert result.status in BAD
    assert result.reason
    with zipfile.ZipFile(tmp_path / "out.zip") as report:
        assert f"output/{step.replace('/', '_')}.txt" in report.namelist()


@pytest.mark.slow
def test_every_step_passes_on_a_device_in_order(stand_in: CliSession, tmp_path: Path) -> None:
    names = ("host", "programs", "repeat", "large", "sanitizer", "options", "speed")
    results = validate(stand_in, "cuda", tmp_path / "out.zip", chosen(names))
    assert [(each.step, each.reason) for each in results if each.status in BAD] == []


@pytest.mark.medium
def test_an_interrupt_keeps_the_results(stand_in: CliSession, tmp_path: Path) -> None:
    def interrupt(result: StepResult) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        validate(stand_in, "cuda", tmp_path / "out.zip", chosen(["facts", "copies"]), show=interrupt)
    with zipfile.ZipFile(tmp_path / "out.zip") as report:
        (line,) = report.read("results.jsonl").splitlines()
        assert json.loads(line)["step"] == "facts"
        assert b"stand-in" in report.read("rows/facts.jsonl")


@pytest.mark.medium
def test_source_and_error_of_a_failed_kernel_are_in_the_report(
    stand_in: CliSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULT_OF_THE_STAND_IN", "wrong-constant")
    run(stand_in, tmp_path / "out.zip", "first-kernel")
    with zipfile.ZipFile(tmp_path / "out.zip") as report:
        kept = [Path(name).name for name in report.namelist() if name.startswith("failed/first-kernel/")]
    assert "error.txt" in kept
    assert any(name.endswith(".source.txt") for name in kept)
    assert any(name.endswith(".binary") for name in kept)


@pytest.mark.medium
def test_ends_of_large_arrays_are_compared(
    stand_in: CliSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large, "COUNTS", (60_000, 1 << 40))
    rows = list(large.large(Bench("cuda", stand_in.host, tmp_path), ""))
    kinds = ["element-wise", "flipped", "scatter", "product, large operand", "product, large result", "attention"]
    assert [(row.name.rpartition(" ")[0], row.status, row.reason) for row in rows[:6]] == [
        (k, "passed", "") for k in kinds
    ]
    assert [row.status for row in rows[6:]] == ["skipped"] * 6
    assert all("bytes" in row.reason for row in rows[6:])


def test_rows_of_large_programs_lie_on_both_sides_of_a_power_of_two() -> None:
    for program in large.ROWS_PROGRAMS:
        below, above, lower, upper = (program.rows(count) * program.width for count in large.COUNTS)
        assert below < 1 << 31 < above < 1 << 32
        assert lower < 1 << 32 < upper


@pytest.mark.medium
def test_every_large_program_is_compared(stand_in: CliSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "COUNTS", (60_000,))
    read = shim.ShimDriver.read

    def shifted(self: Any, buffer: Any, offset: int, into: Any) -> None:
        """Reads the row before, as if the address of the last one had not fitted."""
        read(self, buffer, max(offset - into.nbytes, 0), into)

    monkeypatch.setattr(shim.ShimDriver, "read", shifted)
    rows = list(large.large(Bench("cuda", stand_in.host, tmp_path), ""))
    assert [row.name for row in rows if row.status != "failed"] == []


def test_products_without_a_library_are_skipped_with_the_reason(stand_in: CliSession, tmp_path: Path) -> None:
    stand_in.host.activate_all()
    rows = list(speed.products(Bench("cuda", stand_in.host, tmp_path)))
    assert [row.name.partition(",")[0] for row in rows] == ["product f32", "product f16", "product bf16"]
    assert all(row.status == "skipped" and "has no library" in row.reason for row in rows)
    (row,) = speed.products(Bench("snail", stand_in.host, tmp_path))
    assert (row.status, row.reason) == ("skipped", "the plugin of snail declares no library for products")


def test_product_that_the_library_does_not_take_is_not_compared_with_itself(
    stand_in: CliSession, tmp_path: Path
) -> None:
    bench = Bench("cuda", stand_in.host, tmp_path)
    with pytest.raises(Skip, match="the library does not take the product"):
        speed.product(bench, np.dtype(np.float32), {})


@pytest.mark.medium
def test_command_prints_a_table_and_exits_with_1(stand_in: CliSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULT_OF_THE_STAND_IN", "compiler-refuses")
    words = ["--plugin", f"faulty={FAULTY}", "check", "--target", "cuda", "--report", "o.zip", "--step", "first-kernel"]
    ran = CliRunner().invoke(app, words, prog_name="rlx")
    assert ran.exit_code == 1
    header, row, verdict = ran.stdout.splitlines()
    assert header.split() == ["step", "status", "seconds", "reason"]
    assert row.startswith("first-kernel")
    assert "KernelBuildError" in row
    assert verdict == "cuda: NOT valid: 1 failed; report: o.zip"


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["--target", "cuda", "--step", "first-kernal"], "no step first-kernal"),
        (["kit", "--target", "cuda"], "takes no package"),
        (["--step", "copies"], "--step is a step of --target"),
        (["--target", "cuda", "--step", "facts", "--report", "absent/folder/o.zip"], "cannot be written"),
    ],
)
def test_wrong_words_are_refused(stand_in: CliSession, words: list[str], match: str) -> None:
    ran = CliRunner().invoke(app, ["check", *words], prog_name="rlx")
    assert ran.exit_code == 2
    assert match in " ".join(ran.stderr.split())


def test_every_category_of_ops_is_a_step_and_has_a_function() -> None:
    steps = every_step()
    assert {step.argument for step in steps if step.name.startswith("kernels/")} == {
        op.category for op in standard_ops()
    }
    assert len({step.name for step in steps}) == len(steps)
    for step in steps:
        module, _, function = step.run.partition(":")
        assert callable(getattr(__import__(module, fromlist=[function]), function)), step
        assert step.seconds <= MAX_SECONDS


def test_end_of_a_process_is_named() -> None:
    assert cause(-6) == "ended by SIGABRT"
    assert cause(3) == "ended with exit code 3"


def test_vendors_are_named_by_backends_alone() -> None:
    words = re.compile("nvidia|rocm|compute-sanitizer|CUDA_|HIP_|ROCR_|cupy", re.IGNORECASE)
    folder = Path(validating.__file__).parent
    found = {file.name: words.findall(file.read_text()) for file in folder.rglob("*.py")}
    assert {name: each for name, each in found.items() if each} == {}


def test_variables_and_tools_are_those_of_the_backend(
    stand_in: CliSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho state of $1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")
    rows = {row.name: row for row in basics.machine(Bench("cuda", stand_in.host, tmp_path), "")}
    assert rows["nvidia-smi"].facts["output"] == "state of -q\n"
    assert rows["machine"].facts["environment"]["CUDA_VISIBLE_DEVICES"] == "0"
    assert "HIP_VISIBLE_DEVICES" not in rows["machine"].facts["environment"]
