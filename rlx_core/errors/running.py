"""Errors when a compiled program meets its data and its device: sizes that contradict one another, inputs that are missing,
memory; arrays in another device's memory, kernels that do not build, lost devices."""

from rlx_core.errors.base import RlxError

__all__ = [
    "BindingError",
    "CallbackError",
    "DeadlockError",
    "DeviceCallError",
    "DeviceLostError",
    "DonatedError",
    "GuardError",
    "KernelBuildError",
    "LengthMismatchError",
    "MissingInputError",
    "NonFiniteError",
    "OutOfMemoryError",
    "PlaceError",
]


class GuardError(RlxError, ValueError):
    """Sizes bound to symbols break a relation that the program relies on.

    A program with symbolic sizes is compiled once, under the relations that its
    operations need: that two sizes are equal, or that one divides another. They
    are kept as guards, and checked for every new combination of sizes before
    anything runs. The facts name the operation that made the guard.

    >>> halves = rlx.compile(lambda x: rlx.reshape(x, (2, -1)), rlx.spec("f32[n]"))
    >>> halves(np.ones(3, np.float32))
    Traceback (most recent call last):
        ...
    GuardError: guard: n % 2 == 0 does not hold (2 and 3)

    >>> halves(np.ones(4, np.float32)).shape
    (2, 2)
    """


class BindingError(RlxError, ValueError):
    """Sizes for symbols cannot be inferred, or disagree.

    A symbol means one size everywhere in a program. Its size is read off the
    arrays of each call; where two arrays have different sizes for it, neither is
    right.

    >>> n = rlx.spec("f32[n]")
    >>> total = rlx.compile(lambda x, y: x + y, n, n)
    >>> total(np.ones(3, np.float32), np.ones(4, np.float32))
    Traceback (most recent call last):
        ...
    BindingError: binding: n is 3 in x axis 0 and 4 in y axis 0

    Sizes that may differ have names that differ:

    >>> x, y = rlx.spec("f32[n, 1]"), rlx.spec("f32[m]")
    >>> table = rlx.compile(lambda x, y: x + y, x, y)
    >>> table(np.ones((3, 1), np.float32), np.ones(4, np.float32)).shape
    (3, 4)
    """


class CallbackError(RlxError, RuntimeError):
    """A Python function that a program calls while it runs raised an error, or its result differs from the declared type.

    The error of the function is the cause of this one. The program is as it was
    before, and can be run again.

    >>> def checked(x):
    ...     if x < 0:
    ...         raise ValueError("it is negative")
    >>> f = rlx.jit(lambda x: rlx.debug.callback(checked, x) or x + 1)
    >>> f(np.float32(-1))
    Traceback (most recent call last):
        ...
    CallbackError: callback checked: it raised ValueError: it is negative

    >>> f(np.float32(1))
    Array(2., dtype=float32)
    """


class NonFiniteError(RlxError, FloatingPointError):
    """A program produced a NaN or an infinity inside `rlx.debug.nans()`.

    The error names the op that made it of finite operands, the package of the op,
    and the line of the program; in a loop also the iteration, counted from 0. It is
    located by evaluating the program again, node by node, with the arguments of the
    failed call.

    >>> f = rlx.jit(lambda x: rlx.sum(rlx.log(x)))
    >>> with rlx.debug.nans():
    ...     f(np.float32([1, -1]))
    Traceback (most recent call last):
        ...
    NonFiniteError: log: it produces NaN of operands that have none

    >>> with rlx.debug.nans():
    ...     f(np.float32([1, 1]))
    Array(0., dtype=float32)
    """


