"""Traversal of every value that a function can read besides its arguments: from its closure, globals, defaults and `self`.

Objects are followed as far as Python exposes them: containers by their items, instances by their attributes, functions by the
names in their code. An object that hides its state (an iterator, an object of a C extension, a clock) makes the walk fail with
the reason, and the function is traced again for every call.
"""

from __future__ import annotations

import builtins
import collections
import datetime
import decimal
import enum
import fractions
import functools
import importlib.util
import logging
import operator
import pathlib
import re
import struct
import sys
import threading
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
import optree

from rlx_core.functions.captured.analysis import Chain, Reads, reads_of
from rlx_core.functions.captured.guards import ABSENT, SCALARS, ArrayContent, Guards, typed_members
from rlx_core.functions.captured.trusted import (
    has_outside_state,
    is_own_code,
    is_trusted_code,
    is_trusted_module,
    is_trusted_name,
)
from rlx_core.ir.apply import OpFunction
from rlx_core.ir.array import HostArray
from rlx_core.ir.dims import Expr
from rlx_core.ir.dtypes import DType
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op
from rlx_core.ir.placed import Placed
from rlx_core.ir.types import TensorType
from rlx_core.plugins import PluginHost
from rlx_core.runtime.jit import Jitted
from rlx_core.system.locks import Lock
from rlx_core.system.records import frozen

MAX_GUARDS: Final = 1000
"""Limit of the captured values of one function, items of containers included; above it, comparing costs more than tracing."""

_CONSTANT: Final = (
    *(DType, Expr, Lock, OpFunction, PluginHost, TensorType, Value, optree.PyTreeSpec),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, decimal.Decimal, fractions.Fraction),
    *(logging.Logger, np.dtype, np.ufunc, operator.attrgetter, operator.itemgetter, operator.methodcaller),
    *(pathlib.PurePath, range, re.Pattern, slice, types.CodeType, types.GenericAlias, types.UnionType),
    *(types.GetSetDescriptorType, types.MemberDescriptorType, types.WrapperDescriptorType, types.MethodDescriptorType),
    *(types.ClassMethodDescriptorType, types.MethodWrapperType, np.finfo, np.iinfo),
    *(type(threading.Lock()), type(threading.RLock())),
)
"""Types whose state does not change or does not affect results; values of a trace belong to that trace."""

_UNSTEADY_BUILTINS: Final = frozenset(
    ("__import__", "breakpoint", "compile", "eval", "exec", "globals", "input", "locals", "open")
)
"""Built-in functions that reach code or state that the bytecode does not name."""

_DYNAMIC: Final = frozenset(["__dict__", "dir", "getattr", "getattr_static", "getmembers", "import_module", "vars"])
"""Names of functions that read attributes that the bytecode does not name."""


_OUTSIDE_METHODS: Final = frozenset(
    "exists glob is_dir is_file iterdir now open read_bytes read_text rglob stat today utcnow".split()  # noqa: SIM905
)
"""Methods of paths and of dates that read files and clocks."""

_READERS: Final = frozenset("fromfile genfromtxt load loadtxt memmap fromregex".split())  # noqa: SIM905
"""NumPy's functions that read files."""


class Opaque(Exception):
    """A captured value whose state cannot be compared; the message names it. It never leaves this module."""


@frozen(eq=False)
class Captured:
    """The values that one trace of a function can read.

    Attributes:
        guards: They hold while no captured value has changed; `None` if changes cannot be detected.
        arrays: The captured arrays, by their names.
        reason: The reason why there are no guards.
    """

    guards: Guards | None
    arrays: Mapping[str, Any]
    reason: str | None = None


def is_array(value: Any) -> bool:
    """Return whether a captured value is an array leaf, which becomes an input of the program."""
    if isinstance(value, np.ndarray | np.generic):
        return not value.dtype.hasobject
    return isinstance(value, HostArray | Placed)


