"""CUDA's runtime, as far as rlx calls it."""

from __future__ import annotations

from typing import Any

from cupy.cuda import current, stream_of, world
from cupy.cuda.world import CUDARuntimeError as CUDARuntimeError

memcpyHostToDevice, memcpyDeviceToHost, memcpyDeviceToDevice = 1, 2, 3
streamCaptureModeThreadLocal = 1


def __getattr__(name: str) -> Any:
    if name == "is_hip":
        return world.is_hip
    raise AttributeError(name)


def getDeviceCount() -> int:
    if world.driver_version < 13000 and not world.is_hip:
        raise CUDARuntimeError(35)
    if world.devices == 0:
        raise CUDARuntimeError(100)
    return world.devices


def driverGetVersion() -> int:
    return 70_051_831 if world.is_hip else world.driver_version


def runtimeGetVersion() -> int:
    return 13020


def getDeviceProperties(device: int) -> dict[str, Any]:
    numbers = {"maxThreadsPerBlock": 1024, "multiProcessorCount": 4, "warpSize": 32, "totalGlobalMem": world.limit}
    if world.is_hip:
        own = {"name": b"Fake Instinct", "gcnArchName": b"gfx942:sramecc+:xnack-", "major": 9, "minor": 4}
        return {**numbers, **own, "sharedMemPerBlock": 64 << 10}
    return {**numbers, "name": b"Fake H0", "major": 9, "minor": 0, "sharedMemPerBlock": 48 << 10}


def memGetInfo() -> tuple[int, int]:
    world.expect_alive()
    current.has_context = True
    return world.limit, world.limit


def memcpyAsync(dst: int, src: int, size: int, kind: int, stream: int) -> None:
    world.records.append(("copy", (kind, size)))
    if not size:
        return

    def move() -> None:
        into = world.host(dst, size) if kind == memcpyDeviceToHost else world.at(dst, size)
        out = world.host(src, size) if kind == memcpyHostToDevice else world.at(src, size)
        into[:size] = out[:size]

    stream_of(stream).ask(move)


def memsetAsync(ptr: int, value: int, size: int, stream: int) -> None:
    def fill() -> None:
        world.at(ptr, size)[:size] = value

    stream_of(stream).ask(fill)
