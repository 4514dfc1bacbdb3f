"""The HTTP server of `rlx serve`: OpenAI's protocol over Starlette and uvicorn (the extra `serve`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final, TypeVar

import uvicorn
from attrs import field, frozen
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from rlx_core.errors import ConfigError
from rlx_models.serving.protocol import (
    CompletionBody,
    HttpError,
    ResponseFormat,
    parse_completion,
    parse_json,
)
from rlx_models.serving.service import Generation, Service, failure

T = TypeVar("T")

CLIENT_CLOSED: Final = 499
"""The status in logs for a client that closed the connection; it is not sent."""


@frozen(kw_only=True)
class ServerLimits:
    """Limits of the server.

    Attributes:
        body_nbytes: The maximum size of a body.
        body_seconds: The time in which a body must arrive.
        write_seconds: The time in which a client must accept an event of a stream.
        drain_seconds: The time that running requests have when the server ends.
        connections: The maximum number of connections; further ones are answered with 503.
    """

    body_nbytes: int = 1 << 20
    body_seconds: float = 30.0
    write_seconds: float = 30.0
    drain_seconds: float = 30.0
    connections: int = 2048


def application(
    service: Service, limits: ServerLimits | None = None, is_exiting: Callable[[], bool] = lambda: False
) -> Starlette:
    """Return the ASGI application; its lifespan starts and stops the engine.

    Args:
        is_exiting: Whether the server is to end: from then on requests are refused, and running ones have `drain_seconds`.
    """
    known = limits or ServerLimits()
    endpoints = Endpoints(service, known)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        service.start()
        drain = asyncio.create_task(service.drain(is_exiting, known.drain_seconds))
        try:
            yield
        finally:
            drain.cancel()
            await service.close()

    return Starlette(
        routes=[
            Route("/v1/completions", endpoints.completions, methods=["POST"]),
            Route("/v1/chat/completions", endpoints.chat, methods=["POST"]),
            Route("/v1/models", endpoints.models, methods=["GET"]),
            Route("/health", endpoints.health, methods=["GET"]),
        ],
        exception_handlers={
            HttpError: _on_error,
            HTTPException: _on_status,
            ClientDisconnect: _on_disconnect,
        },
        lifespan=lifespan,
    )


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; port 0 is a free one. Connections wait until `serve` accepts them.

    Raises:
        ConfigError: The address is not available.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        result = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"serve: the host {host!r} is not available ({error})") from None
    try:
        result.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        result.bind(address)
        result.listen()
    except OSError as error:
        result.close()
        raise ConfigError(
            f"serve: port {port} of {host} is not available ({error.strerror})", hint="--port 0"
        ) from None
    return result


def serve(service: Service, listener: socket.socket, limits: ServerLimits) -> None:
    """Run the server until SIGINT or SIGTERM; then finish running requests, up to `drain_seconds`."""
    server: uvicorn.Server

    def is_exiting() -> bool:
        return bool(server.should_exit)

    config = uvicorn.Config(
        application(service, limits, is_exiting),
        http="h11",
        ws="none",
        lifespan="on",
        access_log=False,
        log_level="warning",
        limit_concurrency=limits.connections,
        # Responses to requests that are ended at the deadline are still to be written.
        timeout_graceful_shutdown=int(limits.drain_seconds) + 5,
    )
    server = uvicorn.Server(config)
    # uvicorn raises the signal again when it has shut down: this is its handler then, and the process ends normally.
    previous = {each: signal.signal(each, lambda *_: None) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.run(sockets=[listener])
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)


# --------------------------------------------------------------------------------------- endpoints


@frozen
class Endpoints:
    """The functions of the routes."""

    service: Service
    limits: ServerLimits

    async def health(self, _: Request) -> Response:
        state = self.service.health()
        return JSONResponse(state, status_code=200 if state["status"] == "ok" else 503)

    async def models(self, _: Request) -> Response:
        return JSONResponse(self.service.models())

    async def completions(self, request: Request) -> Any:
        return await self._respond(request, is_chat=False)

    async def chat(self, request: Request) -> Any:
        return await self._respond(request, is_chat=True)

    async def _respond(self, request: Request, *, is_chat: bool) -> Any:
        service = self.service
        service.expect_running()
        body = parse_completion(parse_json(await self._body(request)), is_chat=is_chat)
        service.expect_model(body.model)
        options = await service.constrained(body.options, body.schema)
        if body.messages is None:
            generation = await service.submit_prompts(body.prompts, options, body.n)
        else:
            generation = await service.submit_chat(body.messages, options, body.n)
        layout = ResponseFormat(service.model_name, is_chat)
        if body.is_streamed:
            return EventStream(generation, layout, body, self.limits)
        try:
            response = await unless_disconnected(request.receive, _complete(generation, layout))
        finally:
            generation.cancel()
        return Response(status_code=CLIENT_CLOSED) if response is None else response

    async def _body(self, request: Request) -> bytes:
        """Return the body.

        Raises:
            HttpError: It is larger than `body_nbytes`, or did not arrive within `body_seconds`.
        """
        limit = self.limits.body_nbytes
        too_large = HttpError(413, f"the body is larger than {limit} bytes", code="body_too_large")
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and (len(declared) > 18 or int(declared) > limit):
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > limit:
                        raise too_large
        except TimeoutError:
            message = f"the body did not arrive within {self.limits.body_seconds:g} s"
            raise HttpError(408, message, code="timeout", headers={"Connection": "close"}) from None
        return bytes(body)


async def _complete(generation: Generation, layout: ResponseFormat) -> Response:
    """Return the response of all texts, when they have ended."""
    async for _ in generation.updates():
        pass
    choices = []
    for index, request in enumerate(generation.requests):
        error = failure(request.finish_reason, request.error)
        if error is not None:
            raise error
        logprobs = generation.logprobs(index, request.logprobs)
        choices.append((request.text, str(request.finish_reason), logprobs))
    return JSONResponse(layout.result(choices, generation.usage()))


@frozen
class EventStream:
    """The response of server-sent events; requests are cancelled when the client closes the connection.

    Source:
        WHATWG, HTML Living Standard, section 9.2, "Server-sent events".
    """

    generation: Generation
    layout: ResponseFormat
    body: CompletionBody
    limits: ServerLimits
    headers: tuple[tuple[bytes, bytes], ...] = field(
        init=False,
        default=((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")),
    )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            # A client that does not accept events in time is treated as one that closed the connection.
            with contextlib.suppress(TimeoutError):
                await unless_disconnected(receive, self._write(send))
        finally:
            self.generation.cancel()

    async def _write(self, send: Send) -> None:
        await self._send(send, {"type": "http.response.start", "status": 200, "headers": list(self.headers)})
        async for event in self._events():
            text = event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)
            data = f"data: {text}\n\n".encode()
            await self._send(send, {"type": "http.response.body", "body": data, "more_body": True})
        await self._send(send, {"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, message: Message) -> None:
        async with asyncio.timeout(self.limits.write_seconds):
            await send(message)

    async def _events(self) -> AsyncIterator[dict[str, Any] | str]:
        generation, layout = self.generation, self.layout
        if layout.is_chat:
            for index in range(len(generation.requests)):
                yield layout.role(index)
        async for index, update in generation.updates():
            error = failure(update.finish_reason, generation.requests[index].error)
            if error is not None:
                yield error.body
                return
            if update.text or update.logprobs or update.finish_reason is not None:
                logprobs = generation.logprobs(index, update.logprobs) if update.logprobs else None
                yield layout.delta(index, update.text, update.finish_reason, logprobs)
        if self.body.has_usage:
            yield layout.usage(generation.usage())
        yield "[DONE]"


async def unless_disconnected(receive: Receive, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of a coroutine; if the client closes the connection first, cancel it, and return `None`."""
    task: asyncio.Task[T] = asyncio.create_task(work)
    gone = asyncio.create_task(_disconnect(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


# ------------------------------------------------------------------------------------------- errors


def _error_response(error: HttpError) -> Response:
    return JSONResponse(error.body, status_code=error.status, headers=dict(error.headers))


async def _on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HttpError), "the handler of its class"
    return _error_response(error)


async def _on_status(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "the handler of its class"
    return _error_response(HttpError(error.status_code, error.detail, headers=error.headers or {}))


async def _on_disconnect(_: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED)
