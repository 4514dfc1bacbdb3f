"""Status codes of CUDA and HIP: which calls fail in isolation, and which failures leave the device unusable.

Both platforms use the same numbers for the codes listed here. Source: CUDA Runtime API, "Data types used by CUDA Runtime",
`cudaError`, which states for each error whether the process must be terminated and relaunched; HIP's `hipError_t`.
"""

from __future__ import annotations

from typing import Final

from rlx_core.errors import DeviceCallError, DeviceLostError, Fact, OutOfMemoryError, RlxError

_OUT_OF_MEMORY: Final = 2

_RESTART: Final = "the process has to be started again before it can use this device"

_LOST: Final = {
    4: "the driver is shutting down",
    214: "an uncorrectable memory error of the hardware",
    220: "an uncorrectable error of the link between devices",
    700: "a kernel accessed an illegal address",
    702: "a kernel ran longer than the device's time limit",
    709: "the context was destroyed",
    710: "an assertion in a kernel failed",
    714: "a stack error in a kernel",
    715: "a kernel executed an illegal instruction",
    716: "a kernel accessed a misaligned address",
    717: "a kernel accessed an address of another address space",
    718: "the program counter of a kernel is invalid",
    719: "a kernel failed while it ran",
}
"""Errors after which every call fails in this process; CUDA's documentation calls them sticky."""

_REPORT: Final = "this is a fault of rlx: report it with the status and the printed kernels (rlx compile --emit)"

_NOT_RECORDED: Final = (
    "a sequence of launches could not be recorded as a graph",
    "another library may work on the same stream meanwhile: call it from one thread",
)

_FAILED: Final = {
    1: ("an argument of a call is invalid", _REPORT),
    9: ("a launch has a group or a grid of a size that the device does not have", _REPORT),
    98: ("a module has no such kernel for this device", "clear the object cache: it may be of another device"),
    200: ("a kernel's binary is not one that this device loads", "clear the object cache: it may be of another device"),
    209: ("a kernel's binary was made for another device", "clear the object cache: it may be of another device"),
    218: ("the compiler of the driver refuses a kernel", "update the driver"),
    400: ("a stream, event or module does not exist any more", _REPORT),
    500: ("a module has no function of this name", _REPORT),
    701: (
        "a kernel needs more registers or shared memory than there are",
        "smaller sizes need less of them; report the kernel, which rlx should have planned smaller",
    ),
    801: ("the device or its driver does not support a call", "update the driver"),
    **dict.fromkeys(range(900, 909), _NOT_RECORDED),
}
"""Errors of one call: the message and the hint."""


def driver_error(place: str, status: int, error: object) -> RlxError:
    """The error of a device for a status of its platform.

    Args:
        error: The platform's exception, shown as a fact of the message.
    """
    fact = Fact("driver", error)
    if status == _OUT_OF_MEMORY:
        return OutOfMemoryError(f"{place}: the device has no memory left", fact)
    if status in _LOST:
        reason = Fact("reason", _LOST[status])
        return DeviceLostError(f"{place}: the device does not answer any more", fact, reason, hint=_RESTART)
    what, hint = _FAILED.get(status, ("a call of the driver failed", f"look up status {status} in its documentation"))
    return DeviceCallError(f"{place}: {what}", fact, hint=hint)
