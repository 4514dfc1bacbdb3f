"""Programs of a device in a package: launches, sources and weights as data, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve

import rlx_core as rlx
from rlx_core.emit.packaged.form import PackedLaunches
from rlx_core.errors import ConfigError, DeviceError, FormatError, IndexRangeError, NoKernelError
from rlx_core.files.packages.container import read_container
from rlx_core.plugins import PluginHost
from rlx_core.plugins.entry import given_entry
from rlx_core.testing.fake_device import FACTS
from tests.emit.conftest import Bench
from tests.emit.test_absent import Unavailable

W = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
X = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
N = np.arange(3)


def model(w: Any, x: Any, n: Any) -> Any:
    h = rlx.exp(x * 2) + rlx.take(w * 3, n, axis=0)
    return {"h": rlx.sum(h, axis=1), "x": x, "w": w}, h[::2, ::-1]


def packaged(bench: Bench, path: Path, **options: Any) -> Any:
    """A package of the model for three rows, and the model."""
    compiled = bench.compile(model, W, rlx.spec("f32[rows, 4]"), rlx.spec("i64[rows]"))
    rlx.package(compiled, path, sizes=[{"rows": 1}, {"rows": 3}], **options)
    return compiled


def expect_equal(found: Any, wanted: Any) -> None:
    for name in ("h", "x", "w"):
        np.testing.assert_array_equal(found[0][name], wanted[0][name])
    np.testing.assert_array_equal(found[1], wanted[1])


def test_a_package_runs_as_what_was_packaged_and_compiles_nothing(bench: Bench, tmp_path: Path) -> None:
    compiled = packaged(bench, tmp_path / "m.rlxpack", program=False)
    wanted = {rows: compiled(X[:rows], N[:rows]) for rows in (1, 3)}
    built = bench.driver.built
    found = rlx.load(tmp_path / "m.rlxpack", host=bench.host)
    for rows in (3, 1, 3, 3):
        expect_equal(found(X[:rows], N[:rows]), wanted[rows])
    assert found.report.code == "fake:fake"
    assert bench.driver.built == built


def test_equal_weights_cross_once_for_all_sizes(bench: Bench, tmp_path: Path) -> None:
    packaged(bench, tmp_path / "m.rlxpack")
    found = rlx.load(tmp_path / "m.rlxpack", host=bench.host)
    found(X, N)
    first = bench.during(lambda: found(X, N))["write"]
    assert bench.during(lambda: found(X[:1], N[:1]))["write"] == first  # the inputs, and no weight again


def test_launches_are_recorded_when_they_come_again(bench: Bench, tmp_path: Path) -> None:
    compiled = packaged(bench, tmp_path / "m.rlxpack")
    wanted = compiled(X, N)
    bench.driver.can_record = True
    found = rlx.load(tmp_path / "m.rlxpack", host=bench.host)
    for _ in range(4):
        expect_equal(found(X, N), wanted)
    assert [word for word, _ in bench.driver.records].count("record") == 1


def test_a_fault_names_the_node_and_leaves_the_program_usable(bench: Bench, tmp_path: Path) -> None:
    compiled = packaged(bench, tmp_path / "m.rlxpack")
    found = rlx.load(tmp_path / "m.rlxpack", host=bench.host)
    with pytest.raises(IndexRangeError, match="index 7 is outside an axis of 4") as caught:
        found(X, N + 7)
    assert any(fact.label == "node" for fact in caught.value.facts)
    expect_equal(found(X, N), compiled(X, N))


def test_another_device_of_the_language_builds_the_source(bench: Bench, tmp_path: Path) -> None:
    compiled = packaged(bench, tmp_path / "m.rlxpack", program=False)
    other = Bench(evolve(FACTS, name="Other"))
    found = rlx.load(tmp_path / "m.rlxpack", host=other.host)
    expect_equal(found(X, N), compiled(X, N))
    assert other.driver.built > 0


@pytest.mark.parametrize(
    ("less", "said"),
    [
        ({"alignment": 512}, "lies at multiples of 256 bytes, and Recorder needs 512"),
        ({"shared_nbytes": 1024}, "may share 32768 bytes in a group"),
        ({"unsupported": frozenset(("f32",))}, "computes with f32, which Recorder lacks"),
    ],
)
def test_a_device_that_has_less_is_passed_over_by_name(
    less: dict[str, Any], said: str, bench: Bench, tmp_path: Path
) -> None:
    packaged(bench, tmp_path / "m.rlxpack", program=False)
    with pytest.raises(FormatError, match="code alone"):
        rlx.load(tmp_path / "m.rlxpack", host=Bench(evolve(FACTS, **less)).host)
    reasons = reasons_of(tmp_path / "m.rlxpack", Bench(evolve(FACTS, **less)))
    assert said in reasons


def reasons_of(path: Path, bench: Bench) -> str:
    """Why the only code of a package is not for the device of a bench."""
    container = read_container(path)
    form = container.blobs.json(container.manifest["codes"][0][3])
    return str(backend_of(bench).reason_against_code(form, {}))


def backend_of(bench: Bench) -> Any:
    return rlx.compile(lambda x: x, rlx.spec("f32[1]"), target="fake", host=bench.host).executable.compiled.backend


def test_code_for_a_device_that_is_not_here_is_sources(bench: Bench, tmp_path: Path) -> None:
    """It was planned for what such devices usually are, and runs on one of those."""
    host = PluginHost([*bench.host.entries, given_entry(Unavailable(None))])
    compiled = rlx.compile(lambda w, x: rlx.sum(x * (w * 2), axis=1), W[0], rlx.spec("f32[3, 4]"), host=host)
    rlx.package(compiled, tmp_path / "m.rlxpack", ["nowhere:absent"])
    container = read_container(tmp_path / "m.rlxpack")
    form = container.blobs.json(container.manifest["codes"][0][3])
    assert [module["binary"] for module in form["modules"]] == [None] * len(form["modules"])
    here = backend_of(bench)
    program = here.unpack(form, container.blobs, {})(0, (rlx.spec("f32[3, 4]"),), (rlx.spec("f32[3]"),))
    np.testing.assert_allclose(program.run([X])[0], compiled(X), atol=1e-6)  # sums of four f32 near 1, in another order


def test_what_a_package_of_a_device_cannot_hold_is_refused(bench: Bench, tmp_path: Path) -> None:
    looping = bench.compile(lambda x: rlx.fori_loop(0, 3, lambda i, s: rlx.sin(s), x), rlx.spec("f32[4]"))
    with pytest.raises(NoKernelError, match="run from Python") as caught:
        rlx.package(looping, tmp_path / "m.rlxpack")
    assert "the host drives" in str(caught.value)
    compiled = bench.compile(model, W, rlx.spec("f32[3, 4]"), rlx.spec("i64[3]"))
    with pytest.raises(ConfigError, match="no code called avx2, only fake"):
        rlx.package(compiled, tmp_path / "m.rlxpack", "fake:avx2")
    with pytest.raises(DeviceError, match="there is 1, counted from 0"):
        rlx.package(compiled, tmp_path / "m.rlxpack", "fake:7")


def test_a_device_whose_launches_give_no_memory_says_so(bench: Bench, tmp_path: Path) -> None:
    """A package of another's kernels may ask for it."""
    packaged(bench, tmp_path / "m.rlxpack")
    container = read_container(tmp_path / "m.rlxpack")
    form = container.blobs.json(container.manifest["codes"][0][3])
    for program in form["programs"]:
        program["calls"][0]["dynamic_nbytes"] = 64 << 10
    plan = form["programs"][1]["plan"]
    types, outputs = (tuple(rlx.spec(each["type"]) for each in plan[name]) for name in ("inputs", "outputs"))
    with pytest.raises(DeviceError, match="a launch gives groups no memory, and is asked for 65536 bytes"):
        backend_of(bench).unpack(form, container.blobs, {})(1, types, outputs).run([X, N])


