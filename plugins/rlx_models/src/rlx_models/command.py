"""`rlx generate FOLDER TEXT`: how a checkpoint continues a text."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from attrs import asdict, frozen

import rlx_core as rlx
from rlx_core.cli.session import Session
from rlx_core.errors import ConfigError, Fact, FileError, FormatError, PluginError
from rlx_models.generation.generate import generate
from rlx_models.loading import from_pretrained

__all__ = ["Continuation", "command", "continuation"]


@frozen
class Continuation:
    """A text and what came behind it.

    Attributes:
        seconds: Of all tokens; those of the first and of the second hold compiling.
    """

    prompt: str
    text: str
    tokens: int
    seconds: float


def command(
    ctx: typer.Context,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A checkpoint of a decoder, with its tokenizer.json.")
    ],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to continue.")],
    tokens: Annotated[int, typer.Option("--tokens", "-n", help="The most tokens behind it.", min=1)] = 40,
    seed: Annotated[int | None, typer.Option(help="Draw tokens; without it the likeliest ones are taken.")] = None,
    temperature: Annotated[float, typer.Option(help="Of drawn tokens.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Draw among so many of the likeliest; 0 for all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Draw among the likeliest that have this share together.")] = 1.0,
    min_p: Annotated[float, typer.Option(help="Draw among those with this share of the likeliest one's chance.")] = 0.0,
    repetition_penalty: Annotated[
        float | None,
        typer.Option(help="Divide the logits of tokens that were there; what the checkpoint says unless given."),
    ] = None,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="End before this text; may be given several times.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="What runs it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Continue a text with a decoder (GPT-2, Llama, Qwen3, Mixtral, …), or write what T5 and BART make of it."""
    drawing = {
        "key": None if seed is None else rlx.random.key(seed),
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
    }
    Session.of(ctx).answer(
        lambda: continuation(folder, text, tokens, target, drawing, stop or ()), asdict if as_json else None, layout
    )


def continuation(
    folder: Path, text: str, tokens: int, target: str | None, drawing: dict[str, Any], stop: Sequence[str] = ()
) -> Continuation:
    """How a checkpoint continues a text, up to one that stops it.

    Raises:
        ConfigError: A text that stops it is empty.
        PluginError: The package tokenizers is not installed.
        FileError, FormatError: The tokenizer cannot be read.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise PluginError(
            "generate: texts become tokens by tokenizers", hint="python -m pip install tokenizers"
        ) from None
    place = folder / "tokenizer.json"
    if not place.is_file():
        raise FileError("generate: there is no tokenizer.json", Fact("folder", folder))
    try:
        tokenizer = Tokenizer.from_file(str(place))
    except Exception as error:  # noqa: BLE001 the package raises bare exceptions
        raise FormatError(f"tokenizer.json: {error}", Fact("file", place)) from None
    if not all(stop):
        raise ConfigError("generate: a text that stops it is empty", hint="--stop TEXT, or no --stop")
    model = from_pretrained(folder)
    prompt = tokenizer.encode(text).ids
    begun = time.perf_counter()
    has_stopped = None if not stop else lambda new: any(each in tokenizer.decode(new) for each in stop)
    (found,) = generate(model, [prompt], tokens, until=has_stopped, target=target, **drawing)
    seconds = time.perf_counter() - begun
    written = tokenizer.decode(found)
    end = min((written.find(each) for each in stop if each in written), default=len(written))
    return Continuation(text, written[:end], len(found), seconds)


def layout(found: Continuation) -> Iterator[Any]:
    """The text, and how long it took."""
    yield found.prompt + found.text
    yield ""
    yield f"{found.tokens} tokens in {found.seconds:.2f} s, compiling included"
