"""Printed functions of every template compile for devices that are not here: by NVRTC for NVIDIA's, by clang for AMD's."""

from __future__ import annotations

import ctypes
import importlib.metadata
import itertools
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from attrs import evolve

from plugins.rlx_gpu.tests.codegen import problems
from plugins.rlx_gpu.tests.codegen.cases import MACHINES, kernels, printed
from plugins.rlx_gpu.tests.codegen.structured import functions_of as structured_functions
from plugins.rlx_gpu.tests.codegen.structured_cases import (
    ATTENTIONS,
    BACKWARDS_SMALL,
    ORDERS_SMALL,
    ROOMY,
    SCANS_SMALL,
    UNIT_ATTENTIONS,
    UNIT_ATTENTIONS_OF_F32,
    UNIT_BACKWARDS,
    UNIT_BACKWARDS_OF_F32,
    attention,
)
from rlx_core.emit.emitters import Function
from rlx_core.ir.dtypes import bf16, f16, f32
from rlx_core.ops.attention import AttentionBackward
from rlx_gpu.codegen.cuda import CUDA, CUDA_TF32, CUDA_TURING, CUDA_WGMMA, HIP
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.opencl import OPENCL
from rlx_gpu.codegen.products import print_product
from rlx_gpu.codegen.scalars import scalars_of
from rlx_gpu.codegen.scatter import print_scatter
from rlx_gpu.codegen.sources import source_of
from rlx_gpu.codegen.walks import Machine

AMD = ("gfx90a", "gfx942", "gfx1100")


def functions_of(language: GpuDialect, step: int) -> list[Function]:
    """Every `step`-th sample in all walks, and all templates."""
    machines = [evolve(m, subgroup=32) if language.exchanged_dtypes else m for m in MACHINES.values()]
    found = [f for m in machines for k in kernels(language)[::step] for f in printed(k, language, m).functions]
    scalars, usual = scalars_of(language), machines[0]
    found += [f for p in problems.PRODUCTS for f in print_product(p, language, usual, scalars).functions]
    found += structured_functions([*ORDERS_SMALL, *SCANS_SMALL, *ATTENTIONS, *BACKWARDS_SMALL], language)
    if language.matrix_unit is not None:
        on_units = [
            evolve(case, machine=evolve(case.machine, subgroup=32)) for case in (*UNIT_ATTENTIONS, *UNIT_BACKWARDS)
        ]
        found += structured_functions(on_units, language)
    if language is CUDA:
        found += functions_in_tf32(evolve(usual, subgroup=32, shared_nbytes=48 << 10))
    return found + [
        f
        for p in problems.SCATTERS
        for machine in (usual, evolve(usual, few_updates=0))
        for f in print_scatter(p, language, machine, scalars).functions
    ]


def functions_in_tf32(machine: Machine) -> list[Function]:
    """Products and attention of f32 by units, with as many features as there is room for."""
    large = problems.ProductCase(f32, (), 4096, 4096, 1024, has_epilogue=True)
    products = [problems.product_of(case) for case in (*problems.UNIT_CASES_OF_F32, large)]
    wide = [attention(AttentionBackward, ROOMY, *["f32[1, 64, 80]"] * 3, num_heads=1, head_dim=80, mask_kind="causal")]
    heads = [UNIT_ATTENTIONS_OF_F32[0], *UNIT_ATTENTIONS_OF_F32[2:], *UNIT_BACKWARDS_OF_F32[:3:2], *wide]
    on_units = [evolve(case, machine=evolve(case.machine, subgroup=32)) for case in heads]
    found = [f for p in products for f in print_product(p, CUDA_TF32, machine, scalars_of(CUDA_TF32)).functions]
    return found + structured_functions(on_units, CUDA_TF32)


def nvrtc() -> ctypes.CDLL:
    try:
        files = importlib.metadata.files("nvidia-cuda-nvrtc") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("needs NVRTC: pip install nvidia-cuda-nvrtc")
    library = next(f for f in files if f.name.startswith("libnvrtc.so"))
    return ctypes.CDLL(str(Path(str(library.locate()))))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "step"),
    [("sm_75", 90), ("sm_80", 15), ("sm_90", 15), ("sm_90a", 90), ("sm_100", 90), ("sm_120", 15)],
)
def test_cuda_compiles_without_a_device_and_spills_no_registers(architecture: str, step: int) -> None:
    dialect = CUDA_TURING if architecture == "sm_75" else CUDA
    expect_no_spills(functions_of(dialect, step), architecture)


