"""What of an adapter's limits rlx asks for: those that kernels and memory depend on, each as large as the adapter has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import frozen

if TYPE_CHECKING:
    import wgpu

__all__ = ["FEATURES", "LACKS", "REQUESTED", "Limits", "limits_of"]

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
"""What devices are asked for where adapters have it."""

LACKS: Final = frozenset(("f64", "c64", "c128"))
"""Dtypes that WGSL has no word for."""

_ADDRESSES: Final = 1 << 32
"""Bytes that kernels can count: where an operand begins is a word."""


@frozen
class Limits:
    """An adapter's limits as rlx uses them.

    Attributes:
        segment_nbytes: What one binding holds of the memory that programs have: a power of two.
        segments: How many bindings a launch has for it.
        group_size: Threads of a group.
        groups: Groups of one launch.
        shared_nbytes: Memory that the threads of a group share.
        requested: What a device is asked for, by wgpu's names.
    """

    segment_nbytes: int
    segments: int
    group_size: int
    groups: int
    shared_nbytes: int
    requested: dict[str, int]

    @property
    def memory_nbytes(self) -> int:
        """All memory that programs have: what a launch can be given, whatever it touches."""
        return self.segment_nbytes * self.segments


def limits_of(adapter: wgpu.GPUAdapter) -> Limits:
    """The limits of an adapter."""
    there = {name: int(adapter.limits[name]) for name in REQUESTED}
    binding = min(there["max-storage-buffer-binding-size"], there["max-buffer-size"], _ADDRESSES // 2)
    segment = 1 << binding.bit_length() - 1
    bindings = there["max-storage-buffers-per-shader-stage"] - 1  # one is for the words for faults
    return Limits(
        segment_nbytes=segment,
        segments=min(bindings, _ADDRESSES // segment),
        group_size=min(there["max-compute-invocations-per-workgroup"], there["max-compute-workgroup-size-x"]),
        groups=there["max-compute-workgroups-per-dimension"],
        shared_nbytes=there["max-compute-workgroup-storage-size"],
        requested=there,
    )
