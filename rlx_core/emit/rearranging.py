"""Elements that lie at strides on a device, made dense there: views of its arrays, and strided arrays of its library.

It is a kernel of the loop language that moves bits, so it works for every dtype; each combination of dims and strides is built
once.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Final

from rlx_core.codegen.layout import simplified
from rlx_core.codegen.loops import Buffer, Kernel, Load, Store
from rlx_core.codegen.verify import check_kernel
from rlx_core.device.device import Device
from rlx_core.device.driver import At
from rlx_core.emit.code import launch_of
from rlx_core.emit.emitters import Emitted, Language
from rlx_core.emit.modules import Modules, build_modules
from rlx_core.ir.dtypes import DType, i8, i16, i32, i64
from rlx_core.ir.strides import WIDEST, Strides, dense_strides
from rlx_core.ir.types import TensorType
from rlx_core.system.lru import LruCache
from rlx_core.system.records import frozen

_MAX_BUILT: Final = 64

_BITS: Final[Mapping[int, DType]] = {1: i8, 2: i16, 4: i32, 8: i64}


@frozen
class _Problem:
    """The description of a copy: the bits of a type's elements, from strides."""

    type: TensorType
    strides: Strides
    alignment: int


class Rearranger:
    """Copies to dense arrays on one device; called with the source's address, type and strides, and the target's address.

    Args:
        device: The device of both arrays.
        language: The language of its kernels.
    """

    def __init__(self, device: Device, language: Language) -> None:
        self._device, self._language = device, language
        self._built: LruCache[_Problem, tuple[Emitted, Modules]] = LruCache(_MAX_BUILT)

    def __call__(self, source: At, type: TensorType, strides: Strides, target: At) -> None:
        # Kernels read forwards and store backwards.
        first = source.offset + sum(s * (d - 1) for d, s in zip(type.static_shape, strides, strict=True) if s < 0)
        problem = _Problem(type, tuple(strides), gcd(first, WIDEST))
        emitted, modules = self._built.get_or_make(problem, lambda: self._build(problem))
        assert not emitted.workspaces, "a copy needs no memory of its own"
        driver, memory = self._device.driver, (At(source.buffer, first), target)
        driver.submit([launch_of(driver, modules, call, [memory[n] for n in call.buffers]) for call in emitted.calls])

    def _build(self, problem: _Problem) -> tuple[Emitted, Modules]:
        emitted = self._language.loop(check_kernel(kernel_of(problem)))
        return emitted, build_modules(self._device, self._language, emitted.functions, None)


def kernel_of(problem: _Problem) -> Kernel:
    """The loop kernel that makes elements dense; numbers of two words are two elements."""
    type, strides = problem.type, problem.strides
    shape, dense, itemsize = type.static_shape, dense_strides(type), type.dtype.itemsize
    if itemsize not in _BITS:
        shape, strides, dense, itemsize = (*shape, 2), (*strides, itemsize // 2), (*dense, itemsize // 2), itemsize // 2
    bits = _BITS[itemsize]
    backwards = [a for a, s in enumerate(strides) if s < 0]
    stored = tuple(-s if a in backwards else s for a, s in enumerate(dense))
    start = sum(dense[a] * (shape[a] - 1) for a in backwards)
    load, store = Load(0, bits, tuple(map(abs, strides))), Store(1, 0, stored, start)
    buffers = (Buffer("x0", bits, alignment=problem.alignment), Buffer("y0", bits, True))
    return simplified(Kernel("rearranged", shape, len(shape), buffers, (load,), (store,)))
