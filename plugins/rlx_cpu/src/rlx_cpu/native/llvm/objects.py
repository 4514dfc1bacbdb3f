"""Cache of functions across processes, keyed by their inputs, so that a hit needs neither emitter nor LLVM's optimiser.

The key of a library of functions consists of the emitters' inputs (kernels, ops, layouts, instruction set) and versions: the
stamp of every package that affects the code. An entry consists of the emitters' results, as JSON, and the object files.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final

from attrs import field

from rlx_core.codegen.places import Layout, Place
from rlx_core.ir.encoding import Encoder
from rlx_core.ir.fingerprint import literal_digest
from rlx_core.ir.forms import PLAIN_FORMS
from rlx_core.ir.graph import Node, ops_inside
from rlx_core.ir.lir import Lir
from rlx_core.ir.plan_form import encode_lir
from rlx_core.pipeline.backend import ObjectStore
from rlx_core.plugins import package_of, stamp_of
from rlx_core.system.records import frozen
from rlx_cpu.native import llvm
from rlx_cpu.native.contract import Emitted
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.jit import JitCode, link_cached, object_cache
from rlx_cpu.native.llvm.optimise import generate, machine_words
from rlx_cpu.native.machine import CpuMachine

if TYPE_CHECKING:
    from rlx_cpu.native.llvm import ir
    from rlx_cpu.native.llvm.background import JobFuture

_HEADER: Final = struct.Struct("<Q")  # bytes of the JSON; the object follows

CORE: Final = ("rlx_core", "rlx_cpu")
"""Packages whose code affects every function, in addition to the packages of its ops."""


@frozen(eq=False)
class Function:
    """The inputs from which a function is emitted.

    Attributes:
        machine: The machine parameters of its schedule, if they differ from those of the instruction set.
    """

    kernel: str
    node: Node
    layout: Layout
    nested: Mapping[str, Lir] = field(factory=dict)
    nested_offset: int = 0
    machine: CpuMachine | None = None

    @property
    def key(self) -> Hashable:
        """Equal for steps that share a function."""
        return self.kernel, self.node.op, self.layout


@frozen(eq=False)
class Library:
    """Functions in this process, and the results of their emitters; `None` for a kernel without an emitter."""

    emitted: tuple[Emitted | None, ...]
    code: JitCode | None


@frozen(eq=False)
class Making:
    """The object files of modules, made in the background; what several of them call is made once."""

    isa: Isa
    objects: list[JobFuture[bytes]] = field(factory=list)
    _library_modules: set[str] = field(factory=set)

    def add(self, module: ir.Module) -> None:
        """Add a module, and the library modules that it needs."""
        for name, needed in module.apart.items():
            if name not in self._library_modules:
                self._library_modules.add(name)
                self._make(str(needed))
        self._make(module.alone())

    def _make(self, text: str) -> None:
        self.objects.append(llvm.background.later(partial(generate, text, self.isa)))


Emitting = Callable[[int], "tuple[ir.Module, Emitted] | None"]
"""Emits the function with a number in a separate module, with its `Emitted`; `None` without an emitter."""


def library(functions: Sequence[Function], isa: Isa, emit: Emitting, packages: frozenset[str] = frozenset()) -> Library:
    """Return the functions as code: from the cache, or emitted now and stored.

    Args:
        packages: Packages whose emitters take part in addition to this one.
    """
    if not functions:
        return Library((), None)
    return _found_or_made(key_of(functions, isa, packages), len(functions), isa, emit)


def sized_library(forms: Sequence[str], isa: Isa, emit: Emitting) -> Library:
    """Return dynamic-shape functions as code; the key is all their inputs and the code of this package and of the core."""
    if not forms:
        return Library((), None)
    stamp = stamp_of(CORE)
    text = json.dumps(["sizes", stamp, machine_words(isa), forms])
    return _found_or_made(None if stamp is None else hashlib.sha256(text.encode()).hexdigest(), len(forms), isa, emit)


def _found_or_made(key: str | None, count: int, isa: Isa, emit: Emitting) -> Library:
    store = object_cache()
    if key is not None and store is not None:
        cached = _read(store, key, count, isa)
        if cached is not None:
            return cached
    return _made(count, isa, emit, None if key is None or store is None else (store, key))


def _made(count: int, isa: Isa, emit: Emitting, entry: tuple[ObjectStore, str] | None) -> Library:
    """Return all functions. LLVM compiles emitted functions while others are emitted; storing them is not waited for."""
    emitted: list[Emitted | None] = []
    making = Making(isa)
    with llvm.background.yielding():
        for number in range(count):
            function = emit(number)
            emitted.append(None if function is None else function[1])
            if function is not None:
                making.add(function[0])
    objects = making.objects
    _bind_symbols(emitted)
    if not objects:
        return Library(tuple(emitted), None)

    def put(object_code: Sequence[bytes]) -> bool:
        return entry is not None and entry[0].put(entry[1], _packed(entry[1], emitted, object_code))

    return Library(tuple(emitted), JitCode.of(objects, isa, None if entry is None else put))


def _bind_symbols(emitted: Iterable[Emitted | None]) -> None:
    """Bind what functions call of other libraries, before they are linked."""
    foreign = [each for one in emitted if one is not None for each in one.foreign]
    if foreign:
        from rlx_cpu.native.llvm.foreign import bind_symbols  # here, because few functions call any

        bind_symbols(foreign)


def key_of(functions: Sequence[Function], isa: Isa, packages: frozenset[str] = frozenset()) -> str | None:
    """The name of some functions together; `None` if an op or an emitter is not from a package, so that its code has no stamp."""
    stamp = stamp_of(
        {*CORE, *packages, *(package_of(type(op)) for each in functions for op in ops_inside(each.node.op))}
    )
    if stamp is None:
        return None
    encoder = Encoder(literal_digest, keeps_names=False)
    rows = [
        [
            each.kernel,
            encoder.op(each.node.op),
            [None if p is None else _place(p) for p in each.layout.operands],
            [_place(p) for p in each.layout.results],
            {name: encode_lir(plan, encoder) for name, plan in sorted(each.nested.items())},
            None if each.machine is None else repr(each.machine),
        ]
        for each in functions
    ]
    return hashlib.sha256(json.dumps([stamp, machine_words(isa), rows]).encode()).hexdigest()


def _place(place: Place) -> list[Any]:
    literal = None if place.literal is None else place.literal.hex()
    flags = [place.is_bound, place.is_held, place.is_fresh, place.is_inside]
    return [repr(place.type), list(place.strides), *flags, literal]


# ------------------------------------------------------------------------------------------- entries

_Results = tuple[Emitted | None, ...]
"""The annotation of the emitters' results in an entry."""


