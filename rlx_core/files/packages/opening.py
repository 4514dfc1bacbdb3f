"""Opening a package: selection of code that runs here, and the fallback where none does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlx_core.errors import DeviceError, Fact, FormatError, RlxError
from rlx_core.files.packages.container import Container, read_container
from rlx_core.files.packages.manifest import Manifest, VariantCode
from rlx_core.files.packages.packaged import Contents, PackagedFunction, PackageReport
from rlx_core.ir.attributes import Decoder
from rlx_core.ir.bundle import Bundle
from rlx_core.ir.forms import need
from rlx_core.pipeline.backend import Unpack
from rlx_core.pipeline.config.records import Configuration
from rlx_core.pipeline.contributed import HostOps
from rlx_core.pipeline.set_up import Config, set_up
from rlx_core.pipeline.targets import find_target, opened
from rlx_core.plugins import PluginHost
from rlx_core.runtime.signature import Signature

if TYPE_CHECKING:
    from rlx_core.runtime.compiled_function import CompiledFunction


def import_file(path: Path, host: PluginHost) -> Container:
    """Return the container of a package file, which is not yet trusted; nothing in it has run.

    Raises:
        FormatError: It is no package, of another version, damaged or cut off.
    """
    try:
        return read_container(path)
    except RlxError as error:
        raise error.with_fact(Fact("file", path)) from None


def open_package(
    container: Container,
    *,
    target: str | None = None,
    config: Config = None,
    host: PluginHost | None = None,
    classes: Iterable[type[Any]] = (),
    sha256: str | None = None,
    trusted: bool | None = None,
) -> PackagedFunction:
    """The function of a package.

    Args:
        container: The package.
        target: The requested code, `cpu` or `cpu:avx2`; by default the first that runs here.
        config, host, classes: See `rlx.load`.
        sha256, trusted: See `rlx.load`.

    Raises:
        FileError: Others may have written the file or the user has not agreed to run its code, and no digest was given.
        FormatError: It is another file, damaged, or does not fit itself.
        DeviceError: None of its code runs here, and its program cannot be compiled.
    """
    container.expect_trusted(sha256, trusted)
    manifest = Manifest.from_json(container.manifest)
    inputs = [name for name, _ in manifest.inputs]
    signature = Signature.read(manifest.call, inputs, manifest.params, len(manifest.outputs), classes)
    plugins, configuration = set_up(config, host)
    code, unpack, reasons = _usable(container, manifest, target, plugins, configuration, runs_code=trusted is not False)
    bundle = partial(_bundle, container, manifest, plugins)
    compile = partial(_compiled, bundle, target, config, plugins, configuration, reasons, classes)
    summary = "" if code is None else code.summary
    report = PackageReport(manifest.name, None if code is None else str(code), summary, manifest.sizes, reasons)
    function = PackagedFunction(Contents(report, manifest.inputs, manifest.outputs, unpack, bundle, compile), signature)
    if unpack is None:
        _ = function.compiled  # now, so that errors are raised here
    return function


def _usable(
    container: Container,
    manifest: Manifest,
    target: str | None,
    plugins: PluginHost,
    configuration: Configuration,
    *,
    runs_code: bool,
) -> tuple[VariantCode | None, Unpack | None, dict[str, str]]:
    """The first code that runs here, how its programs are made, and why those before it do not."""
    reasons: dict[str, str] = {}
    for code in manifest.codes:
        if target not in (None, code.target, str(code)):
            reasons[str(code)] = f"is not for {target}"
            continue
        if not runs_code:
            reasons[str(code)] = "is not run: trusted=False"
            continue
        try:
            backend = opened(plugins, code.target)
        except RlxError as error:
            reasons[str(code)] = f"is for a target that is not here ({error.message})"
            continue
        form = container.blobs.json(code.form)
        reason = backend.reason_against_code(form, configuration.options)
        if reason is None:
            return code, backend.unpack(form, container.blobs, configuration.options), reasons
        reasons[str(code)] = reason
    return None, None, reasons


def _bundle(container: Container, manifest: Manifest, plugins: PluginHost) -> Bundle:
    if manifest.program is None:
        raise FormatError(
            f"{manifest.name}: the package holds code alone, and not the program that it was made from",
            hint="rlx.package(…, program=True) puts it in",
        )
    blobs = container.blobs
    form = need(blobs.json(manifest.program), dict, "a program")
    return Bundle.decoded(form, Decoder(HostOps(plugins), lambda number: blobs.arrays([number])[0].data))


def _compiled(
    bundle: Callable[[], Bundle],
    target: str | None,
    config: Config,
    plugins: PluginHost,
    configuration: Configuration,
    reasons: dict[str, str],
    classes: Iterable[type[Any]],
) -> CompiledFunction[..., Any]:
    """The package's own program, compiled.

    Raises:
        DeviceError: It cannot be compiled here as its code was.
    """
    name = None if target is None else target.partition(":")[0]
    _, backend, _ = find_target(plugins, name or configuration.target)
    reason = backend.reason_against_compiling(configuration.options)
    if reason is not None:
        raise DeviceError(
            f"package: its program cannot be compiled here: {reason}",
            *(Fact(code, reason) for code, reason in reasons.items()),
        )
    # Here, because the code of a package needs no compiler.
    from rlx_core.runtime.compiled_function import compile_bundle

    return compile_bundle(bundle(), target=name, config=config, host=plugins, classes=classes)