def test_a_form_that_speaks_of_what_is_not_there_is_refused(bench: Bench, tmp_path: Path) -> None:
    packaged(bench, tmp_path / "m.rlxpack")
    container = read_container(tmp_path / "m.rlxpack")
    form = container.blobs.json(container.manifest["codes"][0][3])
    functions = {name: None for module in form["modules"] for name in module["functions"]}
    good = form["programs"][1]
    PackedLaunches.from_json(good, "fake", container.blobs.nbytes, functions)
    call, plan = good["calls"][0], good["plan"]
    output = plan["outputs"][0]
    kind, number, _, strides = output["location"]
    for change in (
        {"plan": {**plan, "arena": -1}},
        {"plan": {**plan, "blobs": [10**6]}},
        {"plan": {**plan, "inputs": [{"name": "x", "type": "f32[n]"}]}},
        {"plan": {**plan, "outputs": [{**output, "location": [kind, number, 1 << 40, strides]}]}},
        {"plan": {**plan, "outputs": [{**output, "location": ["input", 0, 0, strides], "is_copied": False}]}},
        {"plan": {**plan, "outputs": [{**output, "location": None}]}},
        {"plan": {**plan, "outputs": json.loads("[3]")}},
        {"calls": [{**call, "faults": [{"message": "no label"}]}]},
        {"calls": [{**call, "function": "other"}]},
        {"calls": [{**call, "arguments": [["param", 99, 0]]}]},
        {"calls": [{**call, "arguments": [["status", 0, 0]]}]},
        {"calls": [{**call, "arguments": [["arena", 0, 1 << 40]]}]},
        {"calls": [{**call, "arguments": [["workspace", 0, 1 << 40]]}]},
        {"calls": [{**call, "groups": 0}]},
        {"calls": [{**call, "dynamic_nbytes": 1 << 40}]},
    ):
        with pytest.raises(FormatError):
            PackedLaunches.from_json({**good, **change}, "fake", container.blobs.nbytes, functions)
