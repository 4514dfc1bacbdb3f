"""WGSL functions executed by wgpu-py on the Vulkan device that there is: in tests Mesa's lavapipe, on the processor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from rlx_core.codegen.faults import NO_FAULT, SITE_WORDS, Report, report_of
from rlx_core.emit.emitters import Emitted
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.sources import source_of
from rlx_gpu.codegen.wgsl import WGSL

wgpu = pytest.importorskip("wgpu", reason="needs a WebGPU device: pip install wgpu")

ALIGNMENT = 256


@lru_cache(maxsize=1)
def _device() -> Any:
    adapters = [a for a in wgpu.gpu.enumerate_adapters_sync() if a.info["backend_type"] == "Vulkan"]
    if not adapters:
        pytest.skip("needs a Vulkan device: apt-get install mesa-vulkan-drivers")
    return adapters[0].request_device_sync()


class Programs:
    """The functions of many kernels; each is a module of its own."""

    def __init__(self, printed: Iterable[Emitted]) -> None:
        device, stage = _device(), wgpu.ShaderStage.COMPUTE
        kinds = [wgpu.BufferBindingType.storage, wgpu.BufferBindingType.uniform, wgpu.BufferBindingType.storage]
        entries = [{"binding": i, "visibility": stage, "buffer": {"type": k}} for i, k in enumerate(kinds)]
        self.layout = device.create_bind_group_layout(entries=entries)
        layout = device.create_pipeline_layout(bind_group_layouts=[self.layout])
        functions = {f.name: f for p in printed for f in p.functions}
        self.pipelines = {
            entry: device.create_compute_pipeline(
                layout=layout,
                compute={
                    "module": device.create_shader_module(code=source_of([function], WGSL)),
                    "entry_point": entry,
                },
            )
            for entry, function in functions.items()
        }

    def run(self, printed: Emitted, buffers: Sequence[np.ndarray | None]) -> list[Report | None]:
        """Run a kernel on bytes, all in one buffer; results are written in place. What was reported, by site."""
        device, usage = _device(), wgpu.BufferUsage
        sizes = [0 if b is None else b.size for b in buffers] + list(printed.workspaces)
        starts = np.cumsum([ALIGNMENT, *(-(-n // ALIGNMENT) * ALIGNMENT for n in sizes)])
        arena = np.full(int(starts[-1]), 0xAA, np.uint8)
        for start, b in zip(starts, buffers, strict=False):
            if b is not None:
                arena[start : start + b.size] = b
        storage = usage.STORAGE | usage.COPY_SRC
        memory = device.create_buffer_with_data(data=arena, usage=storage)
        reports: list[Report | None] = []
        for call in printed.calls:
            words = np.full(max(SITE_WORDS * len(call.faults), 1), NO_FAULT, np.uint32)
            places = np.zeros(-(-(len(call.buffers) + 2) // 4) * 4, np.uint32)
            places[1 : len(call.buffers) + 1] = [starts[number] for number in call.buffers]
            status = device.create_buffer_with_data(data=words, usage=storage)
            uniform = device.create_buffer_with_data(data=places, usage=usage.UNIFORM)
            bound = [
                {"binding": i, "resource": {"buffer": b, "offset": 0, "size": b.size}}
                for i, b in enumerate((memory, uniform, status))
            ]
            encoder = device.create_command_encoder()
            commands = encoder.begin_compute_pass()
            commands.set_pipeline(self.pipelines[call.function])
            commands.set_bind_group(0, device.create_bind_group(layout=self.layout, entries=bound))
            commands.dispatch_workgroups(call.groups)
            commands.end()
            device.queue.submit([encoder.finish()])
            words = np.frombuffer(device.queue.read_buffer(status), np.uint32)[: SITE_WORDS * len(call.faults)]
            reports += map(report_of, words.reshape(-1, SITE_WORDS))
        whole = np.frombuffer(device.queue.read_buffer(memory), np.uint8)
        for start, b in zip(starts, buffers, strict=False):
            if b is not None:
                b[:] = whole[start : start + b.size]
        return reports


def programs(printed: Iterable[Emitted], language: GpuDialect) -> Programs:
    assert language is WGSL, "it is what runs here"
    return Programs(printed)