def captured_values(function: Callable[..., Any], arguments: Iterable[Any] = ()) -> Captured:
    """Collect every value that `function` can read besides its arguments.

    Args:
        function: The function to trace.
        arguments: The arguments of the call: methods of their classes may be called, and these read globals too.
    """
    walk = _CaptureVisitor()
    try:
        walk.run(function, arguments)
    except Opaque as reason:
        return Captured(None, walk.arrays, str(reason))
    except RecursionError:
        return Captured(None, walk.arrays, "containers are nested too deep to compare")
    return Captured(walk.guards, walk.arrays)


class _CaptureVisitor:
    """One walk: a list of objects still to be followed, and the guards so far."""

    def __init__(self) -> None:
        self.guards = Guards()
        self.arrays: dict[str, Any] = {}
        self._count = 0
        self._seen: dict[int, Any] = {}  # values are stored to keep the objects alive, so that their ids stay valid
        self._pending: list[tuple[Any, str]] = []
        self._names: set[str] = set()
        self._modules: dict[int, types.ModuleType] = {}
        self._classes: dict[int, Mapping[str, Any]] = {}
        self._kinds: list[type] = []
        self._reads_outside: list[tuple[Any, str]] = []
        self._named: set[tuple[int, str]] = set()

    def run(self, function: Callable[..., Any], arguments: Iterable[Any]) -> None:
        self._pending.append((function, "function"))
        for argument in arguments:
            self._classes_of(argument)
        while self._pending:
            while self._pending:
                self._follow(*self._pending.pop())
            self._follow_names()

    # ------------------------------------------------------------------------------- bookkeeping

    def _add(self, value: Any, name: str, guards: int = 1) -> None:
        """Queue a value to be followed."""
        self._count += guards
        if self._count > MAX_GUARDS:
            raise Opaque(f"it reads more than {MAX_GUARDS:,} values")
        if type(value) not in SCALARS and value is not ABSENT and id(value) not in self._seen:
            self._seen[id(value)] = value
            self._pending.append((value, name))

    def _entry(self, mapping: Mapping[Any, Any], key: Any, name: str) -> Any:
        if (id(mapping), key) in self._named:
            return mapping.get(key, ABSENT)
        self._named.add((id(mapping), key))
        self._seen.setdefault(id(mapping), mapping)
        value = mapping.get(key, ABSENT)
        self.guards.entries.append((mapping, key, value))
        self._count += 1
        return value

    def _attribute(self, instance: Any, attribute: str, name: str) -> None:
        value = getattr(instance, attribute, ABSENT)
        self.guards.attributes.append((instance, attribute, value))
        self._add(value, f"{name}.{attribute}")

    # ------------------------------------------------------------------------------- objects

    def _follow(self, value: Any, name: str) -> None:
        if is_array(value):
            self._array(value, name)
        elif isinstance(value, types.ModuleType):
            self._module(value)
        elif isinstance(value, type):
            self._class(value)
            if value in (datetime.date, datetime.datetime) or issubclass(value, pathlib.Path):
                self._reads_outside.append((value, name))
        elif isinstance(value, types.FunctionType):
            self._function(value, name)
        elif isinstance(value, types.MethodType):
            self._add(value.__func__, name)
            self._add(value.__self__, "self")
        elif isinstance(value, types.BuiltinFunctionType):
            self._builtin(value, name)
        elif isinstance(value, functools.partial):
            for each in (value.func, value.args, value.keywords):
                self._add(each, name)
        elif isinstance(value, staticmethod | classmethod):
            self._add(value.__func__, name)
        elif isinstance(value, property):
            for accessor in (value.fget, value.fset, value.fdel):
                self._add(accessor, name)
        elif isinstance(value, Jitted):
            self._add(value.traced_function, name)
        elif isinstance(value, enum.Enum | Op):
            self._class(type(value))
        elif isinstance(value, pathlib.Path) and is_trusted_name(type(value).__module__):
            self._reads_outside.append((value, name))
        elif isinstance(value, _CONSTANT) and is_trusted_name(type(value).__module__):
            pass
        else:
            self._container(value, name)

    def _array(self, value: Any, name: str) -> None:
        label = name
        while label in self.arrays:
            label += "_"
        self.arrays[label] = value
        if isinstance(value, np.ndarray):
            self.guards.contents.append(ArrayContent.of(value))
        elif isinstance(value, HostArray):
            data = value._data  # replaced by `x[key] = y`, and absent after a donation
            self.guards.attributes.append((value, "_data", data))
            if isinstance(data, np.ndarray) and data.flags.writeable:
                self.guards.contents.append(ArrayContent.of(data))

    def _container(self, value: Any, name: str) -> None:
        kind = type(value)
        if has_outside_state(kind.__module__):
            raise Opaque(f"{name} is a {kind.__module__}.{kind.__qualname__}, whose state is outside of the program")
        if _is_array_of_others(value):
            raise Opaque(
                f"{name} is a {kind.__module__}.{kind.__qualname__}, whose elements another library may change"
            )
        if isinstance(value, dict | types.MappingProxyType):
            items = dict(value)
            self.guards.mappings.append((value, tuple(items), tuple(items.values())))
            for key, each in items.items():
                self._add(key, name, 0)
                self._add(each, f"{name}.{key}")
            if isinstance(value, collections.defaultdict):
                self._add(value.default_factory, name)
        elif isinstance(value, tuple | list | collections.deque):
            self.guards.sequences.append((value, tuple(value)))
            for i, each in enumerate(value):
                self._add(each, f"{name}.{i}")
        elif isinstance(value, set | frozenset):
            self.guards.sets.append((value, typed_members(value)))
            for each in value:
                self._add(each, name)
        elif isinstance(value, bytearray):
            self.guards.sequences.append((value, tuple(value)))
            self._add(None, name, len(value))
        self._instance(value, name)

    def _instance(self, value: Any, name: str) -> None:
        """Follow the attributes of an instance, in its dictionary and in slots."""
        kind = type(value)
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            self.guards.mappings.append((attributes, tuple(attributes), tuple(attributes.values())))
            for key, each in list(attributes.items()):
                self._state(each, name, str(key))
        if _hides_state(kind):
            if not _is_function(value):
                raise Opaque(f"{name} is a {kind.__module__}.{kind.__qualname__}, whose state Python does not show")
            self._builtin_module(value.__module__, value.__qualname__)
        for slot in (slot for each in kind.__mro__ for slot in _slots(each)):
            each = getattr(value, slot, ABSENT)
            self.guards.attributes.append((value, slot, each))
            self._state(each, name, slot)
        if not is_trusted_name(kind.__module__):
            self.guards.attributes.append((value, "__class__", kind))
            self._class(kind)

    def _state(self, value: Any, name: str, attribute: str) -> None:
        self._add(value, attribute if name == "self" else f"{name}.{attribute}")

    # ------------------------------------------------------------------------------- code

    def _builtin(self, value: Any, name: str) -> None:
        owner = value.__self__
        if owner is None or isinstance(owner, types.ModuleType):
            self._builtin_module(value.__module__ or getattr(owner, "__name__", None), value.__name__)
        else:
            self._add(owner, name)

    @staticmethod
    def _builtin_module(module: str | None, name: str) -> None:
        is_reader = str(module).partition(".")[0] == "numpy" and name in _READERS
        if is_reader or has_outside_state(module) or (module == "builtins" and name in _UNSTEADY_BUILTINS):
            raise Opaque(f"it calls {module}.{name}, whose result is not the program's")

    def _function(self, function: types.FunctionType, name: str) -> None:
        code = function.__code__
        is_trusted = is_trusted_code(code.co_filename)
        if is_trusted:
            self._builtin_module(function.__module__, function.__name__)
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        if is_own_code(code.co_filename):  # rlx does not assign to closure variables after it has returned the closure
            for variable, cell in cells.items():
                self._add(cell.cell_contents, variable, 0)
            return
        if function.__dict__:
            self._add(function.__dict__, name)
        if is_trusted:
            for variable, cell in cells.items():
                self._cell(variable, cell, ())
            return
        self.guards.attributes.append((function, "__code__", code))
        for attribute in ("__defaults__", "__kwdefaults__"):
            self._attribute(function, attribute, name)
        reads = reads_of(code)
        self._names |= reads.names
        for chain in reads.chains:
            self._chain(chain, function.__globals__, cells)
        named = {chain.name for chain in reads.chains if chain.scope == "cell"}
        for variable, cell in cells.items():
            if variable not in named:
                self._cell(variable, cell, None)
        self._imports(reads, function.__globals__)

    def _cell(self, name: str, cell: Any, attributes: tuple[str, ...] | None) -> None:
        try:
            value = cell.cell_contents
        except ValueError:
            value = ABSENT
        if (id(cell), "") not in self._named:
            self._named.add((id(cell), ""))
            self._seen.setdefault(id(cell), cell)
            self.guards.cells.append((cell, value))
            self._count += 1
        self._variable(value, name, attributes or ())

    def _chain(self, chain: Chain, variables: Mapping[str, Any], cells: Mapping[str, Any]) -> None:
        if chain.scope == "cell" and chain.name in cells:
            self._cell(chain.name, cells[chain.name], chain.attributes)
        elif chain.scope == "global":
            value = self._entry(variables, chain.name, chain.name)
            if value is ABSENT:
                value = getattr(builtins, chain.name, ABSENT)
            self._variable(value, chain.name, chain.attributes)

    def _variable(self, value: Any, name: str, attributes: tuple[str, ...]) -> None:
        """Follow a variable and the attributes that are read from it; for a module, only these."""
        for attribute in attributes:
            if not isinstance(value, types.ModuleType):
                break
            if is_trusted_module(value):
                value = getattr(value, attribute, ABSENT)
            else:
                value = self._entry(vars(value), attribute, f"{name}.{attribute}")
            name = f"{name}.{attribute}"
        self._add(value, name, 0)

    def _imports(self, reads: Reads, variables: Mapping[str, Any]) -> None:
        for relative, level in reads.imports:
            try:
                package = variables.get("__package__")
                name = importlib.util.resolve_name("." * level + relative, package) if level else relative
            except ImportError:
                raise Opaque(f"it imports {relative!r}, which is not found from here") from None
            parts = name.split(".")
            for count in range(1, len(parts) + 1):
                module = self._entry(sys.modules, ".".join(parts[:count]), name)
                self._add(module, name, 0)

    # ------------------------------------------------------------------------------- names

    def _module(self, module: types.ModuleType) -> None:
        if has_outside_state(module.__name__):
            raise Opaque(f"it uses {module.__name__}, which reads what is outside of the program")
        self._modules[id(module)] = module

    def _class(self, kind: type) -> None:
        for each in kind.__mro__:
            if id(each) not in self._classes and not is_trusted_name(each.__module__):
                self._classes[id(each)] = vars(each)
                self._kinds.append(each)
                self.guards.lengths.append((vars(each), len(vars(each))))

    def _classes_of(self, argument: Any) -> None:
        """Collect the classes of an argument: of pytrees and leaves, whose methods the function may call."""
        pending, seen = [argument], set[int]()
        while pending:
            each = pending.pop()
            self._class(type(each))
            if type(each) in SCALARS or is_array(each) or id(each) in seen:
                continue
            seen.add(id(each))  # attributes may refer to each other
            if isinstance(each, tuple | list):
                pending += each
            elif isinstance(each, dict):
                pending += each.values()
            elif not is_trusted_name(type(each).__module__):
                pending += vars(each).values() if hasattr(each, "__dict__") else ()

    def _follow_names(self) -> None:
        """Follow the attributes of the collected modules and classes that some of the code names."""
        if self._reads_outside and not _OUTSIDE_METHODS.isdisjoint(self._names):
            value, name = self._reads_outside[0]
            methods = ", ".join(sorted(_OUTSIDE_METHODS & self._names))
            raise Opaque(f"it calls {methods}, and {name} ({value!r}) has methods whose result is not the program's")
        is_dynamic = not _DYNAMIC.isdisjoint(self._names)
        for module in list(self._modules.values()):
            if is_trusted_module(module):
                for name in self._names & vars(module).keys():
                    value = vars(module)[name]
                    if isinstance(value, types.ModuleType) and has_outside_state(value.__name__):
                        self._module(value)
                continue
            for name in list(vars(module)) if is_dynamic else self._names & vars(module).keys():
                self._add(self._entry(vars(module), name, name), f"{module.__name__}.{name}", 0)
        for kind in list(self._kinds):
            members = self._classes[id(kind)]  # one object; `vars` would create one for each call
            for name in list(members):
                # Python calls special methods implicitly, so no code names them.
                if is_dynamic or name in self._names or _is_special(name):
                    self._add(self._entry(members, name, name), f"{kind.__name__}.{name}", 0)


