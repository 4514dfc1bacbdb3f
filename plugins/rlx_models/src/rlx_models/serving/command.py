"""`rlx serve MODEL`: an HTTP server with OpenAI's protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import rlx_core as rlx
from rlx_core.cli.session import CliSession, quietly
from rlx_core.errors import PluginError
from rlx_models.gguf.tokenizer import tokenizer_of
from rlx_models.loading import from_pretrained
from rlx_models.model import PretrainedModel
from rlx_models.serving.engine import ServingEngine
from rlx_models.serving.service import ChatTokenizer, Service
from rlx_models.tokenizers import Tokenizer, load_tokenizer


def command(
    ctx: typer.Context,
    folder: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A checkpoint folder with its tokenizer.json, or a .gguf file.")
    ],
    host: Annotated[
        str, typer.Option(help="The address; 0.0.0.0 for all, which needs a proxy with authentication.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option(help="The port.", min=0, max=65535)] = 8000,
    name: Annotated[str | None, typer.Option(help="The name of the model; by default that of the file.")] = None,
    max_batch: Annotated[int, typer.Option(help="Requests that are generated at a time.", min=1)] = 8,
    max_length: Annotated[
        int | None, typer.Option(help="Tokens of a prompt and its continuation; by default at most 2048.", min=2)
    ] = None,
    max_waiting: Annotated[int, typer.Option(help="Requests that wait; further ones receive 429.", min=1)] = 64,
    prefill_chunk: Annotated[
        int, typer.Option(help="Tokens of prompts that are processed between two steps; a multiple of 16.", min=16)
    ] = 256,
    prefix_tokens: Annotated[
        int | None,
        typer.Option(
            help="Tokens that are stored for later prompts with the same beginning, a multiple of 16; 0 for none, "
            "by default those of two requests.",
            min=0,
        ),
    ] = None,
    cache_dtype: Annotated[
        str, typer.Option(help="Dtype of cached keys and values: f32, f16 or bf16 in half of the memory, or int8.")
    ] = "f32",
    max_body: Annotated[int, typer.Option(help="Maximum size of a body in bytes.", min=1)] = 1 << 20,
    body_seconds: Annotated[float, typer.Option(help="Time in which a body must arrive.", min=0.1)] = 30.0,
    write_seconds: Annotated[float, typer.Option(help="Time in which a client must accept an event.", min=0.1)] = 30.0,
    drain_seconds: Annotated[float, typer.Option(help="Time of running requests at the end.", min=0.0)] = 30.0,
    max_connections: Annotated[int, typer.Option(help="Maximum number of connections.", min=1)] = 2048,
    target: Annotated[str | None, typer.Option(help="The target that runs the model.")] = None,
) -> None:
    """Serve a decoder over HTTP: /v1/completions, /v1/chat/completions, /v1/models and /health, as OpenAI's protocol."""
    session = CliSession.of(ctx)

    def start() -> tuple[Any, Any, Service]:
        server = import_server()
        listener = server.bind(host, port)
        model, tokenizer = load_with_tokenizer(folder)
        engine = ServingEngine(
            model,
            tokenizer=tokenizer,
            max_batch=max_batch,
            max_length=max_length,
            max_waiting=max_waiting,
            prefill_chunk=prefill_chunk,
            prefix_tokens=prefix_tokens,
            cache_dtype=cache_dtype,
            target=target,
        )
        engine.warm_up()
        return server, listener, Service(engine, name or folder.stem, chat_tokenizer_of(model))

    server, listener, service = quietly(start)
    limits = server.ServerLimits(
        body_nbytes=max_body,
        body_seconds=body_seconds,
        write_seconds=write_seconds,
        drain_seconds=drain_seconds,
        connections=max_connections,
    )
    address = f"[{host}]" if ":" in host else host
    session.print(f"serving {service.model_name} at http://{address}:{listener.getsockname()[1]}")
    server.serve(service, listener, limits)


def import_server() -> Any:
    """Return the module of the server.

    Raises:
        PluginError: The packages of the extra `serve` are not installed.
    """
    try:
        # starlette and uvicorn are optional
        from rlx_models.serving import server
    except ImportError as error:
        raise PluginError(
            f"serve: the package {error.name} is not installed", hint="python -m pip install 'rlx-models[serve]'"
        ) from None
    return server


def load_with_tokenizer(path: Path) -> tuple[PretrainedModel, Tokenizer]:
    """Return the model and the tokenizer of a checkpoint folder or a GGUF file.

    Raises:
        PluginError: The package tokenizers is not installed.
        FileError, FormatError, UnsupportedError: The tokenizer or the model cannot be read.
    """
    if path.suffix.lower() == ".gguf":
        model: PretrainedModel = rlx.load(path)
        return model, tokenizer_of(model.metadata)
    tokenizer = load_tokenizer(path)
    return from_pretrained(path), tokenizer


def chat_tokenizer_of(model: PretrainedModel) -> ChatTokenizer | None:
    """Return the model if it has a template of chats, else `None`."""
    return None if model.chat_template is None else model
