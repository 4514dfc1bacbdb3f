"""Implementation of `rlx package`: load the function, write the package, read back its description."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.padding import Padding

from rlx_core.cli.compiling import sizes as parsed_sizes
from rlx_core.cli.session import CliSession
from rlx_core.cli.tables import facts, heading, listing
from rlx_core.errors import FormatError
from rlx_core.files.load_save import load, path_of, reading
from rlx_core.files.packages.consent import is_known
from rlx_core.files.packages.manifest import Manifest
from rlx_core.files.packages.opening import import_file
from rlx_core.files.packages.packing import package
from rlx_core.functions.model import Model
from rlx_core.runtime.compiled_function import CompiledFunction
from rlx_core.system.records import frozen


@frozen
class ShownPackage:
    """A package as it is shown."""

    path: Path
    manifest: Manifest
    nbytes: int
    program_nbytes: int
    sha256: str
    reason: str | None
    is_known: bool


def made(
    session: CliSession, file: Path, out: Path | None, targets: Sequence[str], sizes: Sequence[str], code_only: bool
) -> ShownPackage:
    """The package that was written.

    Raises:
        FormatError: The file holds something else than a compiled function. And see `rlx.package`.
    """
    compiled = load(file, host=session.host, config=session.config)
    if not isinstance(compiled, CompiledFunction | Model):
        raise FormatError(
            f"package: {file} holds neither a compiled function nor a model",
            hint="rlx.save of what rlx.compile returned makes such a file",
        )
    path = file.with_suffix(".rlxpack") if out is None else out
    combinations = [parsed_sizes(words.split(","), "--sizes") for words in sizes]
    package(compiled, path, targets or None, sizes=combinations, program=not code_only)
    return found(session, path)


def found(session: CliSession, file: Path) -> ShownPackage:
    """The description of a package, after every blob was checked; nothing of it is run.

    Raises:
        FileError, FormatError: The file cannot be read, is not a package, or is damaged.
    """
    path = path_of("package", file)
    with reading("package", path):
        container = import_file(path, session.host)
    container.blobs.expect_whole()
    manifest = Manifest.from_json(container.manifest)
    program = 0 if manifest.program is None else container.blobs.nbytes(manifest.program)
    known = is_known(container.identity)
    return ShownPackage(path, manifest, container.contents.size, program, container.sha256, container.reason, known)


def package_json(shown: ShownPackage) -> dict[str, Any]:
    manifest = shown.manifest
    return {
        "file": str(shown.path),
        "sha256": shown.sha256,
        "nbytes": shown.nbytes,
        "name": manifest.name,
        "rlx": manifest.rlx,
        "inputs": {name: repr(type) for name, type in manifest.inputs},
        "outputs": {name: repr(type) for name, type in manifest.outputs},
        "parameters": list(manifest.params),
        "sizes": [{repr(symbol): size for symbol, size in sorted(each.sizes.items())} for each in manifest.sizes],
        "guards": list(manifest.guards),
        "codes": [{"target": str(c), "summary": c.summary, "nbytes": c.nbytes} for c in manifest.codes],
        "has_program": manifest.program is not None,
        "trusted": shown.reason is None and shown.is_known,
    }


def _trust(shown: ShownPackage) -> str:
    if shown.reason:
        return f"it {shown.reason}: load it with its digest"
    return "" if shown.is_known else f"not known: its code runs after `rlx trust {shown.path}`, or with its digest"


def package_layout(shown: ShownPackage) -> Iterator[Any]:
    manifest = shown.manifest
    sizes = ", ".join(map(str, manifest.sizes)) if any(each.sizes for each in manifest.sizes) else ""
    yield heading(f"{manifest.name}, packaged by rlx {manifest.rlx}")
    yield facts(
        [
            ("inputs", ", ".join(f"{name}: {type}" for name, type in manifest.inputs)),
            ("outputs", ", ".join(f"{name}: {type}" for name, type in manifest.outputs)),
            ("sizes", sizes),
            ("guards", ", ".join(manifest.guards)),
            (
                "program",
                "none: other sizes and machines are refused" if manifest.program is None else "compiled for others",
            ),
            ("file", f"{shown.path}, {shown.nbytes:,} bytes"),
            ("sha256", shown.sha256),
            ("trust", _trust(shown)),
        ]
    )
    rows = [(str(code), code.summary, f"{code.nbytes:,}") for code in manifest.codes]
    yield Padding(listing(["code", "for", "bytes>"], rows), (1, 0, 0, 2))
