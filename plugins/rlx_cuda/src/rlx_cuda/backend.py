"""The target `cuda`: NVIDIA GPUs programmed in CUDA C, which NVRTC compiles to PTX and CUBIN."""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Final

from attrs import evolve

from rlx_core.device.device import Device
from rlx_core.device.diagnostics import Diagnostics, Sanitizer
from rlx_core.device.driver import DeviceFacts
from rlx_core.emit.backend import adopted
from rlx_core.emit.emitters import Language
from rlx_core.emit.table import LIBRARY, DeviceTable
from rlx_core.errors import ConfigError
from rlx_core.ir.dtypes import bf16, f16, f32
from rlx_core.pipeline.backend import Level, Target
from rlx_core.pipeline.kernels import Condition, Kernel, KernelTable, emitter_of
from rlx_cuda import library, nvrtc
from rlx_cuda.nvrtc import HOPPER
from rlx_cuda.product_layouts import NUMBERS
from rlx_cuda.products import library_product_rows
from rlx_gpu.backend import GpuBackend
from rlx_gpu.codegen.cuda import CUDA, CUDA_TF32, CUDA_TURING, CUDA_WGMMA
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.language import GpuLanguage
from rlx_gpu.rows.attention import attention_unit_rows
from rlx_gpu.rows.products import product_rows, warpgroup_product_rows

USUAL: Final = "sm_90"
"""The default architecture if neither an option nor a device specifies one."""


PRODUCTS: Final = ("generated", "library")
"""Values of the option `cuda.products`: which implementation multiplies matrices."""


DIALECTS: Final = {"tf32": CUDA_TF32, "wgmma": CUDA_WGMMA}
"""The GPU dialect that each option selects, by the option's name."""

IS_F32: Final = Condition("factors of f32", lambda node: next(node.present()).dtype is f32)


@cache
def with_products(
    kernels: KernelTable, products: str, in_tf32: GpuLanguage | None, in_wgmma: GpuLanguage | None
) -> KernelTable:
    """Return the kernel table of a device with the selected matrix products in front of its rows.

    Args:
        products: The implementation of matrix products, one of `PRODUCTS`.
        in_tf32: The language in which products of f32 are rounded to TF32; `None` if TF32 is off.
        in_wgmma: The language in which warpgroups multiply f16 and bf16; `None` if wgmma is off.
    """

    def fill(table: KernelTable) -> None:
        rows = DeviceTable(kernels.target, plugin=kernels.plugin)
        if products == "library":
            if in_tf32 is not None:
                library_product_rows(rows, {f32}, tf32=True)
            library_product_rows(rows, NUMBERS.keys() - ({f32} if in_tf32 is not None else set()))
        if in_tf32 is not None:
            product_rows(rows, in_tf32, (IS_F32,), "_tf32")
            attention_unit_rows(rows, in_tf32, (IS_F32,), "_tf32")
        if in_wgmma is not None:
            warpgroup_product_rows(rows, in_wgmma)
        table.merge(rows)
        table.merge(kernels)

    return KernelTable(kernels.target, plugin=kernels.plugin, fill=fill)


def adopted_without_library(row: Kernel) -> Kernel | None:
    """Return a plugin kernel as a row of a device without library, or `None` if the kernel needs the library."""
    return None if row.tier == LIBRARY and emitter_of(row.run) is not None else adopted(row)


