"""Errors about configuration, names, files, programs of other systems, plugins and devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx_core.errors.base import Fact, RlxError

__all__ = [
    "ConfigError",
    "DeviceError",
    "DeviceUnavailableError",
    "FileError",
    "FormatError",
    "PluginError",
    "UnknownNameError",
    "UnsupportedError",
    "unsupported",
]


class ConfigError(RlxError, ValueError):
    """A configuration has an unknown key, a value of the wrong type, or parts that contradict each other.

    An unknown key is an error because an option that is not read looks exactly
    like one that has no effect. The facts have the file and the key; `rlx plan`
    prints the resolved configuration.

    >>> x = np.zeros(2, np.float32)
    >>> rlx.jit(rlx.exp, config={"precison": {"policy": "f32"}})(x)
    Traceback (most recent call last):
        ...
    ConfigError: configuration: precison: unknown key

    >>> rlx.jit(rlx.exp, config={"precision": {"policy": "f32"}})(x)
    Array([1., 1.], dtype=float32)
    """


class UnknownNameError(RlxError, KeyError):
    """A name that nothing provides; the message has the nearest names that exist.

    Operations, passes, attributes, inputs and parameters are looked up by name,
    and a name that is not known is never ignored.

    >>> x = np.zeros(2)
    >>> rlx.softmax(x, axes=0)
    Traceback (most recent call last):
        ...
    UnknownNameError: softmax: takes (x, axis=...), not axes=

    >>> rlx.softmax(x, axis=0)
    Array([0.5, 0.5])

    For a plugin's name, `rlx plugins` shows whether the plugin is installed and
    used.
    """


class FormatError(RlxError, ValueError):
    """A file or a text does not have the form that its kind promises.

    Input is validated before it is used: lengths
    against the file, names against one another. A damaged file is refused as a
    whole.

    >>> import os, tempfile
    >>> place = tempfile.TemporaryDirectory()
    >>> path = os.path.join(place.name, "model.rlx")
    >>> with open(path, "w") as file:
    ...     _ = file.write("hello")
    >>> rlx.load(path)
    Traceback (most recent call last):
        ...
    FormatError: file: 5 bytes are fewer than the 52 of the prefix

    >>> rlx.save(path, rlx.trace(rlx.exp, rlx.spec("f32[n]")))
    >>> rlx.load(path).input_types
    {'x': f32[n]}

    Pickles of programs hold the same bytes, and are checked alike. An object that
    cannot be written, a function that no other process could import, is refused
    too.

    >>> import pickle
    >>> plus = rlx.compile(lambda x: x + 1, rlx.spec("f32[n]"))
    >>> pickle.loads(pickle.dumps(plus))(np.zeros(2, np.float32))
    Array([1., 1.], dtype=float32)
    >>> place.cleanup()
    """


class FileError(RlxError, OSError):
    """A file cannot be opened, read or written; the message has the system's reason.

    The content of a file is not examined before its suffix is known and the file
    is open. A file that is saved appears as a whole: where that fails, whatever
    was there before is still there.

    >>> import os, tempfile
    >>> place = tempfile.TemporaryDirectory()
    >>> rlx.save(os.path.join(place.name, "weights.safetensors"), {"w": np.ones(2)})
    >>> rlx.load(os.path.join(place.name, "weight.safetensors"))
    Traceback (most recent call last):
        ...
    FileError: load: ...weight.safetensors cannot be read (No such file ...)

    The hint names the file in the same directory that was probably meant:

    >>> rlx.load(os.path.join(place.name, "weights.safetensors"))
    {'w': array([1., 1.])}
    >>> place.cleanup()
    """


class PluginError(RlxError, RuntimeError):
    """A plugin cannot be used; the message has its own cause and the command that fixes it.

    A plugin that fails is disabled, and everything else continues to work. The
    error is raised when a name that only this plugin provides is used, and has the
    plugin's own exception as its cause.

    >>> from rlx_core.hooks import hookimpl
    >>> from rlx_core.plugins import PluginHost
    >>> class Acme:
    ...     @hookimpl
    ...     def rlx_backends(self):
    ...         raise OSError("libacme.so is missing")
    >>> host = PluginHost([Acme()])
    >>> rlx.Session("acme", host=host)
    Traceback (most recent call last):
        ...
    PluginError: acme: its plugin acme failed

    >>> host.load("ops", "rlx.exp").name
    'rlx.exp'

    `rlx doctor` lists every plugin that failed, with the fix.

    Attributes:
        fault: The contribution that raised when it was used, or `None`; see
            `rlx_core.plugins.Fault`.
    """

    fault: object | None = None


class DeviceError(RlxError, ValueError):
    """A device or target is unknown to rlx.

    Targets come from plugins: `cpu` from rlx-cpu, others from other packages. A
    target of a known package that is not installed is a `DeviceUnavailableError`.

    >>> rlx.Session("gpu")
    Traceback (most recent call last):
        ...
    DeviceError: gpu: no plugin provides this target

    >>> "cpu" in rlx.available_devices()
    True
    >>> rlx.Session("cpu")
    Session('cpu', precision='f32')
    """


class DeviceUnavailableError(RlxError, RuntimeError):
    """A known device cannot be used here; the message has the package or driver to install.

    Its plugin is not installed, or detected that a driver, a library or the
    hardware is missing. rlx does not fall back to another device by itself: that
    would turn a missing driver into a slow program.

    >>> from rlx_core.contributions import BackendSpec
    >>> from rlx_core.hooks import hookimpl
    >>> from rlx_core.plugins import PluginHost
    >>> class Acme:
    ...     @hookimpl
    ...     def rlx_availability(self):
    ...         return "the driver acme-driver 2 or newer is not installed"
    ...     @hookimpl
    ...     def rlx_backends(self):
    ...         return [BackendSpec("acme", "acme_rlx.backend:AcmeBackend")]
    >>> host = PluginHost([Acme()])
    >>> rlx.Session("acme", host=host)
    Traceback (most recent call last):
        ...
    DeviceUnavailableError: acme: this target cannot be used here

    A program that may run without the device checks first:

    >>> rlx.is_available("acme", host)
    False
    >>> rlx.Session("acme" if rlx.is_available("acme", host) else "cpu").device
    'cpu'
    """


class UnsupportedError(RlxError, NotImplementedError):
    """A program of another system uses operations that have no equivalent in rlx.

    All of them are listed at once, each with the number of its uses, the first of
    them and a possible replacement, so that one error shows whether a model can be
    imported. Where an operation has no handler, the hint shows how to register one.

    >>> from rlx_core.errors import unsupported
    >>> uses = {"Lower": ["node words"], "Unique": ["node 7", "node 9"]}
    >>> raise unsupported("tagger.onnx", uses, {"Lower": "texts in lower case"})
    Traceback (most recent call last):
        ...
    UnsupportedError: tagger.onnx: 2 operations are not supported: Lower, Unique

    >>> unsupported("tagger.onnx", uses).facts[1]
    Fact('Unique', '2 uses', 'first: node 7')
    """


def unsupported(
    what: str,
    uses: Mapping[str, Sequence[str]],
    instead: Mapping[str, str] | None = None,
    registration: str | None = None,
) -> UnsupportedError:
    """Return the error for all operations of a program that rlx does not support.

    Args:
        what: The program: a file, a module, a function; empty where the code that catches the error adds it.
        uses: Operation → where it is used, in the words of the system that it comes from.
        instead: Operation → a replacement, where one is known.
        registration: How to register a handler for an operation without one, as the hint.
    """
    known = instead or {}
    facts = []
    for name, locations in uses.items():
        count = "1 use" if len(locations) == 1 else f"{len(locations)} uses"
        alternative = f"; instead: {known[name]}" if name in known else ""
        first = locations[0] if len(locations) == 1 else f"first: {locations[0]}"
        facts.append(Fact(name, count + alternative, first))
    verb = "operation is" if len(uses) == 1 else "operations are"
    about = f"{what}: " if what else ""
    message = f"{about}{len(uses)} {verb} not supported: {', '.join(uses)}"
    return UnsupportedError(message, *facts, hint=registration)
