"""OpenCL functions executed on this machine's processor by PoCL, one program for many of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from rlx_core.codegen.faults import NO_FAULT, SITE_WORDS, Report, report_of
from rlx_core.emit.emitters import Emitted
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.opencl import OPENCL
from rlx_gpu.codegen.sources import source_of

cl = pytest.importorskip("pyopencl", reason='needs an OpenCL device: pip install "pyopencl[pocl]"')

OFFSET = 256
"""Bytes in front of every buffer, so that an offset that is forgotten shows."""


@lru_cache(maxsize=1)
def _queue() -> Any:
    devices = [d for p in cl.get_platforms() for d in p.get_devices() if "Portable" in p.name]
    if not devices:
        pytest.skip('needs PoCL: pip install "pyopencl[pocl]"')
    devices = [d for d in devices if not d.version.rstrip().endswith("-generic")]
    if not devices:
        pytest.skip("needs a PoCL that knows this processor: apt-get install pocl-opencl-icd")
    return cl.CommandQueue(cl.Context(devices[:1]))


class Programs:
    """The functions of many kernels, built together."""

    def __init__(self, printed: Iterable[Emitted]) -> None:
        functions = [f for p in printed for f in p.functions]
        self.source = source_of(functions, OPENCL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)  # unused names
            self.program = cl.Program(_queue().context, self.source).build(list(OPENCL.options))

    def run(self, printed: Emitted, buffers: Sequence[np.ndarray | None]) -> list[Report | None]:
        """Run a kernel on bytes; results are written in place. What was reported, by site."""
        queue = _queue()
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        memory = [
            None
            if b is None
            else cl.Buffer(queue.context, flags, hostbuf=np.concatenate([np.zeros(OFFSET, np.uint8), b]))
            for b in buffers
        ]
        memory += [
            cl.Buffer(queue.context, flags, hostbuf=np.full(OFFSET + n, 0xAA, np.uint8)) for n in printed.workspaces
        ]
        reports: list[Report | None] = []
        for call in printed.calls:
            arguments: list[Any] = []
            for number in call.buffers:
                arguments += [memory[number], np.uint64(OFFSET)]
            words = np.full(SITE_WORDS * len(call.faults), NO_FAULT, np.uint32)
            status = None
            if call.faults:
                status = cl.Buffer(queue.context, flags, hostbuf=words)
                arguments += [status, np.uint32(0)]
            kernel = cl.Kernel(self.program, call.function)
            kernel(queue, (call.group_size * call.groups,), (call.group_size,), *arguments)
            if status is not None:
                cl.enqueue_copy(queue, words, status)
            reports += map(report_of, words.reshape(-1, SITE_WORDS))
        for b, m in zip(buffers, memory, strict=False):
            if b is not None:
                whole = np.empty(OFFSET + b.size, np.uint8)
                cl.enqueue_copy(queue, whole, m)
                b[:] = whole[OFFSET:]
        queue.finish()
        return reports


def programs(printed: Iterable[Emitted], language: GpuDialect) -> Programs:
    assert language is OPENCL, "it is what runs here"
    return Programs(printed)
