"""Errors of devices with memory of their own: arrays in another device's memory, kernels that do not build, lost devices."""

from rlx_core.errors.base import RlxError

__all__ = ["DeviceCallError", "DeviceLostError", "KernelBuildError", "PlaceError"]


class PlaceError(RlxError, ValueError):
    """An array is in the memory of another device than the program's.

    Nothing is moved between devices implicitly: an unrequested copy
    would be noticed only by measuring. The message names both places.

    >>> from rlx_core.testing.fake_device import fake_host
    >>> host = fake_host()
    >>> x = rlx.device_put(np.float32([1, 2]), "fake:0", host=host)
    >>> rlx.jit(lambda x: x + x)(x)
    Traceback (most recent call last):
        ...
    PlaceError: run: x lies on fake:0, and the program runs on the host

    `to_host` copies it to the host, and `rlx.device_put` to a device:

    >>> rlx.jit(lambda x: x + x)(x.to_host())
    Array([2., 4.], dtype=float32)
    """


class KernelBuildError(RlxError, RuntimeError):
    """A device's compiler rejected a kernel that rlx generated; the message has the step, the facts the compiler's log.

    This is a fault of rlx or of the driver, not of the program. The source is what
    `rlx compile --emit` prints for that step at the device's level; with it and
    the compiler's words the fault can be reported.

    >>> from rlx_core.testing.fake_device import FakeDriver
    >>> driver = FakeDriver()
    >>> driver.build("kernel of no language")
    Traceback (most recent call last):
        ...
    KernelBuildError: fake:0: its compiler refuses the source

    >>> driver.build("")
    <fake module of 0 functions>
    """


class DeviceCallError(RlxError, RuntimeError):
    """A call of a device's driver failed, and the device remains usable.

    The message has the failed call, the facts the driver's own error. Arrays on the
    device keep their contents, and other calls may succeed: a `DeviceLostError` is
    raised instead where they cannot, and an `OutOfMemoryError` for memory.

    >>> from rlx_core.errors import DeviceCallError, DeviceLostError
    >>> raise DeviceCallError("fake:0: a stream or module does not exist any more")
    Traceback (most recent call last):
        ...
    DeviceCallError: fake:0: a stream or module does not exist any more

    >>> issubclass(DeviceLostError, DeviceCallError)
    False
    """


class DeviceLostError(RlxError, RuntimeError):
    """A device stopped responding during its work, or belongs to another process.

    Its driver was reset, it was unplugged, or this process was forked after the
    device had been used, which no driver supports. The content of its memory is
    lost; the process and other devices remain usable.

    >>> from rlx_core.testing.fake_device import fake_host
    >>> host = fake_host(is_lost=True)
    >>> rlx.device_put(np.float32([1, 2]), "fake:0", host=host)
    Traceback (most recent call last):
        ...
    DeviceLostError: fake:0: the device does not answer any more

    >>> rlx.device_put(np.float32([1, 2]), "fake:1", host=host).to_host()
    array([1., 2.], dtype=float32)
    """