@pytest.mark.slow
def test_products_of_warpgroups_overlap_and_two_groups_have_registers() -> None:
    """What ptxas cannot let run behind the threads' back it says (C7510 on), and waits for each."""
    cases = [
        *problems.WARPGROUP_CASES,
        *(
            problems.ProductCase(dtype, (), 4096, 4096, 1024, lhs, rhs, has_epilogue=dtype is bf16)
            for dtype, lhs, rhs in itertools.product((f16, bf16), (False, True), (False, True))
        ),
    ]
    machine, scalars = Machine(subgroup=32, shared_nbytes=48 << 10), scalars_of(CUDA_WGMMA)
    functions = [
        f for case in cases for f in print_product(problems.product_of(case), CUDA_WGMMA, machine, scalars).functions
    ]
    log = expect_no_spills(functions, "sm_90a")
    assert "C75" not in log, log
    large = {f.name for f, case in zip(functions, cases, strict=True) if case.m == 4096}
    used = dict(re.findall(r"Function properties for (\w+)\n.*\n.*Used (\d+) registers", log))
    assert large <= used.keys()
    assert max(int(used[name]) for name in large) <= 128  # 65536 for two groups of 256 threads


def expect_no_spills(functions: list[Function], architecture: str) -> str:
    """Compile functions of CUDA C, and give what the compiler says."""
    library, program = nvrtc(), ctypes.c_void_p()
    source = source_of(functions, CUDA).encode()
    assert library.nvrtcCreateProgram(ctypes.byref(program), source, b"rlx.cu", 0, None, None) == 0
    given = (f"--gpu-architecture={architecture}", "-w", "--ptxas-options=-v", *CUDA.options)
    options = [each.encode() for each in given]
    status = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    assert status == 0, log.value.decode()[:2000]
    said = r"Function properties for (\w+)\n.* (\d+) bytes spill stores, (\d+) bytes spill loads"
    spilled = {name: (int(stores), int(loads)) for name, stores, loads in re.findall(said, log.value.decode())}
    assert spilled.keys() >= {f.name for f in functions}
    assert {f.name: spilled[f.name] for f in functions if max(spilled[f.name]) > most_spilled(f)} == {}
    return log.value.decode()


def most_spilled(function: Function) -> int:
    """Return the bytes that a function may store and load again: a call of the subroutine for division and roots of f64 saves
    registers (20 bytes on sm_90)."""
    has_calls = "f64" in function.text and (" / " in function.text or "sqrt(" in function.text)
    return 32 if has_calls else 0


def clang() -> str:
    found = next((found for name in ("clang", "clang-19", "clang-14") if (found := shutil.which(name))), None)
    if found is None:
        pytest.skip("needs clang: apt-get install clang-19")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("device", AMD)
def test_hip_becomes_instructions_of_amds_devices(device: str, tmp_path: Path) -> None:
    """Those of 64 threads in step (gfx9) and of 32; functions of mathematics, which are ROCm's, stay calls."""
    source, made = tmp_path / "rlx.hip", tmp_path / "rlx.s"
    source.write_text(source_of(functions_of(HIP, 15), HIP))
    target = ["--offload-device-only", f"--offload-arch={device}", "-nogpuinc", "-nogpulib"]
    header = ["-include", str(Path(__file__).with_name("hip_stub.h"))]
    command = [clang(), "-x", "hip", *target, *header, *HIP.options, "-w", "-O1", "-S", str(source), "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]
    assert f"amdgcn-amd-amdhsa--{device}" in made.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("device", AMD)
def test_opencl_compiles_for_devices_of_amd(device: str, tmp_path: Path) -> None:
    source = tmp_path / "rlx.cl"
    source.write_text(source_of(functions_of(OPENCL, 15), OPENCL))
    target = ["-target", "amdgcn-amd-amdhsa", f"-mcpu={device}", "-nogpulib", "-c", "-w", "-O1", "-emit-llvm"]
    command = [clang(), "-x", "cl", "-cl-std=CL1.2", *target, str(source), "-o", str(tmp_path / "rlx.bc")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]