def _packed(key: str, emitted: Sequence[Emitted | None], objects: Sequence[bytes]) -> bytes:
    functions = PLAIN_FORMS.write(emitted, _Results)
    head = {"key": key, "functions": functions, "objects": [len(data) for data in objects]}
    text = json.dumps(head, separators=(",", ":"), default=dict).encode()
    return b"".join([_HEADER.pack(len(text)), text, *objects])


def _read(store: ObjectStore, key: str, count: int, isa: Isa) -> Library | None:
    """The entry of a key; one that turns out to be something else is removed, and everything is made again."""
    entry = store.get(key)
    if entry is None:
        return None
    try:
        (length,) = _HEADER.unpack_from(entry)
        start = _HEADER.size + length
        head = json.loads(entry[_HEADER.size : start])
        if head["key"] != key:
            raise ValueError(f"it is of {head['key']!s:.16}")
        emitted: _Results = PLAIN_FORMS.read(head["functions"], _Results, "functions")
        ends = list(accumulate(head["objects"], initial=start))
        if len(emitted) != count or ends[-1] != len(entry):
            raise ValueError(f"it has {len(emitted)} functions and {len(entry)} bytes, not {count} and {ends[-1]}")
        objects = [entry[a:b] for a, b in pairwise(ends)]
        _bind_symbols(emitted)
        code = JitCode(link_cached(objects, isa), is_cached=True) if objects else None
        for each in emitted:
            if each is not None and code is not None:
                code.address(each.function)
    except (ValueError, KeyError, TypeError, struct.error, RuntimeError) as error:
        store.drop(key, f"{type(error).__name__}: {error}")
        return None
    return Library(emitted, code)
