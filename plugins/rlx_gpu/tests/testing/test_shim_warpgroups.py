"""Products of warpgroups on the stand-in: each fence, wait and bit of a descriptor that a kernel lacks is found out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from attrs import evolve

from plugins.rlx_gpu.tests.codegen.problems import ProductCase, product_of
from rlx_core.device.driver import At
from rlx_core.emit.emitters import Emitted
from rlx_core.errors import DeviceUnavailableError
from rlx_core.ir.dtypes import bf16
from rlx_gpu.codegen.cuda import CUDA_WGMMA
from rlx_gpu.codegen.products import print_product
from rlx_gpu.codegen.scalars import scalars_of
from rlx_gpu.codegen.sources import source_of
from rlx_gpu.codegen.walks import Machine
from rlx_gpu.testing.shim.compiler import compiler
from rlx_gpu.testing.shim.dialects import CUDA_DIALECT
from rlx_gpu.testing.shim.driver import ShimDriver

try:
    compiler()
except DeviceUnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)

CASE = ProductCase(bf16, (), 128, 120, 392, is_rhs_transposed=True, machine=Machine(subgroup=32, many_groups=8))
"""Two warpgroups, a tile that is not full, and seven steps in three stages."""

Altered = Callable[[str], str]


def without(line: str) -> Altered:
    """A text that has not the first of these lines."""

    def altered(text: str) -> str:
        assert line in text, f"there is no {line}"
        return text.replace(line, "", 1)

    return altered


def replaced(line: str, by: str) -> Altered:
    def altered(text: str) -> str:
        assert line in text, f"there is no {line}"
        return text.replace(line, by)

    return altered


FAULTS: dict[str, tuple[Altered, str]] = {
    "hidden": (without("rlx_show_units();"), "not shown the unit by fence.proxy.async"),
    "hidden_by_one": (
        replaced("rlx_show_units();", "if (rlx_thread() != 77u) rlx_show_units();"),
        "not shown the unit",
    ),
    "shown_early": (
        lambda t: replaced("rlx_barrier();", "rlx_await_copies<1>(); rlx_barrier();")(
            without("rlx_await_copies<1>();")(t)
        ),
        "not shown the unit",
    ),
    "unfenced": (without("rlx_products_begin(sums);"), "without a wgmma.fence"),
    "changed": (
        replaced("rlx_products_begin(sums);", "rlx_products_begin(sums); sums.each[5] += 1.0f;"),
        "without a wgmma",
    ),
    "touched": (replaced("rlx_products_end();", "rlx_products_end(); sums.each[5] += 1.0f;"), "without a wgmma.fence"),
    "overwritten": (without("rlx_await_products(sums);"), "written before its product was waited for"),
    "apart": (without("rlx_barrier();"), "a factor in shared memory"),
    "based_elsewhere": (replaced(", 16384u)", ", 16384u) | (u64)1u << 49"), "a descriptor of a matrix"),
    "open": (without("rlx_products_end();"), "products that nobody waits for"),
    "alone": (
        replaced("rlx_products_end();", "rlx_products_end(); if (rlx_thread() < 32u) rlx_products_end();"),
        "not all threads of the warp",
    ),
    "uneven": (replaced("* 8192u + k * 16u", "* 8192u + k * 16u + rlx_thread() % 2u * 8u"), "a descriptor of a matrix"),
}
"""What a kernel's text lacks, and what is said of it."""


@pytest.fixture(scope="module")
def code() -> Emitted:
    made = print_product(product_of(CASE), CUDA_WGMMA, CASE.machine, scalars_of(CUDA_WGMMA))
    assert "rlx_await_copies<1>();" in made.functions[0].text
    return made


class Product:
    """The operands, and what is made of them."""

    def __init__(self, source: str) -> None:
        rng = np.random.default_rng(3)
        self.driver = ShimDriver(CUDA_DIALECT, "shim:0")
        self.module = self.driver.build(source)
        a, b = (rng.integers(-4, 5, s).astype(bf16.numpy) for s in ((CASE.m, CASE.k), (CASE.n, CASE.k)))
        self.wanted = (a.astype(np.float32) @ b.astype(np.float32).T).astype(bf16.numpy)
        self.operands = [self.driver.allocate(x.nbytes) for x in (a, b)]
        for memory, x in zip(self.operands, (a, b), strict=True):
            self.driver.write(memory, 0, x, waits=True)

    def run(self, code: Emitted, name: str, nbytes: int) -> np.ndarray:
        y = self.driver.allocate(self.wanted.nbytes)
        memory = [At(each, 0) for each in (*self.operands, y)]
        launch = self.driver.launch(self.module, name, code.calls[0].groups, code.calls[0].group_size, memory)
        self.driver.share(launch, nbytes)
        self.driver.submit([launch])
        found = np.empty_like(self.wanted)
        self.driver.read(y, 0, found)
        return found


