"""CUDA C, HIP and MSL functions executed on this machine's processor, as C++."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np
import pytest

from rlx_core.codegen.faults import NO_FAULT, SITE_WORDS, Report, report_of
from rlx_core.device.driver import Argument, At, Whole
from rlx_core.emit.emitters import Emitted
from rlx_core.errors import DeviceUnavailableError
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.sources import source_of
from rlx_gpu.testing.shim.dialects import DIALECTS
from rlx_gpu.testing.shim.driver import ShimBuffer, ShimDriver

OFFSET = 256
"""Bytes in front of every buffer, so that an offset that is forgotten shows."""


@cache
def _driver(language: str) -> ShimDriver:
    try:
        return ShimDriver(DIALECTS[language], f"{language}:0")
    except DeviceUnavailableError as error:
        pytest.skip(f"{error.message}: {error.hint}")


class Programs:
    """The functions of many kernels, built together."""

    def __init__(self, printed: Iterable[Emitted], language: GpuDialect) -> None:
        self.driver = _driver(language.name)
        functions = [f for p in printed for f in p.functions]
        self.module = self.driver.build(source_of(functions, language))

    def run(self, printed: Emitted, buffers: Sequence[np.ndarray | None]) -> list[Report | None]:
        """Run a kernel on bytes; results are written in place. What was reported, by site."""
        driver = self.driver
        memory = [None if b is None else self._filled(b, OFFSET) for b in buffers]
        memory += [self._filled(np.full(n, 0xAA, np.uint8), OFFSET) for n in printed.workspaces]
        reports: list[Report | None] = []
        for call in printed.calls:
            arguments: list[Argument] = [At(memory[number], OFFSET) for number in call.buffers]
            words = np.full(SITE_WORDS * len(call.faults), NO_FAULT, np.uint32)
            status = self._filled(words.view(np.uint8), 0) if call.faults else None
            if status is not None:
                arguments += [Whole(status), np.uint32(0)]
            made = driver.launch(self.module, call.function, call.groups, call.group_size, arguments)
            if call.dynamic_nbytes:
                driver.share(made, call.dynamic_nbytes)
            driver.submit([made])
            if status is not None:
                driver.read(status, 0, words)
            reports += map(report_of, words.reshape(-1, SITE_WORDS))
        for b, m in zip(buffers, memory, strict=False):
            if b is not None and b.size:
                assert m is not None, "it was filled"
                driver.read(m, OFFSET, b)
        for each in memory:
            if each is not None:
                driver.free(each)
        return reports

    def _filled(self, data: np.ndarray, offset: int) -> ShimBuffer:
        made = self.driver.allocate(offset + max(data.size, 1))
        self.driver.write(made, offset, data, waits=True)
        return made


def programs(printed: Iterable[Emitted], language: GpuDialect) -> Programs:
    return Programs(printed, language)
