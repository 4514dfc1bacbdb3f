"""`rlx serve` as a process: real connections, slow and abandoned ones, and signals."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rlx_core.errors import ConfigError, FileError, PluginError
from rlx_models.serving.command import chat_tokenizer_of, command, import_server, load_with_tokenizer

httpx = pytest.importorskip("httpx", reason="python -m pip install httpx")
pytest.importorskip("starlette", reason="python -m pip install starlette")
pytest.importorskip("uvicorn", reason="python -m pip install uvicorn")

from letters import letter_tokenizer, written_letters  # noqa: E402  # it needs tokenizers

from rlx_models import from_pretrained, generate  # noqa: E402

GREEDY = {"temperature": 0, "ignore_eos": True}
OPTIONS = ("--max-body", "4000", "--body-seconds", "1", "--drain-seconds", "30", "--max-waiting", "32")


class Server:
    """A process of `rlx serve`."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "from rlx_core.cli import run; run()",
                "serve",
                str(folder),
                "--port",
                "0",
                *options,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        match = re.match(r"serving m at http://127.0.0.1:(\d+)\n", line)
        if match is None:
            self.process.kill()
            raise AssertionError(line + self.process.stdout.read())
        self.port = int(match[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> Any:
        return httpx.get(f"{self.url}{path}", timeout=30)

    def post(self, **fields: Any) -> Any:
        return httpx.post(f"{self.url}/v1/completions", json=fields, timeout=30)

    def wait_idle(self) -> None:
        for _ in range(500):
            health = self.get("/health").json()
            if not health["active_slots"] and not health["queue"]:
                return
            time.sleep(0.02)
        raise AssertionError(health)

    def memory(self) -> int:
        """Return the resident memory in bytes."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE")

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written_letters(tmp_path_factory.mktemp("letters") / "m")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    server = Server(folder, *OPTIONS)
    yield server
    server.close()


def greedy(folder: Path, prompt: str, count: int) -> str:
    (tokens,) = generate(from_pretrained(folder), [letter_tokenizer().encode(prompt).ids], count, eos_token_id=())
    text: str = letter_tokenizer().decode(tokens)
    return text


@pytest.mark.medium
def test_a_process_serves_completions(server: Server, folder: Path) -> None:
    assert server.get("/v1/models").json()["data"][0]["id"] == "m"
    response = server.post(prompt="abc", max_tokens=8, **GREEDY)
    assert response.json()["choices"][0]["text"] == greedy(folder, "abc", 8)
    with httpx.stream(
        "POST", f"{server.url}/v1/completions", json={"prompt": "abc", "stream": True, **GREEDY}
    ) as stream:
        lines = [line for line in stream.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    assert len(lines) == 17


def raw(server: Server, *parts: bytes, wait: float = 0.0) -> bytes:
    """Send parts of a request, and return the response until the server closes the connection or nothing comes for 30 s."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(wait)
        received = b""
        while True:
            try:
                chunk = connection.recv(65536)
            except (TimeoutError, ConnectionResetError):
                break
            if not chunk:
                break
            received += chunk
        return received


HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: test\r\n"


@pytest.mark.medium
def test_oversized_malformed_and_slow_requests_have_a_status(server: Server) -> None:
    assert raw(server, HEAD + b"Content-Length: 5000\r\n\r\n").startswith(b"HTTP/1.1 413")
    assert httpx.post(f"{server.url}/v1/completions", content=b" " * 100_000).status_code == 413
    chunked = b"Transfer-Encoding: chunked\r\n\r\n" + (b"800\r\n" + b" " * 2048 + b"\r\n") * 3
    assert raw(server, HEAD + chunked).startswith(b"HTTP/1.1 413")
    assert httpx.post(f"{server.url}/v1/completions", content=b"{").status_code == 400
    assert raw(server, b"\x16\x03\x01 no HTTP\r\n\r\n").startswith(b"HTTP/1.1 400")
    start = time.monotonic()
    response = raw(server, HEAD + b"Content-Length: 100\r\n\r\n", b'{"prompt"', wait=0.3)
    assert response.startswith(b"HTTP/1.1 408")
    assert b'"code":"timeout"' in response
    assert time.monotonic() - start < 25  # less than the limit without the option
    server.wait_idle()


@pytest.mark.medium
def test_clients_that_leave_free_their_slots(server: Server) -> None:
    """During the body, before the response, and within a stream."""
    server.wait_idle()
    before = server.get("/health").json()["tokens"]
    body = json.dumps({"prompt": "a", "max_tokens": 60, "stream": True, **GREEDY}).encode()
    request = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    for count, received in ((20, 0), (len(request), 0), (len(request), 1)):
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
                connection.sendall(request[:count])
                if received:
                    connection.recv(received)
                # A reset instead of an orderly end
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    server.wait_idle()
    assert server.get("/health").json()["tokens"] - before <= 40 * 60
    assert server.post(prompt="a", max_tokens=2, **GREEDY).status_code == 200


async def statuses_of(url: str, count: int, expected: str) -> list[int]:
    """Return the statuses of as many requests at once, after checking their bodies."""
    limits = httpx.Limits(max_connections=count, max_keepalive_connections=count)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=300) as client:

        async def one() -> int:
            fields = {"prompt": "abc", "max_tokens": 8, **GREEDY}
            response = await client.post("/v1/completions", json=fields)
            if response.status_code == 200:
                assert response.json()["choices"][0]["text"] == expected
            else:
                assert (response.status_code, response.json()["error"]["code"]) == (429, "queue_full")
            status: int = response.status_code
            return status

        return list(await asyncio.gather(*(one() for _ in range(count))))


@pytest.mark.slow
def test_1000_connections_at_once(folder: Path) -> None:
    """Each request is answered or refused, nothing is lost, and memory is bounded."""
    server, expected, memory = Server(folder, "--max-waiting", "32"), greedy(folder, "abc", 8), list[int]()
    try:
        for _ in range(2):
            statuses = asyncio.run(statuses_of(server.url, 1000, expected))
            assert len(statuses) == 1000
            assert statuses.count(200) >= 32
            server.wait_idle()
            memory.append(server.memory())
        assert memory[1] - memory[0] < 64 << 20
    finally:
        server.close()


@pytest.mark.medium
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_after_running_requests(folder: Path, number: int) -> None:
    server = Server(folder, *OPTIONS)
    try:
        with httpx.stream(
            "POST", f"{server.url}/v1/completions", json={"prompt": "a", "max_tokens": 60, "stream": True, **GREEDY}
        ) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("data: ")
            server.process.send_signal(number)
            received = [line for line in lines if line]
        assert received[-1] == "data: [DONE]"
        assert server.process.wait(60) == 0
        output = server.process.stdout.read() if server.process.stdout else ""
        assert "Traceback" not in output
    finally:
        server.close()


@pytest.mark.medium
def test_an_address_in_use_is_an_error(server: Server) -> None:
    with pytest.raises(ConfigError, match=rf"serve: port {server.port} of 127\.0\.0\.1 is not available"):
        import_server().bind("127.0.0.1", server.port)
    with pytest.raises(ConfigError, match=r"serve: the host 'no\.such\.host\.invalid' is not available"):
        import_server().bind("no.such.host.invalid", 0)


def test_missing_packages_and_files_are_errors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"the folder has no tokenizer\.json"):
        load_with_tokenizer(tmp_path)
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    monkeypatch.delitem(sys.modules, "rlx_models.serving.server", raising=False)
    monkeypatch.delattr("rlx_models.serving.server", raising=False)
    with pytest.raises(PluginError, match="serve: the package starlette") as caught:
        import_server()
    assert caught.value.hint == "python -m pip install 'rlx-models[serve]'"


def test_the_command_has_help() -> None:
    import typer

    app = typer.Typer()
    app.command("serve")(command)
    ran = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "120"})
    assert ran.exit_code == 0
    assert "--max-waiting" in ran.output


def test_chats_have_the_template_of_the_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="python -m pip install 'rlx-models[chat]'")
    folder = written_letters(tmp_path)
    model, _ = load_with_tokenizer(folder)
    assert chat_tokenizer_of(model) is None
    (folder / "chat_template.jinja").write_text("{% for each in messages %}{{ each.content }}{% endfor %}")
    chats = chat_tokenizer_of(model)
    assert chats is not None
    assert chats.apply_chat_template([{"role": "user", "content": "ab"}], add_generation_prompt=True) == "ab"