class CudaBackend(GpuBackend):
    """The backend for NVIDIA GPUs."""

    name = "cuda"
    dialect = CUDA
    level = Level("cuda", "CUDA C", comment="//")
    library_features = frozenset((library.FEATURE,))
    usual = DeviceFacts(
        name="an NVIDIA GPU",
        driver="none",
        memory_nbytes=16 << 30,
        largest_buffer=16 << 30,
        group_size=1024,
        shared_nbytes=48 << 10,
        subgroup=32,
        unsupported=frozenset(("c64", "c128")),
        features=nvrtc.units_of(USUAL) | {library.FEATURE},
    )
    """The minimum properties of recent NVIDIA GPUs."""
    diagnostics: ClassVar[Diagnostics] = Diagnostics(
        variables=("CUDA_", "NVIDIA_"),
        tools=(("nvidia-smi", "-q"),),
        sanitizer=Sanitizer(
            "compute-sanitizer",
            ("memcheck", "racecheck", "synccheck", "initcheck"),
            ("--tool", "{tool}", "--error-exitcode", "9"),
        ),
        dlpack_libraries=("torch", "jax.numpy", "cupy"),
    )
    below = (
        Level("ptx", "NVIDIA's virtual instructions", comment="//"),
        Level("cubin", "a device's own code, in base64, with the registers that it takes", comment="#"),
    )

    def __init__(self, number: int = 0) -> None:
        super().__init__(number)
        self._languages: dict[tuple[Device, str], GpuLanguage] = {}

    def found(self, options: Mapping[str, Any]) -> Sequence[Device]:
        from rlx_cuda import discovery  # code is printed without the device's library

        return discovery.wanted(options)

    def dialect_of(self, device: Device) -> GpuDialect:
        return CUDA if nvrtc.AMPERE in device.facts.features else CUDA_TURING

    def rows(self, table: DeviceTable, language: Language) -> None:
        assert isinstance(language, GpuLanguage), "it is what this backend made"
        if library.FEATURE in language.features:
            library.library_rows(table)
        super().rows(table, language)

    def target_for(self, options: Mapping[str, Any]) -> Target:
        target, products = super().target_for(options), str(options.get("cuda.products", "generated"))
        if nvrtc.AMPERE in self.device(options).facts.features:
            target = evolve(target, fast_products=(f16, bf16))  # matrix units; f32 products are exact, without them
        tf32, wgmma = (bool(options.get(f"cuda.{name}", False)) for name in ("tf32", "wgmma"))
        device = self.device(options)
        has_library = library.FEATURE in device.facts.features
        if not has_library:
            target = evolve(target, adopt=adopted_without_library)
        if products not in PRODUCTS:
            raise ConfigError(f"cuda.products: {products!r} is neither of {' and '.join(PRODUCTS)}")
        if products == "generated" and not tf32 and not wgmma:
            return target
        if wgmma and HOPPER not in device.facts.features:
            raise ConfigError(
                f"cuda.wgmma: {device.name} ({device.facts.name}) is not known to be of {HOPPER}",
                hint=f"to print code for one: --arch {HOPPER}",
            )
        if tf32 and nvrtc.AMPERE not in device.facts.features:
            raise ConfigError(f"cuda.tf32: {device.name} ({device.facts.name}) has no matrix units for TF32")
        if products == "library" and not has_library:
            raise ConfigError(
                f"cuda.products: {device.name} ({device.facts.name}) has no library",
                hint='cuda.products = "generated"',
            )
        in_tf32, in_wgmma = (self._in(device, name) if on else None for name, on in (("tf32", tf32), ("wgmma", wgmma)))
        properties = {**target.properties, **({"wgmma": "on"} if wgmma else {})}
        kernels = with_products(target.kernels, products, in_tf32, in_wgmma)
        return evolve(target, kernels=kernels, properties=properties)

    def _in(self, device: Device, name: str) -> GpuLanguage:
        """Return the language of a device for the option `name` of `DIALECTS`; one cached object for each pair."""
        if (device, name) not in self._languages:
            self._languages[device, name] = self.language_in(DIALECTS[name], device)
        return self._languages[device, name]

    def usual_for(self, options: Mapping[str, Any]) -> DeviceFacts:
        return evolve(self.usual, features=nvrtc.units_of(str(options.get("cuda.arch", USUAL))) | {library.FEATURE})

    def kernel_features(self, target: Target) -> frozenset[str]:
        features = super().kernel_features(target)
        return features if "wgmma" in target.properties else features - {HOPPER}

    def translated(self, source: str, level: str, device: Device, options: Mapping[str, Any]) -> str:
        device_architecture = device.facts.driver.rpartition(" ")[2]
        architecture = str(options.get("cuda.arch", "")) or (
            device_architecture if device_architecture.startswith(("sm_", "compute_")) else USUAL
        )
        number = architecture.removeprefix("sm_").removeprefix("compute_")
        known = [str(each) for each in nvrtc.architectures()]
        if number not in known and number.rstrip("af") not in known:
            raise ConfigError(
                f"cuda.arch: {architecture!r} is no architecture that NVRTC {nvrtc.version()} compiles for",
                hint=f"one of {', '.join(f'sm_{each}' for each in known)}",
            )
        compiled = nvrtc.compiled(source, f"compute_{number}" if level == "ptx" else f"sm_{number}", CUDA.options)
        if level == "ptx":
            return compiled.code.decode().rstrip("\0")
        used = "".join(f"# {name}: {usage}\n" for name, usage in compiled.usage.items())
        return used + textwrap.fill(base64.b64encode(compiled.code).decode(), 120) + "\n"