_UNREAD: Final = frozenset(
    f"__{name}__"
    for name in (
        *("abstractmethods", "annotations", "annotate", "annotate_func", "annotations_cache", "attrs_attrs"),
        *("attrs_init", "attrs_own_setattr", "attrs_props", "copy", "dataclass_fields", "dataclass_params", "deepcopy"),
        *("del", "dict", "doc", "firstlineno", "getstate", "match_args", "module", "orig_bases", "parameters"),
        *("qualname", "reduce", "reduce_ex", "repr", "setstate", "slots", "static_attributes", "str", "weakref"),
    )
)
"""Special names that no call of a program reads."""


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in _UNREAD


def _slots(kind: type) -> list[str]:
    """Return the slots that a class of Python adds; the slots of C extensions need not contain all of the state."""
    declared = vars(kind).get("__slots__", ())
    names = [declared] if isinstance(declared, str) else list(declared)
    private = f"_{kind.__name__.lstrip('_')}"
    mangled = [f"{private}{n}" if n.startswith("__") and not n.endswith("__") else n for n in names]
    return [n for n in mangled if n not in ("__dict__", "__weakref__")]


_SHOWN: Final = frozenset(
    (
        *(object, dict, list, tuple, set, frozenset, int, float, complex, str, bytes, bytearray),
        *(collections.deque, collections.defaultdict, collections.OrderedDict, types.MappingProxyType),
        *(types.FunctionType, types.SimpleNamespace),
    )
)
"""Classes implemented in C whose state is followed."""


