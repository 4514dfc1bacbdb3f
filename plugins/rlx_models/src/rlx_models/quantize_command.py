"""`rlx quantize MODEL --scheme SCHEME -o FILE`: a model as a GGUF file in fewer bits, with the error of each tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from attrs import asdict

from rlx_core.cli.session import CliSession
from rlx_core.cli.tables import cell, listing
from rlx_core.errors import ConfigError
from rlx_models.quantizing import QuantizedTensor, quantize

Records = tuple[QuantizedTensor, ...]


def command(
    ctx: typer.Context,
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A checkpoint folder with safetensors files, or a .gguf file.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="Write this .gguf file; it may exist.")],
    scheme: Annotated[
        str,
        typer.Option(metavar="SCHEME", help="q4_0, q8_0, q4_k, q6_k, …, f16 or bf16; for matrices of whole blocks."),
    ],
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN=SCHEME",
            help="Another scheme for the tensors with such names (* and ?); may be repeated, the first match counts.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write a model to a GGUF file in fewer bits, and list the error of each tensor.

    \b
    rlx quantize FOLDER --scheme q4_0 -o model.gguf
    rlx quantize model.gguf --scheme q4_k --keep "output.*=q6_k" -o small.gguf

    Embeddings and the projection to logits have the scheme too; norms and biases are f32, and matrices whose rows are not whole
    blocks remain as they are. Errors of a tensor and of its worst block (row:block) are relative to the rms of its values.
    """
    session = CliSession.of(ctx)

    def answer() -> Records:
        return quantize(model, out, scheme=scheme, keep=parsed(keep or ()), host=session.host)

    session.answer(answer, (lambda records: [asdict(each) for each in records]) if as_json else None, layout)


def parsed(keep: Sequence[str]) -> dict[str, str]:
    """Return schemes by pattern.

    Raises:
        ConfigError: A word is not PATTERN=SCHEME, or has a pattern again.
    """
    result: dict[str, str] = {}
    for word in keep:
        pattern, equals, scheme = word.rpartition("=")
        if not equals or not pattern or not scheme:
            raise ConfigError(f"rlx quantize: --keep {word!r:.80} is not PATTERN=SCHEME", hint='--keep "output.*=q8_0"')
        if pattern in result:
            raise ConfigError(f"rlx quantize: --keep has the pattern {pattern!r:.80} twice")
        result[pattern] = scheme
    return result


def layout(records: Records) -> Iterator[Any]:
    """Yield the table of tensors, and the sizes of all."""
    yield listing(
        ("tensor", "shape", "scheme", "bytes>", "rms error>", "worst block"), [_row(record) for record in records]
    )
    before, after = sum(each.nbytes_before for each in records), sum(each.nbytes for each in records)
    yield cell(f"\n{len(records)} tensors, {before:,} → {after:,} bytes")


def _row(record: QuantizedTensor) -> tuple[str, ...]:
    shape = "×".join(map(str, record.shape))
    scheme = record.scheme if record.stored == record.scheme else f"{record.stored} → {record.scheme}"
    size = (
        f"{record.nbytes:,}"
        if record.nbytes == record.nbytes_before
        else f"{record.nbytes_before:,} → {record.nbytes:,}"
    )
    if record.error is None or record.worst_error is None or record.worst_block is None:
        return record.name, shape, scheme, size, "", ""
    row, block = record.worst_block
    return record.name, shape, scheme, size, f"{record.error:.5f}", f"{record.worst_error:.5f} at {row}:{block}"
