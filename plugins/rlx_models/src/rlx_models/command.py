"""`rlx generate MODEL TEXT`: continue a text with a checkpoint or a GGUF file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from attrs import asdict, frozen

import rlx_core as rlx
from rlx_core.cli.session import CliSession
from rlx_core.errors import ConfigError
from rlx_models.generation import generate
from rlx_models.gguf.tokenizer import tokenizer_of
from rlx_models.loading import from_pretrained
from rlx_models.tokenizers import load_tokenizer


@frozen
class Continuation:
    """A text and its continuation.

    Attributes:
        prompt, text: The text, and the continuation.
        tokens: The number of generated tokens.
        seconds: The time of all tokens; those of the first and the second include compilation.
        is_answer: Whether the prompt was a message of a chat.
    """

    prompt: str
    text: str
    tokens: int
    seconds: float
    is_answer: bool = False


def command(
    ctx: typer.Context,
    folder: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A checkpoint folder with its tokenizer.json, or a .gguf file.")
    ],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The prompt.")],
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", "-n", help="Maximum number of generated tokens.", min=1)
    ] = 40,
    seed: Annotated[int | None, typer.Option(help="Sample tokens with this seed; greedy decoding by default.")] = None,
    temperature: Annotated[float, typer.Option(help="Divisor of logits for sampling.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Sample from the k most probable tokens; 0 for all.")] = 0,
    top_p: Annotated[
        float, typer.Option(help="Sample from the most probable tokens whose probabilities sum to this (nucleus).")
    ] = 1.0,
    min_p: Annotated[
        float, typer.Option(help="Sample from tokens with this fraction of the maximum probability or more.")
    ] = 0.0,
    repetition_penalty: Annotated[
        float | None,
        typer.Option(help="Divisor of the logits of tokens in the text; by default that of generation_config.json."),
    ] = None,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="End before this text; may be given several times.")
    ] = None,
    cache_dtype: Annotated[
        str, typer.Option(help="Dtype of cached keys and values: f32, f16 or bf16 in half of the memory, or int8.")
    ] = "f32",
    activations: Annotated[
        str, typer.Option(help="f32, or int8: rounded to 8 bits where they are multiplied by quantised weights.")
    ] = "f32",
    chat: Annotated[
        bool, typer.Option("--chat", help="Send TEXT as a user's message, by the model's template.")
    ] = False,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="With --chat, the system's message before it.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="The target that runs the model.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    tokens: Annotated[int | None, typer.Option("--tokens", hidden=True)] = None,
) -> None:
    """Continue a text with a decoder (GPT-2, Llama, Qwen3, Mixtral, …), or generate the output of T5 and BART for it."""
    options = {
        "key": None if seed is None else rlx.random.key(seed),
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "cache_dtype": cache_dtype,
        "activations": activations,
        "target": target,
    }

    def answer() -> Continuation:
        if tokens is not None:
            raise ConfigError("rlx generate: --tokens was renamed", hint=f"--max-new-tokens {tokens}")
        if system is not None and not chat:
            raise ConfigError("rlx generate: --system is for chats", hint="add --chat")
        messages = chat_messages(text, system) if chat else None
        return continue_text(folder, text, max_new_tokens, options, stop or (), messages)

    CliSession.of(ctx).answer(answer, asdict if as_json else None, layout)


def continue_text(
    folder: Path,
    text: str,
    max_new_tokens: int,
    options: dict[str, Any],
    stop: Sequence[str] = (),
    messages: Sequence[Mapping[str, str]] | None = None,
) -> Continuation:
    """Return the continuation of a text by a checkpoint, up to the first of the texts in `stop`.

    Args:
        folder: The checkpoint, or a GGUF file.
        options: Further arguments of `generate`.
        messages: A chat, whose text is continued in place of `text`.

    Raises:
        ConfigError: A text in `stop` is empty; or the model has no template of chats.
        PluginError: The package tokenizers, or for chats jinja2, is not installed.
        FileError, FormatError, UnsupportedError: The tokenizer or the model cannot be read.
    """
    if not all(stop):
        raise ConfigError("generate: a stop text is empty", hint="--stop TEXT, or no --stop")
    if folder.suffix.lower() == ".gguf":
        model = rlx.load(folder)
        tokenizer = tokenizer_of(model.metadata)
    else:
        tokenizer = load_tokenizer(folder)
        model = from_pretrained(folder)
    if messages is None:
        prompt = tokenizer.encode(text).ids
    else:
        # The template writes the tokens that begin a text.
        written = model.apply_chat_template(messages, add_generation_prompt=True)
        prompt = tokenizer.encode(written, add_special_tokens=False).ids

    def contains_stop(new: Sequence[int]) -> bool:
        decoded = tokenizer.decode(new)
        return any(each in decoded for each in stop)

    start = time.perf_counter()
    (new,) = generate(model, [prompt], max_new_tokens, stopping_criterion=contains_stop if stop else None, **options)
    seconds = time.perf_counter() - start
    decoded = tokenizer.decode(new)
    end = min((decoded.find(each) for each in stop if each in decoded), default=len(decoded))
    return Continuation(text, decoded[:end], len(new), seconds, messages is not None)


def chat_messages(text: str, system: str | None = None) -> list[dict[str, str]]:
    """Return a chat of a user's message, after a system's message if there is one."""
    begin = [] if system is None else [{"role": "system", "content": system}]
    return [*begin, {"role": "user", "content": text}]


def layout(result: Continuation) -> Iterator[Any]:
    """Yield the text and the time that it took."""
    yield result.text if result.is_answer else result.prompt + result.text
    yield ""
    yield f"{result.tokens} tokens in {result.seconds:.2f} s, including compilation"
