"""The adapter limits that rlx requests: those that kernels and memory depend on, each at the adapter's maximum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import frozen

if TYPE_CHECKING:
    import wgpu

REQUESTED: Final = (
    "max-storage-buffer-binding-size",
    "max-buffer-size",
    "max-storage-buffers-per-shader-stage",
    "max-compute-workgroup-storage-size",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-size-x",
    "max-compute-workgroups-per-dimension",
)

FEATURES: Final = ("shader-int64",)
"""The features that are requested if the adapter supports them."""

UNSUPPORTED: Final = frozenset(("f64", "c64", "c128"))
"""Dtypes that WGSL does not support."""

_ADDRESSES: Final = 1 << 32
"""The size of the address space in bytes: addresses of operands are 32-bit words."""


@frozen
class Limits:
    """An adapter's limits as rlx uses them.

    Attributes:
        segment_nbytes: Bytes of program memory in one binding, a power of two.
        segments: The maximum number of bindings for program memory in one launch.
        group_size: The maximum number of threads in a group.
        groups: The maximum number of groups in a launch.
        shared_nbytes: Bytes of shared memory per group.
        requested: The limits requested for a device, by wgpu's names.
    """

    segment_nbytes: int
    segments: int
    group_size: int
    groups: int
    shared_nbytes: int
    requested: dict[str, int]

    @property
    def memory_nbytes(self) -> int:
        """The total memory of programs in bytes: the memory that one launch can bind, so that any launch can access all of it."""
        return self.segment_nbytes * self.segments


def limits_of(adapter: wgpu.GPUAdapter) -> Limits:
    """Return the limits of an adapter."""
    available = {name: int(adapter.limits[name]) for name in REQUESTED}
    binding = min(available["max-storage-buffer-binding-size"], available["max-buffer-size"], _ADDRESSES // 2)
    segment = 1 << binding.bit_length() - 1
    bindings = available["max-storage-buffers-per-shader-stage"] - 1  # one binding is for the status buffer
    return Limits(
        segment_nbytes=segment,
        segments=min(bindings, _ADDRESSES // segment),
        group_size=min(available["max-compute-invocations-per-workgroup"], available["max-compute-workgroup-size-x"]),
        groups=available["max-compute-workgroups-per-dimension"],
        shared_nbytes=available["max-compute-workgroup-storage-size"],
        requested=available,
    )
