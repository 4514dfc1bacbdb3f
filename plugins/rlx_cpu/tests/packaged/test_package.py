"""Packages from one end to the other: written, opened, run, and what is said where they cannot be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hosts import HOSTS, Row, masked

import rlx_core as rlx
from rlx_core.errors import (
    BindingError,
    ConfigError,
    DeviceError,
    DtypeError,
    FileError,
    FormatError,
    IndexRangeError,
    NoKernelError,
    UnknownNameError,
    WrongInputCountError,
)
from rlx_core.files.packages.opening import import_file
from rlx_core.functions.model import Model
from rlx_core.ir.array import unwrapped
from rlx_core.pipeline.backend import Params
from rlx_core.pipeline.compile import compile_graph
from rlx_cpu.native.llvm.isa import ISAS, assuming_host, available, host_isa, this_host

from .conftest import HOST, WEIGHTS, N, X, compiled, leaves

FOREIGN = next(isa for isa in ISAS if isa.arch != this_host().arch)
"""An instruction set of another architecture."""

LESSER = [isa.name for isa in available() if isa != host_isa()][-1:]
"""A set that this machine has and that `auto` does not take, if there is one."""

RUNNING = [row for row in {(*row.sets, row.best): row for row in HOSTS}.values() if masked(row) is not None]
"""Processors of every choice of sets, of those that this machine can stand in for."""


def load(path: Path, **options: Any) -> Any:
    return rlx.load(path, host=HOST, **options)


@pytest.mark.medium
@pytest.mark.parametrize("isa", [isa.name for isa in available()])
def test_every_instruction_set_gives_what_compiling_for_it_gives(isa: str, tmp_path: Path) -> None:
    rlx.package(compiled(), tmp_path / "m.rlxpack", f"cpu:{isa}", sizes=[{"rows": 8}])
    found = load(tmp_path / "m.rlxpack")
    for one, other in zip(
        leaves(found(X, N)), leaves(compiled(config={"options": {"cpu.isa": isa}})(X, N)), strict=True
    ):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-6)  # portable code may fuse other multiplications
    assert found.report.code == f"cpu:{isa}"
    assert not found.report.compiled


def test_calls_are_checked_first_and_straight_later(package: Path, wanted: list[np.ndarray]) -> None:
    found = load(package)
    for _ in range(4):
        for one, other in zip(leaves(found(X, N)), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-6)
    result = found(X, N)[1]
    assert result[1] is not X, "an output is the caller's own"
    assert unwrapped(result[2]).flags.writeable, "a weight that is given back is a copy"
    assert found(x=X, n=N)[0]["h"].shape == (8, 64)
    with pytest.raises(DtypeError, match="x must be f32"):
        found(X.astype("f8"), N)
    with pytest.raises(WrongInputCountError, match="takes \\(x, n\\)"):
        found(X)


@pytest.mark.medium
def test_a_plain_function_gets_an_entry(tmp_path: Path) -> None:
    fast = rlx.compile(
        lambda p, x: (x @ p, rlx.sum(x)), np.eye(64, dtype="f4"), rlx.spec("f32[4, 64]"), target="cpu", host=HOST
    )
    rlx.save(tmp_path / "f.rlxpack", fast)
    found = load(tmp_path / "f.rlxpack")
    x = np.arange(256, dtype="f4").reshape(4, 64)
    for _ in range(3):
        product, total = found(x)
        np.testing.assert_array_equal(product, x)
        assert total == x.sum()
    assert found._door.entry is not None
    np.testing.assert_array_equal(found(x[::-1])[0], x[::-1], "what is not plain is checked")


@pytest.mark.medium
def test_large_programs_share_the_threads_of_all_programs(tmp_path: Path) -> None:
    w = np.random.default_rng(1).standard_normal((512, 512)).astype("f4")
    fast = rlx.compile(lambda w, x: rlx.exp(x @ w * 0.01), w, rlx.spec("f32[256, 512]"), target="cpu", host=HOST)
    rlx.package(fast, tmp_path / "m.rlxpack")
    found = load(tmp_path / "m.rlxpack", config={"options": {"cpu.threads": 2}})
    x = np.random.default_rng(2).standard_normal((256, 512)).astype("f4")
    for _ in range(4):
        np.testing.assert_allclose(found(x), fast(x), rtol=1e-5)


def test_a_fault_names_the_node(package: Path) -> None:
    found = load(package)
    for _ in range(3):  # on the checked path, and by the entry
        with pytest.raises(IndexRangeError, match="outside an axis of 16") as caught:
            found(X, N + 99)
        assert any(fact.label == "node" for fact in caught.value.facts)


def test_other_sizes_are_compiled_and_the_report_says_so(package: Path) -> None:
    found = load(package)
    assert found(X[:3], N[:3])[0]["h"].shape == (3, 64)
    assert "no program for {rows=3}" in str(found.report)
    np.testing.assert_allclose(found(X, N)[0]["h"], compiled()(X, N)[0]["h"], rtol=2e-6)


@pytest.mark.medium
def test_without_a_program_other_sizes_are_an_error_that_names_those_there_are(tmp_path: Path) -> None:
    rlx.package(compiled(), tmp_path / "m.rlxpack", sizes=[{"rows": 8}], program=False)
    found = load(tmp_path / "m.rlxpack")
    assert found(X, N)[0]["h"].shape == (8, 64)
    with pytest.raises(BindingError, match=r"no program for \{rows=3\}") as caught:
        found(X[:3], N[:3])
    assert "{rows=8}" in str(caught.value)
    with pytest.raises(FormatError, match="code alone"):
        found.bundle()


@pytest.mark.medium
def test_code_for_another_machine_is_passed_over_by_name(tmp_path: Path) -> None:
    foreign = f"cpu:{FOREIGN.name}"
    rlx.package(compiled(), tmp_path / "m.rlxpack", [foreign], sizes=[{"rows": 8}])
    found = load(tmp_path / "m.rlxpack")
    assert found.report.code is None
    assert f"is for {FOREIGN.arch}" in found.report.reasons[foreign]
    np.testing.assert_array_equal(found(X, N)[0]["h"], compiled()(X, N)[0]["h"])

    rlx.package(compiled(), tmp_path / "n.rlxpack", [foreign], sizes=[{"rows": 8}], program=False)
    with pytest.raises(FormatError, match="code alone"):
        load(tmp_path / "n.rlxpack")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        *(({"cpu.isa": name}, f"cpu.isa is {name}") for name in LESSER),
        ({"cpu.tier": "numpy"}, "cpu.tier is numpy"),
        ({"cpu.poison": True}, "cpu.poison looks at every step"),
    ],
)
def test_options_that_code_does_not_meet_compile(options: dict[str, Any], said: str, package: Path) -> None:
    found = load(package, config={"options": options})
    assert said in str(found.report)
    np.testing.assert_allclose(found(X, N)[0]["h"], compiled()(X, N)[0]["h"], rtol=1e-4, atol=1e-5)


@pytest.mark.medium
@pytest.mark.every_case
@pytest.mark.parametrize("row", RUNNING, ids=lambda row: row.name)
def test_the_first_code_that_runs_is_taken_unless_one_is_asked_for(row: Row, tmp_path: Path) -> None:
    """`cpu` is the fastest set of the processor that the package is made on, which is not always the widest."""
    host = masked(row)
    assert host is not None, "it is one of those"
    with assuming_host(host):
        targets = [f"cpu:{FOREIGN.name}", "cpu", f"cpu:{row.sets[-1]}"]
        rlx.package(compiled(), tmp_path / "m.rlxpack", list(dict.fromkeys(targets)), sizes=[{"rows": 8}])
        assert load(tmp_path / "m.rlxpack").report.code == f"cpu:{row.best}"
        assert load(tmp_path / "m.rlxpack", target=f"cpu:{row.sets[-1]}").report.code == f"cpu:{row.sets[-1]}"


def test_parameters_are_bound_anew_by_compiling(package: Path) -> None:
    found, plain = load(package), compiled()
    found(X, N), found(X, N)
    doubled = {name: 2 * array for name, array in WEIGHTS.items()}
    found.rebind(p=doubled)
    plain.rebind(p=doubled)
    np.testing.assert_array_equal(found(X, N)[0]["h"], plain(X, N)[0]["h"])


def test_a_package_gives_its_program_back(package: Path, tmp_path: Path) -> None:
    rlx.save(tmp_path / "m.rlx", load(package))
    np.testing.assert_array_equal(
        rlx.load(tmp_path / "m.rlx", host=HOST, target="cpu")(X, N)[0]["h"], compiled()(X, N)[0]["h"]
    )


# ----------------------------------------------------------------------------------------- refusals


@pytest.mark.medium
@pytest.mark.skipif(os.name != "posix", reason="files have owners there")
def test_a_file_that_others_may_have_written_needs_its_digest(package: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.rlxpack"
    digest = rlx.package(compiled(), path, sizes=[{"rows": 8}])
    path.chmod(0o664)
    with pytest.raises(FileError, match="can be written by others"):
        load(path)
    assert load(path, sha256=digest)(X, N)[0]["h"].shape == (8, 64)
    with pytest.raises(FormatError, match="its SHA-256 is"):
        load(path, sha256="0" * 64)
    path.chmod(0o644)
    with pytest.raises(FormatError, match="its SHA-256 is"):
        load(path, sha256="0" * 64)
    if os.geteuid() == 0:
        os.chown(path, 1234, -1)
        with pytest.raises(FileError, match="belongs to user 1234"):
            load(path)


def test_what_cannot_be_packaged_says_why(tmp_path: Path) -> None:
    path = tmp_path / "m.rlxpack"
    with pytest.raises(BindingError, match="rows is not bound"):
        rlx.package(compiled(), path)
    with pytest.raises(UnknownNameError, match="no symbol 'row'"):
        rlx.package(compiled(), path, sizes=[{"row": 1}])
    with pytest.raises(ConfigError, match="'avx3' is none of"):
        rlx.package(compiled(), path, ["cpu:avx3"], sizes=[{"rows": 1}])
    with pytest.raises(ConfigError, match="targets is empty"):
        rlx.package(compiled(), path, [], sizes=[{"rows": 1}])
    with pytest.raises(ConfigError, match="takes what"):
        rlx.package(lambda x: x, path)  # type: ignore[arg-type]
    solving = rlx.compile(rlx.linalg.solve, rlx.spec("f64[40, 40]"), rlx.spec("f64[40]"), target="cpu", host=HOST)
    with pytest.raises(NoKernelError, match="run from Python"):
        rlx.package(solving, path)
    assert not path.exists()


def test_a_package_of_another_run_time_is_compiled(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlx_cpu.packaged import opening

    monkeypatch.setattr(opening, "VERSION", opening.VERSION + 1)
    found = load(package)
    assert "version" in next(iter(found.report.reasons.values()))
    assert found(X, N)[0]["h"].shape == (8, 64)


def test_a_digest_for_what_is_no_package_is_refused(tmp_path: Path) -> None:
    rlx.save(tmp_path / "m.rlx", compiled())
    with pytest.raises(ConfigError, match="sha256 is for a package"):
        rlx.load(tmp_path / "m.rlx", sha256="0" * 64)


def test_nothing_is_run_or_believed_before_it_is_asked_for(package: Path) -> None:
    assert import_file(package, HOST).blobs._checked == set()


@pytest.mark.medium
@pytest.mark.skipif(not available(), reason="native code needs llvmlite and an instruction set that is known here")
def test_a_program_without_steps_is_packaged_too(tmp_path: Path) -> None:
    same = rlx.compile(lambda x: (x, x.T), rlx.spec("f32[2, 3]"), target="cpu", host=HOST)
    rlx.package(same, tmp_path / "m.rlxpack")
    x = np.arange(6, dtype="f4").reshape(2, 3)
    one, other = load(tmp_path / "m.rlxpack")(x)
    np.testing.assert_array_equal(one, x)
    np.testing.assert_array_equal(other, x.T)
    assert one is not x


def test_what_a_run_would_overwrite_is_not_packaged() -> None:
    x = rlx.spec("f32[4]")
    donating = compile_graph(rlx.trace(lambda x: x + 1, x), target="cpu", host=HOST, donations={"x": 0})
    with pytest.raises(ConfigError, match="x would be overwritten"):
        donating.backend.pack([(donating.lir, Params({}))], donating.target, None, lambda array: 0)


def test_a_model_is_compiled_and_packaged(tmp_path: Path) -> None:
    model = Model(
        name="tiny", function=lambda p, x: x * p["w"], parameters={"w": np.float32(3)}, inputs={"x": rlx.spec("f32[4]")}
    )
    rlx.package(model, tmp_path / "m.rlxpack")
    np.testing.assert_array_equal(load(tmp_path / "m.rlxpack")(np.ones(4, "f4")), np.full(4, 3, "f4"))


def test_a_device_that_holds_no_packages_is_refused_by_name(package: Path) -> None:
    with pytest.raises((DeviceError, ConfigError)):
        load(package, target="abacus")
