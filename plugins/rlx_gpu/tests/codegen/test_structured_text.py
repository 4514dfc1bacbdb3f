"""The text of one structured template in every language; all of them on a Vulkan device."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from plugins.rlx_gpu.tests.codegen.executors import ON_LAVAPIPE
from plugins.rlx_gpu.tests.codegen.structured import Case, check
from plugins.rlx_gpu.tests.codegen.structured_cases import (
    ATTENTIONS,
    ATTENTIONS_SMALL,
    BACKWARDS_SMALL,
    ORDERS,
    ORDERS_SMALL,
    SCANS,
    SCANS_SMALL,
    extreme,
)
from rlx_core.ir.dtypes import f32
from rlx_gpu.codegen.cuda import CUDA, HIP
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.metal import METAL
from rlx_gpu.codegen.opencl import OPENCL
from rlx_gpu.codegen.sources import source_of
from rlx_gpu.codegen.walks import Machine
from rlx_gpu.codegen.wgsl import WGSL

EXPECTED = Path(__file__).parent / "expected"


@pytest.mark.parametrize("language", [OPENCL, CUDA, HIP, METAL, WGSL], ids=lambda language: language.name)
def test_the_text_is_the_expected_one(language: GpuDialect, pytestconfig: pytest.Config) -> None:
    """`pytest --update` writes it, and a person reads the difference."""
    case = extreme(f32, (3, 40, 1), Machine(group=32))
    machine = evolve(case.machine, subgroup=32) if language.exchanged_dtypes else case.machine
    source = source_of(evolve(case, machine=machine).printed(language).functions, language)
    path = EXPECTED / f"extreme{language.suffix}"
    if pytestconfig.getoption("--update"):
        path.write_text(source)
    assert source == path.read_text()


@pytest.mark.parametrize("cases", [ORDERS_SMALL, SCANS_SMALL, ATTENTIONS_SMALL], ids=["order", "scan", "attention"])
def test_a_vulkan_device_computes_what_problems_mean(cases: list[Case]) -> None:
    check(ON_LAVAPIPE, cases)


@pytest.mark.slow
@pytest.mark.parametrize(
    "cases", [ORDERS, SCANS, ATTENTIONS, BACKWARDS_SMALL], ids=["order", "scan", "attention", "backward"]
)
def test_a_vulkan_device_computes_every_kind_of_element(cases: list[Case]) -> None:
    check(ON_LAVAPIPE, cases)
