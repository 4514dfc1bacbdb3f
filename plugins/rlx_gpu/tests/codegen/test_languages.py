"""`GpuDialect` as an interface: what only some languages have is an optional capability."""

from __future__ import annotations

import re
from typing import Any

import attrs
from attrs import evolve

from plugins.rlx_gpu.tests.codegen import problems
from rlx_gpu.codegen.cuda import CUDA, CUDA_WGMMA, HIP
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.metal import METAL
from rlx_gpu.codegen.opencl import OPENCL
from rlx_gpu.codegen.products import print_product
from rlx_gpu.codegen.scalars import scalars_of
from rlx_gpu.codegen.walks import Machine
from rlx_gpu.codegen.wgsl import WGSL

VENDORS = re.compile(r"cuda|hip|metal|wgsl|opencl|warp|simd|wave|tensor_core|ptx", re.IGNORECASE)


def test_no_field_or_method_of_the_interface_is_named_after_a_technology() -> None:
    assert [name for name in vars(GpuDialect) if VENDORS.search(name)] == []
    assert [field.name for field in attrs.fields(GpuDialect) if VENDORS.search(field.name)] == []


def test_a_language_may_bring_its_own_template_of_products() -> None:
    """It is given the problem and itself; all other languages print the portable template."""
    problem, machine = problems.PRODUCTS[0], Machine()

    def template(problem: Any, language: GpuDialect, machine: Machine, scalars: Any) -> Any:
        calls.append((problem, language.name))
        return print_product(problem, OPENCL, machine, scalars)

    calls: list[tuple[Any, str]] = []
    language = evolve(OPENCL, name="acme", product_template=template)
    function = print_product(problem, language, machine, scalars_of(OPENCL))

    assert calls == [(problem, "acme")]
    assert function == print_product(problem, OPENCL, machine, scalars_of(OPENCL))
    assert [each.name for each in (CUDA, HIP, METAL, OPENCL, WGSL) if each.product_template is not None] == []
    assert CUDA_WGMMA.product_template is not None
