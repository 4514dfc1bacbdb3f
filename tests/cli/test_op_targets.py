"""`rlx ops --targets`: how each op runs on each target."""

from __future__ import annotations

import importlib.util

import pytest

HOW = {"generated", "structured", "library", "host", "view", "decomposed", "absent"}


@pytest.mark.slow
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("rlx_cpu", "llvmlite")),
    reason="it asks for native kernels: rlx-cpu or llvmlite is not installed",
)
def test_every_op_has_a_way_or_a_reason_on_every_target(acme) -> None:
    found = acme("--plugin", "cpu=rlx_cpu.plugin", "ops", "--targets", "--json").json
    assert found["targets"] == {"cpu": "cpu", "toy": "toy"}
    assert len(found["ops"]) > 100
    for op, cells in found["ops"].items():
        assert set(cells) == set(found["targets"]), op
        for target, cell in cells.items():
            assert cell["how"] in HOW
            assert cell["how"] != "absent" or cell["reason"], (op, target)
    ops = found["ops"]
    assert ops["rlx.exp"]["cpu"]["how"] == "generated"
    assert ops["rlx.matmul"]["cpu"]["how"] == "structured"
    assert ops["rlx.dense_solve"]["cpu"]["how"] == "structured"
    assert ops["rlx.angle"]["cpu"]["how"] == "generated"
    assert ops["rlx.batch_norm"]["cpu"]["how"] == "decomposed"
    assert ops["rlx.checkpoint_name"]["cpu"]["how"] == "decomposed"  # into its operand
    assert ops["rlx.stop_gradient"]["cpu"]["how"] == "view"


@pytest.mark.slow
def test_the_table_has_a_letter_for_each_and_says_why_there_is_none(acme) -> None:
    """The toy target has kernels for two ops, the first of which takes only one of its samples."""
    said = acme("ops", "--targets", "acme").out
    assert next(line for line in said.splitlines() if line.startswith("acme.double")).split() == ["acme.double", "S"]
    found = acme("ops", "--targets", "--json").json["ops"]
    assert found["acme.double"]["toy"] == {"how": "structured", "kernel": "double_eight", "reason": "", "refused": {}}
    assert found["rlx.exp"]["toy"]["how"] == "absent"
    assert found["rlx.exp"]["toy"]["reason"]
    host = {"how": "host", "kernel": "host", "reason": "it calls a Python function", "refused": {}}
    assert found["rlx.pure_callback"]["toy"] == found["rlx.debug_callback"]["toy"] == host


GPU = """
    @hookimpl
    def rlx_availability(): return "no driver"

    @hookimpl
    def rlx_backends(): return [BackendSpec("gpu", "gpu_things:Gpu")]
"""
GPU_THINGS = """
from rlx_core.errors import DeviceUnavailableError
from rlx_core.kit import DeviceFacts, Level
from rlx_gpu.kit import OPENCL, GpuBackend

class Gpu(GpuBackend):
    name = "gpu"
    dialect = OPENCL
    level = Level("opencl", "OpenCL C", comment="//")
    usual = DeviceFacts("a GPU", "none", 1 << 30, 1 << 30)

    def found(self, options):
        raise DeviceUnavailableError("gpu: no driver")
"""


@pytest.mark.skipif(
    importlib.util.find_spec("rlx_gpu") is None, reason="the target takes OpenCL C: rlx-gpu is not installed"
)
def test_a_target_that_is_not_here_is_asked_without_its_device(rlx) -> None:
    """Its code is printed on any machine, so what it has kernels for is known on any."""
    (rlx.place / "gpu_things.py").write_text(GPU_THINGS)
    rlx.install("gpu", GPU)
    found = rlx("ops", "softmax", "--targets", "--json").json

    assert found["targets"] == {"gpu": "gpu:absent"}
    assert found["ops"]["rlx.softmax"]["gpu"]["how"] == "generated"
    assert "gpu is not here: asked as gpu:absent" in rlx("ops", "softmax", "--targets").out


def test_a_kind_of_number_that_nothing_runs_shows_beside_the_letter_of_another(rlx) -> None:
    (rlx.place / "gpu_things.py").write_text(GPU_THINGS)
    rlx.install("gpu", GPU)
    found = rlx("ops", "tanh", "--targets", "--json").json["ops"]

    cell = found["rlx.tanh"]["gpu"]
    assert (cell["how"], list(cell["refused"])) == ("generated", ["complex numbers"])
    assert "c64" in cell["refused"]["complex numbers"]
    said = rlx("ops", "tanh", "--targets").out
    assert next(line for line in said.splitlines() if line.startswith("rlx.tanh")).split() == ["rlx.tanh", "G*"]
    assert "rlx.atanh of complex numbers" in said


def test_what_becomes_its_operand_runs_and_an_op_that_is_tried_in_f64_alone_is_asked_in_f32(rlx) -> None:
    (rlx.place / "gpu_things.py").write_text(GPU_THINGS.replace("OPENCL", "METAL").replace("opencl", "metal", 1))
    rlx.install("gpu", GPU)

    cells = rlx("ops", "decoder_block", "--targets", "--json").json["ops"]
    assert cells["rlx.llama_decoder_block"]["gpu"]["how"] == "decomposed"


def test_a_target_that_cannot_be_asked_at_all_has_its_reason_in_every_cell(broken) -> None:
    found = broken("ops", "acme", "--targets", "--json").json
    cell = found["ops"]["acme.double"]["nodriver"]
    assert cell["how"] == "absent"
    assert "no driver" in cell["reason"]
