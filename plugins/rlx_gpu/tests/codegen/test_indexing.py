"""Every template at 2**31 and 2**32 elements: indices of 64 bits where they are needed, or a refusal; and no template has a rule
of its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve

import rlx_gpu.codegen as gpu
from plugins.rlx_gpu.tests.codegen.cases import printed
from plugins.rlx_gpu.tests.codegen.executors import ON_CUDA, ON_POCL, Executor
from plugins.rlx_gpu.tests.codegen.problems import ProductCase, product_of
from rlx_core.codegen.attention_scores import PlacedAttention
from rlx_core.codegen.ordering import Extreme, Keys, Search, Sorting
from rlx_core.codegen.places import Layout, Place
from rlx_core.codegen.scans import ScanProblem
from rlx_core.emit.emitters import Function
from rlx_core.ir.dtypes import DType, bf16, f32, i64
from rlx_core.ir.types import TensorType
from rlx_core.ops.activation import exp
from rlx_core.ops.attention import Attention, AttentionBackward
from rlx_core.ops.counting import ArgMax
from rlx_core.ops.cumulative import Cumsum
from rlx_core.ops.indexing import Gather, ScatterAdd
from rlx_core.ops.softmax import Softmax
from rlx_core.ops.sorting import SearchSorted
from rlx_core.ops.structural import Sum, Transpose
from rlx_gpu.codegen import indexing
from rlx_gpu.codegen.attention.backward import print_attention_backward
from rlx_gpu.codegen.attention.forward import print_attention
from rlx_gpu.codegen.attention.forward import refusal as attention_refusal
from rlx_gpu.codegen.cuda import CUDA, CUDA_WGMMA, HIP
from rlx_gpu.codegen.kernels import refusal as loops_refusal
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.lines import extremes, scans, searching, sorting
from rlx_gpu.codegen.metal import METAL
from rlx_gpu.codegen.opencl import OPENCL
from rlx_gpu.codegen.products import print_product
from rlx_gpu.codegen.scalars import scalars_of
from rlx_gpu.codegen.scatter import print_scatter
from rlx_gpu.codegen.scatter import refusal as scatter_refusal
from rlx_gpu.codegen.tiles import product_refusal
from rlx_gpu.codegen.walks import Machine
from rlx_gpu.codegen.wgsl import WGSL
from rlx_gpu.rows.scatter import problem_of
from tests.codegen.kernels import kernel

C_FAMILY = (OPENCL, CUDA, CUDA_WGMMA, HIP, METAL)

MACHINE = Machine(shared_nbytes=48 << 10)

Refuse = Callable[[GpuDialect], str | None]
Print = Callable[[GpuDialect, Machine], tuple[Function, ...]]


def place(dtype: DType, *shape: int) -> Place:
    return Place.dense(TensorType(dtype, shape))


def product(dtype: DType, m: int, n: int, k: int, batch: tuple[int, ...] = ()) -> tuple[Refuse, Print]:
    problem = product_of(ProductCase(dtype, batch, m, n, k))
    return (
        lambda language: product_refusal(problem, language),
        lambda language, machine: print_product(problem, language, machine, scalars_of(language)).functions,
    )


def attention(dtype: DType, batch: int, heads: int, length: int, *, is_backward: bool = False) -> tuple[Refuse, Print]:
    tokens = place(dtype, batch, length, heads * 128)
    make, count = (AttentionBackward, 4) if is_backward else (Attention, 3)
    op = make(num_heads=heads, head_dim=128, mask_kind="causal")
    operands = (*(tokens,) * count, None, None)
    problem = PlacedAttention.of(op, Layout(operands, (tokens,) * (3 if is_backward else 1)))
    write = print_attention_backward if is_backward else print_attention
    return (
        lambda language: attention_refusal(problem, language, scalars_of(language)),
        lambda language, machine: write(problem, language, machine, scalars_of(language)).functions,
    )


def scatter(rows: int, columns: int, updates: int) -> tuple[Refuse, Print]:
    layout = Layout((place(f32, updates, columns), place(i64, updates)), (place(f32, rows, columns),))
    problem = problem_of(ScatterAdd(size=rows), layout)
    return (
        lambda language: scatter_refusal(problem, language),
        lambda language, machine: print_scatter(problem, language, machine, scalars_of(language)).functions,
    )


def loops(op: object, *types: str) -> tuple[Refuse, Print]:
    one = kernel(op, *types)  # type: ignore[arg-type]
    return (
        lambda language: loops_refusal(one, language, scalars_of(language)),
        lambda language, machine: printed(one, language, machine).functions,
    )


def lines(module: object, write: str, problem: object, *, has_scalars: bool = False) -> tuple[Refuse, Print]:
    def refuse(language: GpuDialect) -> str | None:
        more = (scalars_of(language),) if has_scalars else ()
        return module.refusal(problem, language, *more)  # type: ignore[attr-defined, no-any-return]

    def written(language: GpuDialect, machine: Machine) -> tuple[Function, ...]:
        return getattr(module, write)(problem, language, machine, scalars_of(language)).functions  # type: ignore[no-any-return]

    return refuse, written


def cases(near: bool) -> dict[str, tuple[Refuse, Print]]:
    """Problems a little below 2**31 elements, or at 2**31, at 2**32 and a little beyond."""
    rows = 1 << 15 if near else (1 << 16) + 1
    n = (1 << 15) - 8 if near else 1 << 16
    size = f"f32[{rows}, {n}]"
    keys = Keys(f32)
    return {
        "product": product(f32, rows, n, 64),
        "product of a large operand": product(f32, 64, rows, n),
        "product by units": product(bf16, rows, n, 256),
        "product of batches": product(f32, 16, 16, 16, (rows * n // 256,)),
        "attention": attention(bf16, 2 if near else 33, 64, 8192),
        "attention of f32": attention(f32, 2 if near else 33, 64, 8192),
        "attention backward": attention(bf16, 2 if near else 33, 64, 8192, is_backward=True),
        "attention backward of f32": attention(f32, 2 if near else 33, 64, 8192, is_backward=True),
        "scatter of few": scatter(rows, n, 8),
        "scatter of many": scatter(rows, n, 500),
        "points": loops(exp.op(), size),
        "row": loops(Softmax(), size),
        "sum of all": loops(Sum(axes=(0, 1)), size),
        "moved": loops(Transpose((1, 0)), size),
        "gathered": loops(Gather(0), size, "i64[3]"),
        "sort": lines(sorting, "print_sorting", Sorting(keys, rows, n, 1, n, i64, has_values=True)),
        "extreme": lines(extremes, "print_extreme", Extreme.of(ArgMax(axis=1), TensorType(f32, (rows, n)))),
        "search": lines(
            searching, "print_search", Search.of(SearchSorted(), TensorType(f32, (rows, n)), TensorType(f32, (rows, 3)))
        ),
        "scan": lines(
            scans, "print_scan", ScanProblem.of(Cumsum(axis=1), TensorType(f32, (rows, n))), has_scalars=True
        ),
    }


FAR, NEAR = cases(near=False), cases(near=True)

_DECLARED = re.compile(r"\bu64 (\w+)(?= =|;)")
_LOOP = re.compile(r"for \(u32 \w+ = [^;]*; \w+ < (\d+)u; \w+ \+= (\d+)u\)")


def test_a_loop_of_32_bits_ends() -> None:
    """The counter of a loop must reach its end without wrapping around."""
    for name, (_, write) in FAR.items():
        for language in C_FAMILY:
            machine = evolve(MACHINE, subgroup=32) if language.exchanged_dtypes else MACHINE
            for function in write(language, machine):
                for end, step in _LOOP.findall(function.text):
                    assert int(end) + int(step) < 1 << 32, (name, language.name, function.text)


@pytest.mark.parametrize("language", C_FAMILY, ids=lambda language: language.name)
@pytest.mark.parametrize("name", FAR)
def test_what_lies_beyond_32_bits_is_reached_with_64(name: str, language: GpuDialect) -> None:
    """In every function that multiplies its way to an element beyond 2**31, an index has 64 bits."""
    refuse, write = FAR[name]
    assert refuse(language) is None
    machine = evolve(MACHINE, subgroup=32) if language.exchanged_dtypes else MACHINE
    functions = write(language, machine)
    assert any("(u64)" in f.text or _DECLARED.search(f.text) for f in functions), name
    near = [f.text for f in NEAR[name][1](language, machine)]
    assert not any("+ (u64)(" in text or "u64 i =" in text for text in near), "32 bits are enough"


@pytest.mark.parametrize("name", FAR)
def test_a_language_without_64_bits_refuses(name: str) -> None:
    assert FAR[name][0](WGSL) is not None
    if NEAR[name][0](WGSL) is not None:
        assert "elements" not in str(NEAR[name][0](WGSL))


def test_only_what_is_computed_is_bounded() -> None:
    """Scores are never numbered, so attention is not refused for their number."""
    refuse, write = attention(bf16, 1, 32, 16384)
    for language in (*C_FAMILY, WGSL):
        assert refuse(language) is None or "bf16" in str(refuse(language))
    text = "\n".join(f.text for f in write(CUDA, evolve(MACHINE, subgroup=32)))
    assert "(u64)(batch)" not in text, "operands of less than 2**31 elements need 32 bits"


@pytest.mark.parametrize("subgroup", [32, 64])
@pytest.mark.parametrize("width", [32, 40, 48, 64, 96, 128, 200, 256])
@pytest.mark.parametrize("language", [CUDA, HIP], ids=lambda language: language.name)
def test_a_row_is_reduced_by_whole_subgroups(language: GpuDialect, width: int, subgroup: int) -> None:
    """A group has no fewer threads than a subgroup, so that no shared array is empty and every exchange has a partner."""
    machine = evolve(MACHINE, subgroup=subgroup)
    for dtype in ("f32", "bf16"):
        for op in (Softmax(), Sum(axes=(1,))):
            code = printed(kernel(op, f"{dtype}[4096, {width}]"), language, machine)
            for function, call in zip(code.functions, code.calls, strict=True):
                exchanges = [int(d) for d in re.findall(r"rlx_exchange\(\w+, (\d+)u\)", function.text)]
                assert "[0]" not in re.findall(r"shared0\[\d+\]", function.text)
                assert not re.search(r"shared\d+\[0\];", function.text)
                if exchanges:
                    assert call.group_size % subgroup == 0
                    assert max(exchanges) == subgroup // 2


def test_no_template_has_a_rule_of_its_own() -> None:
    """`indexing` alone says where indices of 32 bits end, and nothing accesses memory with a type that it did not say."""
    root = Path(gpu.__file__).parent
    for path in sorted(root.rglob("*.py")):
        if path.name == "indexing.py":
            continue
        text = path.read_text()
        for node in ast.walk(ast.parse(text)):
            is_shift = isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift)
            if is_shift and isinstance(node.right, ast.Constant) and isinstance(node.left, ast.Constant):  # type: ignore[attr-defined]
                assert (node.left.value << node.right.value) not in (1 << 31, 1 << 32), path  # type: ignore[attr-defined]
            if isinstance(node, ast.Constant) and isinstance(node.value, int):
                assert node.value not in (1 << 31, 1 << 32), path
        assert 'Memory(b, "u32")' not in text, path
        if "assembled(" in text and path.name != "functions.py":
            assert "index" in text, f"{path} asks for no type of index"


@pytest.mark.parametrize("executor", [ON_POCL, ON_CUDA], ids=repr)
def test_indices_of_64_bits_are_right(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small problems with the limit at 4 elements compute through 64-bit indices what they do through 32."""
    monkeypatch.setattr(indexing, "INDEX_LIMIT", 4)
    language, machine = executor.language, executor.machine(Machine(group=32, most_groups=2))
    rng = np.random.default_rng(3)
    problem = product_of(ProductCase(f32, (2,), 9, 10, 11))
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 9, 11), (2, 11, 10)))
    y, bias = np.zeros((2, 9, 10), np.float32), np.zeros(10, np.float32)
    multiplied = print_product(problem, language, machine, scalars_of(language))
    layout = Layout((place(f32, 6, 3), place(i64, 6)), (place(f32, 5, 3),))
    scattered = print_scatter(problem_of(ScatterAdd(size=5), layout), language, machine, scalars_of(language))
    assert all("(u64)" in f.text for f in (*multiplied.functions, *scattered.functions))
    programs = executor.programs([multiplied, scattered])
    programs.run(multiplied, [x.reshape(-1).view(np.uint8) for x in (a, b, bias, y)])
    np.testing.assert_allclose(y, a @ b, rtol=1e-5, atol=1e-5)
    updates, index = rng.standard_normal((6, 3)).astype(np.float32), np.array([4, 0, 4, 2, 2, 4])
    found, expected = np.zeros((5, 3), np.float32), np.zeros((5, 3), np.float32)
    np.add.at(expected, index, updates)
    programs.run(scattered, [x.reshape(-1).view(np.uint8) for x in (updates, index, found)])
    np.testing.assert_array_equal(found, expected)
