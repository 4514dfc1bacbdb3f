"""The driver, CUDA's or HIP's: loaded modules and launches."""

from __future__ import annotations

import re
from functools import cache, partial
from typing import Any

import numpy as np

from cupy.cuda import current, stream_of, world
from cupy.cuda.world import CUDADriverError as CUDADriverError
from rlx_gpu.testing.shim.dialects import CUDA_DIALECT, HIP_DIALECT
from rlx_gpu.testing.shim.driver import ShimDriver

_HEAD = re.compile(r"__launch_bounds__\((\d+)(?:, 1)?\) (\w+)\((.*?)\) \{", re.S)

CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8

shared: dict[int, int] = {}
"""Bytes that launches of a function may ask for, where somebody said it."""

functions: dict[int, tuple[Any, str, int, list[str]]] = {}


@cache
def shim() -> ShimDriver:
    return ShimDriver(HIP_DIALECT if world.is_hip else CUDA_DIALECT, "the fake device")


def load(code: bytes) -> dict[str, int]:
    """The functions of what the fake compiler made, by name."""
    expect_context()
    if not code.startswith(b"fake cubin\n"):
        raise CUDADriverError(200)
    source = code.decode().partition("\n")[2]
    module, found = shim().build(source), {}
    for size, name, arguments in _HEAD.findall(source):
        handle = 0x1000 + 16 * len(functions)
        functions[handle] = module, name, int(size), [each.split()[-2] for each in arguments.split(",") if each.strip()]
        found[name] = handle
    return found


def expect_context() -> None:
    """The driver's own calls need a context in the thread that calls, which a call of the runtime makes."""
    world.expect_alive()
    if not current.has_context:
        raise CUDADriverError(201)


def funcSetAttribute(f: int, attribute: int, value: int) -> None:
    expect_context()
    assert attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    if not 0 <= value <= shim().most_shared_nbytes:
        raise CUDADriverError(1)
    shared[f] = value


def launchKernel(
    f: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, nbytes: int, stream: int, params: int, extra: int
) -> None:
    expect_context()
    module, name, size, types = functions[f]
    assert (gy, gz, by, bz, extra) == (1, 1, 1, 1, 0)
    if nbytes > shared.get(f, shim().facts.shared_nbytes):
        raise CUDADriverError(1)
    assert bx <= size, "more threads than the kernel was compiled for"
    table = world.host(params, 8 * len(types)).view(np.uint64).copy()
    slots = [world.host(int(each), 8).view(np.uint64)[0] for each in table]
    arguments = [
        np.uint64(slot) if "*" in t else np.uint32(slot & np.uint64(0xFFFFFFFF))
        for slot, t in zip(slots, types, strict=True)
    ]
    world.records.append(("launch", name))
    launch = shim().launch(module, name, gx, bx, arguments)
    if nbytes:
        shim().share(launch, nbytes)
    stream_of(stream).ask(partial(shim().submit, [launch]))