class DonatedError(RlxError, RuntimeError):
    """An array was used after it was donated to a program.

    A program that is compiled with `donate=` writes its results where its
    arguments lie; a training step does so with parameters and state. The arrays
    that were passed have no elements afterwards; the returned ones
    take their place. NumPy arrays are never overwritten: they are copied.

    >>> step = rlx.jit(lambda w, g: w - g, donate="w")
    >>> w = rlx.asarray(np.float32([1, 2]))
    >>> new = step(w, np.float32([1, 1]))
    >>> w + 1
    Traceback (most recent call last):
        ...
    DonatedError: this array (f32[2]) was donated (argument w of lambda)

    >>> new + 1
    Array([1., 2.], dtype=float32)
    """


class MissingInputError(RlxError, ValueError):
    """An input is missing in a call, or a parameter was never bound.

    Inputs are given on every run, and parameters are bound once. Nothing is
    assumed to be zero, so a forgotten weight cannot look like a bad model.

    >>> pair = rlx.spec("f32[2]")
    >>> graph = rlx.trace(lambda x, y: x * y, pair, pair)
    >>> program = rlx.Session().compile(graph)
    >>> x = np.float32([1, 2])
    >>> program.run({"x": x})
    Traceback (most recent call last):
        ...
    MissingInputError: run: y is not given

    >>> program.inputs
    {'x': f32[2], 'y': f32[2]}
    >>> program.run({"x": x, "y": x})
    (Array([1., 4.], dtype=float32),)
    """


class LengthMismatchError(RlxError, ValueError):
    """A buffer has a different number of bytes or elements than its type requires.

    Raw bytes carry no shape, so their number is the one thing that can be checked;
    they are never padded or cut.

    >>> graph = rlx.trace(lambda x: x + x, rlx.spec("f32[2]"))
    >>> program = rlx.Session().compile(graph)
    >>> program.run_typed({"x": (bytes(6), "f32")})
    Traceback (most recent call last):
        ...
    LengthMismatchError: run: x (f32[2]) has 8 bytes, not 6

    >>> program.run_typed({"x": (bytes(8), "f32")})
    [(b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00', f32, (2,))]
    """


class DeadlockError(RlxError, RuntimeError):
    """A signal handler needs a lock that the program which it interrupted releases only after the handler returns.

    Data shared between threads is behind locks, which a handler may take again
    from its own thread. But if another thread has one, and waits for a lock of the
    interrupted program, none of the three would ever continue: the error is raised
    in the handler, and the other two continue.

    >>> import threading
    >>> from rlx_core.system.locks import Lock
    >>> ours, theirs, begun = Lock("ours"), Lock("theirs"), threading.Event()
    >>> def other():
    ...     with theirs:
    ...         begun.set()
    ...         with ours:
    ...             pass
    >>> thread = threading.Thread(target=other)
    >>> with ours:
    ...     thread.start()
    ...     _ = begun.wait()
    ...     with theirs:
    ...         pass
    Traceback (most recent call last):
        ...
    DeadlockError: deadlock: theirs is another thread's, which waits for ...

    The same error is raised for a module that the interrupted program is
    importing, because rlx did something for the first time: a call before the
    first signal can come avoids it.

    A handler that only sets a flag interrupts nothing; the program does the
    work when it checks the flag:

    >>> thread.join()
    >>> with ours, theirs:
    ...     print("nobody waits")
    nobody waits
    """


class OutOfMemoryError(RlxError, MemoryError):
    """A buffer that a plan needs cannot be allocated; the message has its size.

    The memory of a run is planned as one arena before it starts, so a program that
    does not fit is refused at its beginning, and not after an hour. The arena is
    the largest sum of all values alive at one time: `report` prints its size.

    >>> def spread(x):
    ...     return rlx.sum(rlx.sort(rlx.broadcast_to(x, (2**50,))))
    >>> rlx.jit(spread)(np.ones(1))
    Traceback (most recent call last):
        ...
    OutOfMemoryError: cpu: an arena of ... bytes cannot be allocated

    Smaller sizes need less; so does a loop over parts of a large axis:

    >>> rlx.jit(lambda x: rlx.sum(rlx.sort(rlx.broadcast_to(x, (4,)))))(np.ones(1))
    Array(4.)
    """


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
