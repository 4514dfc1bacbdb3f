"""`rlx package`: a saved function as a file with its code, and what such a file holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.padding import Padding

from rlx_core.cli.compile import sizes as parsed_sizes
from rlx_core.cli.session import CliSession
from rlx_core.cli.tables import facts, heading, listing
from rlx_core.errors import FormatError
from rlx_core.files.load_save import load, path_of, reading
from rlx_core.files.packages import packing
from rlx_core.files.packages.consent import is_known
from rlx_core.files.packages.manifest import Manifest
from rlx_core.files.packages.opening import import_file
from rlx_core.functions.model import Model
from rlx_core.runtime.compiled_function import CompiledFunction
from rlx_core.system.records import frozen


def package(
    ctx: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A compiled function that was saved, or a model; with --show a package."),
    ],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="Write it here; by default beside FILE, as .rlxpack."),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:VARIANT]", help="What to have code for: gpu, cpu:avx2; may be repeated, best first."
        ),
    ] = None,
    sizes: Annotated[
        list[str] | None,
        typer.Option(metavar="SYMBOL=SIZE,…", help="A combination of sizes to have a program for; may be repeated."),
    ] = None,
    code_only: Annotated[
        bool,
        typer.Option("--code-only", help="Leave out the program, which other sizes and machines are compiled from."),
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Check a package and say what it holds, without running it.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write a saved function to a file that runs where nothing is compiled, or show what such a file holds.

    \b
    rlx package model.rlx --target cpu:avx512 --target cpu:avx2 --sizes batch=1 --sizes batch=8
    rlx package --show model.rlxpack
    """
    session = CliSession.of(ctx)
    session.answer(
        (lambda: found(session, file))
        if show
        else (lambda: made(session, file, out, tuple(target or ()), tuple(sizes or ()), code_only)),
        package_json if as_json else None,
        package_layout,
    )


@frozen
class ShownPackage:
    """A package as it is shown."""

    path: Path
    manifest: Manifest
    nbytes: int
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
    packing.package(compiled, path, targets or None, sizes=combinations, program=not code_only)
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
    known = is_known(container.identity)
    return ShownPackage(path, manifest, container.contents.size, container.sha256, container.reason, known)


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