def _hides_state(kind: type) -> bool:
    """Return whether a base class implemented in C has more state in an instance than a dictionary, weak references and slots."""
    for each in kind.__mro__:
        if each in _SHOWN or each.__base__ is None:
            continue
        if not each.__flags__ & _HEAP_TYPE:
            return True
        base = each.__base__
        declared = len(_slots(each)) + sum(
            bool(getattr(each, offset)) and not getattr(base, offset)
            for offset in ("__dictoffset__", "__weakrefoffset__")
        )
        if each.__basicsize__ - base.__basicsize__ > _POINTER * declared:
            return True
    return False


_HEAP_TYPE: Final = 1 << 9
"""The flag of types that are created at run time, all classes defined in Python among them (`Py_TPFLAGS_HEAPTYPE`)."""

_POINTER: Final = struct.calcsize("P")  # bytes


def _is_array_of_others(value: Any) -> bool:
    """Return whether a value is an array of another library, or an object that NumPy reads as one."""
    return (
        hasattr(type(value), "__dlpack__") or hasattr(type(value), "__array__") or hasattr(value, "__array_interface__")
    )


def _is_function(value: Any) -> bool:
    """Return whether an object of a C type is a function: NumPy and other libraries define their own function types."""
    return callable(value) and isinstance(getattr(value, "__qualname__", None), str)