@pytest.fixture(scope="module")
def product(code: Emitted) -> Product:
    """The kernel, and beside it those that lack something, under the fault's name."""
    (function,) = code.functions
    faulty = [
        evolve(function, name=name, text=altered(function.text).replace(function.name, name))
        for name, (altered, _) in FAULTS.items()
    ]
    return Product(source_of([function, *faulty], CUDA_WGMMA))


@pytest.mark.medium
def test_the_kernel_as_it_is_printed_multiplies(product: Product, code: Emitted) -> None:
    for _ in range(3):  # other orders of threads each time
        found = product.run(code, code.functions[0].name, code.calls[0].dynamic_nbytes)
        np.testing.assert_array_equal(found, product.wanted)


@pytest.mark.medium
@pytest.mark.parametrize("name", FAULTS)
def test_what_a_kernel_lacks_is_said(product: Product, code: Emitted, name: str) -> None:
    with pytest.raises(AssertionError, match=FAULTS[name][1]) as caught:
        product.run(code, name, code.calls[0].dynamic_nbytes)
    assert f"shim:0: {name}, group" in str(caught.value)


@pytest.mark.parametrize(
    ("nbytes", "said"),
    [(64 << 10, "not in memory which the group shares"), (228 << 10, f"{228 << 10} bytes of {227 << 10}")],
    ids=["less", "more"],
)
def test_memory_that_a_launch_did_not_ask_for_is_not_there(
    product: Product, code: Emitted, nbytes: int, said: str
) -> None:
    with pytest.raises(AssertionError, match=said):
        product.run(code, code.functions[0].name, nbytes)


@pytest.mark.parametrize(
    ("line", "by"),
    [
        pytest.param("stride = 1024u", "stride = 512u", id="stride"),
        *(
            pytest.param(line, by, id=name, marks=pytest.mark.slow)
            for name, line, by in (
                ("exchanged-64", "(u64)1u << 62", "(u64)2u << 62"),
                ("not-exchanged", "(u64)1u << 62", "(u64)0u"),
                ("start", "(start & 0x3ffffu) >> 4", "(start & 0x3ffffu) >> 3"),
                ("written-otherwise", "(column / 8u ^ row)", "(column / 8u)"),
            )
        ),
    ],
)
def test_a_descriptor_is_read_as_the_isa_says_and_not_as_ours_was_made(code: Emitted, line: str, by: str) -> None:
    product = Product(replaced(line, by)(source_of(code.functions, CUDA_WGMMA)))
    try:
        found = product.run(code, code.functions[0].name, code.calls[0].dynamic_nbytes)
    except AssertionError as error:
        assert "shared memory" in str(error) or "which the group shares" in str(error)  # noqa: PT017  # one of both is to be seen
    else:
        assert (found != product.wanted).mean() > 0.5


@pytest.mark.parametrize(
    ("width", "place", "k", "part", "leading", "stride", "mode"),
    [
        pytest.param(8, "column % 8u", "k * 2048u", 512, "2048u", 128, 0, id="none"),
        pytest.param(16, "(column / 8u ^ row / 4u) % 2u * 8u + column % 8u", "k * 2048u", 1024, "16u", 256, 3, id="32"),
        pytest.param(
            32,
            "(column / 8u ^ row / 2u) % 4u * 8u + column % 8u",
            "(k / 2u * 4096u + k % 2u * 16u)",
            *(2048, "16u", 512, 2),
            id="64",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_other_layouts_of_the_isa_are_read_too(
    code: Emitted, width: int, place: str, k: str, part: int, leading: str, stride: int, mode: int
) -> None:
    """Panels of fewer elements, in which runs of 16 bytes are exchanged with fewer others, or with none."""
    source = source_of(code.functions, CUDA_WGMMA)
    for line, by in (
        (
            "(column / 64u * rows + row) * 64u + (column / 8u ^ row) % 8u * 8u + column % 8u",
            f"(column / {width}u * rows + row) * {width}u + {place}",
        ),
        ("k * 16u", k),
        ("part * 4096u", f"part * {part}u"),
        ("leading = panel", f"leading = {leading}"),
        ("stride = 1024u", f"stride = {stride}u"),
        ("(u64)1u << 62", f"(u64){mode}u << 62"),
    ):
        source = replaced(line, by)(source)
    product = Product(source)
    np.testing.assert_array_equal(
        product.run(code, code.functions[0].name, code.calls[0].dynamic_nbytes), product.wanted
    )
