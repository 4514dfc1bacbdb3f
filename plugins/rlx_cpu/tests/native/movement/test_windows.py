"""Windows at computed places: clamped as the reference clamps them, and written in place where a cache is donated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from exact import agrees, drawn
from harness import EVERY_WIDTH

import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core.ops.dynamic import DynamicSlice, DynamicUpdateSlice, dynamic_update_slice
from rlx_core.plugins import PluginHost
from rlx_core.testing.cases import OpProgram, programs
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.movement.windows import emit_slice, emit_update

HOST = PluginHost([rlx_cpu.plugin])
EMITTERS = {DynamicSlice: emit_slice, DynamicUpdateSlice: emit_update}
SAMPLES = [p for p in programs(tuple(EMITTERS)) if p.is_static]


@EVERY_WIDTH
@pytest.mark.parametrize("program", SAMPLES, ids=str)
def test_every_sample_agrees_with_numpy(program: OpProgram, isa: Isa) -> None:
    agrees(EMITTERS[program.op], program.node.op, drawn(program), isa)


@pytest.mark.parametrize("start", [-5, 0, 1, 3, 100])
@pytest.mark.parametrize("shape", [(6, 5, 40), (1, 7, 3), (1, 1, 9), (200, 3, 70)], ids=str)
def test_windows_are_clamped_so_that_they_fit(shape: tuple[int, ...], start: int) -> None:
    x = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    window = tuple(max(1, n // 2) for n in shape)
    starts = [np.array(start + k) for k in range(3)]
    agrees(emit_slice, DynamicSlice(window), [x, *starts])
    agrees(emit_slice, DynamicSlice(window), [np.asfortranarray(x), *starts])
    agrees(emit_update, DynamicUpdateSlice(), [x, -x[tuple(map(slice, window))].copy(), *starts])
    agrees(emit_update, DynamicUpdateSlice(), [x, x.T[tuple(map(slice, window[::-1]))].T, *starts])


def test_a_start_that_no_signed_number_holds_is_the_last() -> None:
    x, start = np.arange(9, dtype="f4"), np.array(2**64 - 1, "u8")
    agrees(emit_slice, DynamicSlice((4,)), [x, start])
    agrees(emit_update, DynamicUpdateSlice(), [x, np.zeros(4, "f4"), start])


def test_a_donated_cache_is_appended_to_in_place() -> None:
    def append(cache: Any, rows: Any, at: Any) -> Any:
        return dynamic_update_slice(cache, rows, np.array(0), at, np.array(0))

    step = rlx.jit(append, donate=("cache",), host=HOST, target="cpu")
    cache = rlx.zeros((2, 6, 3))
    first = np.asarray(cache).ctypes.data
    for at in (0, 1, 5):
        cache = step(cache, np.full((2, 1, 3), at + 1, "f4"), np.array(at))

    assert np.asarray(cache).ctypes.data == first
    assert cache[1, :, 2].tolist() == [1, 2, 0, 0, 0, 6]
