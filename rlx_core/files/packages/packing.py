"""`rlx.package`: a compiled function as one file that runs where nothing is compiled."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlx_core import __version__
from rlx_core.errors import BindingError, CacheError, ConfigError, Fact
from rlx_core.errors.contained import contained
from rlx_core.files.load_save import path_of, writing
from rlx_core.files.packages.consent import MADE_HERE, TrustedPackage, remember
from rlx_core.files.packages.container import BlobStore, write_container
from rlx_core.files.packages.manifest import Manifest, VariantCode
from rlx_core.functions.model import Model
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.attributes import Encoder
from rlx_core.ir.bind import named_binding
from rlx_core.ir.bundle import Bundle, Bundled
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.graph import leaf_name
from rlx_core.pipeline.backend import ABSENT
from rlx_core.plugins import PluginHost
from rlx_core.runtime.compiled_function import CompiledFunction
from rlx_core.runtime.executable import Executable


@checked_call
def package(
    compiled: CompiledFunction[..., Any] | Model,
    path: str | os.PathLike[str],
    targets: str | Sequence[str] | None = None,
    *,
    sizes: Sequence[Mapping[str, int]] = (),
    program: bool = True,
) -> str:
    """Write a compiled function to a file that `rlx.load` runs without compiling: code, weights as the code reads them, plan.

    On the CPU the code needs Linux and the instruction set it was made for, independent of the processor's model, and neither
    llvmlite nor the packages that the function's ops came from. On a device it is kernels in the device's language, with the
    driver's compiled binaries where these can be stored: another device of the language compiles the kernels, and no plan
    is made. Arrays of such a function are the host's. The file holds code, so only its owner may change it.

    Args:
        compiled: The result of `rlx.compile`, or of `rlx.load` of a `.rlx` file; or a model, which is compiled.
        path: The file, `.rlxpack`; it appears as a whole, or on an error stays as it was.
        targets: The targets of the code, in the order in which `rlx.load` tries it: `["gpu", "cpu:avx512", "cpu:avx2"]`.
            A target without a variant is this machine's, and `gpu:absent` is most devices of a kind that is not here; by default
            the target that the function was compiled for.
        sizes: Of a function with symbolic sizes, those to have programs for: `[{"batch": 1}, {"batch": 8}]`.
        program: Whether the file also holds the program with its weights as they were given, to be compiled for other sizes
            and machines. Weights that the code reads as they are, are there once.

    Returns:
        The SHA-256 of the file, as hex digits; `rlx.load(path, sha256=...)` runs no other file. This user's `rlx.load(path)`
        needs none here, because the package is added to the list of known packages (`rlx trust`).

    Raises:
        ConfigError: It is no compiled function, or a target has no such variant, or none that a package can hold.
        NoKernelError: A step of it is run from Python, which a package does not hold.
        UnsupportedError: It is a model that runs in several programs, because it has data-dependent shapes.
        BindingError, UnknownNameError, GuardError: `sizes` leave one open, name none, or contradict the program.
        FileError: The file cannot be written (an OSError).
    """
    if isinstance(compiled, Model):
        compiled = compiled.compile()
    _expect_compiled(compiled)
    bundle, target = compiled.bundle(), compiled.executable.lir.target
    bindings = _bindings(bundle, sizes)
    store, codes = BlobStore(), []
    executables = {target: compiled.executable}
    for requested in _listed(targets, target):
        name, variant = _parted(requested)
        if name not in executables:
            executables[name] = compiled.on(name).executable
        codes.append(_code(executables[name], bindings, variant, store))
    executable = compiled.executable
    manifest = Manifest(
        name=bundle.graph.name,
        rlx=__version__,
        call=bundle.call,
        inputs=tuple(executable.inputs.items()),
        outputs=tuple(executable.outputs.items()),
        params=tuple(leaf_name(value) for value in bundle.graph.params),
        sizes=tuple(bindings),
        guards=tuple(str(guard) for guard in executable.lir.guards),
        codes=tuple(codes),
        program=store.add_json(bundle.encoded(Encoder(lambda literal: store.add(literal.array)))) if program else None,
    )
    location = path_of("package", path)
    with writing("package", location):
        sha256, identity = write_container(location, manifest.to_json(), store)
    try:
        remember(TrustedPackage(identity, sha256, os.path.abspath(location), MADE_HERE))
    except CacheError as error:
        warnings.warn(
            f"package: {location} is not in the list of known packages ({error.message})", RuntimeWarning, stacklevel=2
        )
    return sha256


def export_file(path: Path, value: Any, host: PluginHost) -> None:
    """Write a compiled function as `package` does, for this machine."""
    package(value, path)


def _expect_compiled(value: object) -> None:
    """Require a compiled function; other callables with its interface cannot be packaged.

    Raises:
        ConfigError: It is something else.
        UnsupportedError: It is several programs.
    """
    if isinstance(value, CompiledFunction):
        return
    if isinstance(value, Bundled):
        value.bundle()  # raises its specific error if it is not a single program
    raise ConfigError(
        f"package: takes what rlx.compile returns, not a {type(value).__name__}",
        hint="rlx.package(rlx.compile(function, params, rlx.spec(...)), path)",
    )


def _listed(targets: str | Sequence[str] | None, default: str) -> list[str]:
    """The targets to have code for.

    Raises:
        ConfigError: The list is empty.
    """
    result = [default] if targets is None else [targets] if isinstance(targets, str) else list(targets)
    if not result:
        raise ConfigError(
            "package: targets is empty, and a package holds code", hint='targets=["cpu:avx2"], or rlx.save'
        )
    return result


def _parted(text: str) -> tuple[str, str | None]:
    """Split a target as `rlx.compile` takes it, with an optional device number, from the requested variant of its code."""
    name, _, more = text.partition(":")
    if more == ABSENT or more.isdecimal():
        return text, None
    return name, more or None


def _bindings(bundle: Bundle, sizes: Sequence[Mapping[str, int]]) -> list[DimBinding]:
    """The combinations of sizes to have programs for, each once.

    Raises:
        BindingError: One leaves a size open.
    """
    graph = bundle.graph
    bindings = list(dict.fromkeys(named_binding(graph, each) for each in sizes)) or [DimBinding()]
    for binding in bindings:
        left = sorted(repr(symbol) for symbol in graph.symbols - binding.sizes.keys())
        if left:
            raise BindingError(
                f"package: {', '.join(left)} {'is' if len(left) == 1 else 'are'} not bound, and code is for known sizes",
                Fact("sizes", binding),
                hint=f"package(…, sizes=[{{{', '.join(f'{name!r}: 1' for name in left)}}}, …])",
            )
    return bindings


def _code(executable: Executable, bindings: Sequence[DimBinding], variant: str | None, store: BlobStore) -> VariantCode:
    compiled = executable.compiled
    used: set[int] = set()

    def keep(array: Any) -> int:
        number = store.add(array)
        used.add(number)
        return number

    programs = [executable.planned(binding) for binding in bindings]
    with contained("backends", compiled.target.name, "packing its code"):
        packed = compiled.backend.pack(programs, compiled.target, variant, keep)
    form = store.add_json(packed.form)
    nbytes = sum(len(store.blobs[number]) for number in {*used, form})
    return VariantCode(compiled.target.name, packed.variant, packed.summary, form, nbytes)
