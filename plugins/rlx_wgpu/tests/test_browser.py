"""Exported programs: what is written, and that a browser computes from it what Python does."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import ConfigError, FormatError
from rlx_core.plugins import PluginHost
from rlx_wgpu.export import export

LOADER = Path(__file__).parents[3] / "examples" / "browser" / "rlx.js"
X = np.linspace(-2, 2, 48, dtype=np.float32).reshape(6, 8)
W = np.linspace(-1, 1, 80, dtype=np.float32).reshape(8, 10)


def program(w: Any, x: Any, at: Any) -> Any:
    h = nn.softmax(nn.gelu(x) @ w)
    chosen = rlx.take(h, at, axis=0)
    return h, rlx.argmax(h, axis=1), chosen > 0.1, rlx.astype(chosen, "f16")


def compiled(host: PluginHost | None = None, target: str = "wgpu:absent") -> Any:
    return rlx.compile(program, W, rlx.spec("f32[6, 8]"), rlx.spec("i64[3]"), target=target, host=host)


def test_what_is_written_says_all_that_a_run_needs(tmp_path: Path) -> None:
    form, contents = export(compiled(), tmp_path / "site")
    found = json.loads(form.read_text())
    raw = contents.read_bytes()

    assert [each["name"] for each in found["inputs"]] == ["x", "at"]
    assert [(each["dtype"], each["shape"]) for each in found["outputs"]] == [
        ("f32", [6, 10]), ("i64", [6]), ("bool", [3, 10]), ("f16", [3, 10]),
    ]  # fmt: skip
    assert any(raw[c["from"] :][: c["nbytes"]] == W.tobytes() for c in found["contents"])
    assert all(c["offset"] + c["nbytes"] <= found["heap"] for c in found["contents"])
    assert ["test_browser.py:" in each["where"] for each in found["faults"]] == [True]
    assert all(f"fn {step['entry']}(" in found["sources"][step["source"]] for step in found["steps"])
    assert "i64" not in "".join(found["sources"])  # no browser has them


def test_programs_that_are_not_whole_on_a_device_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the program is for cpu, and browsers run WGSL"):
        export(rlx.compile(lambda x: x + 1, rlx.spec("f32[2]"), target="cpu"), tmp_path)
    with pytest.raises(ConfigError, match="n are not known"):
        export(rlx.compile(lambda x: x + 1, rlx.spec("f32[n]"), target="wgpu:absent"), tmp_path)
    with pytest.raises(FormatError, match="an input or an output has no elements"):
        export(rlx.compile(lambda x: x[:0] + 1, rlx.spec("f32[2]"), target="wgpu:absent"), tmp_path)
    allowed = {"dispatch": {"allow-host": ["linalg.cholesky"]}}
    factoring = rlx.compile(rlx.linalg.cholesky, rlx.spec("f32[3, 3]"), target="wgpu:absent", config=allowed)
    with pytest.raises(FormatError, match=r"export: .* runs on the host"):
        export(factoring, tmp_path)


# ---------------------------------------------------------------------------------------------- in Chromium

PAGE = """
<!doctype html><script type="module">
import { load } from "./rlx.js";
const said = {};
try {
  const given = await (await fetch("given.json")).json();
  const program = await load("site");
  const inputs = { x: new Float32Array(given.x), at: new BigInt64Array(given.at.map(BigInt)) };
  const plain = (found) => Object.entries(found).map(([name, array]) => [name, Array.from(array, Number)]);
  said.first = plain(await program.run(inputs));
  try { await program.run({ ...inputs, at: new BigInt64Array([0n, 1n, 6n]) }); } catch (error) { said.fault = String(error); }
  try { await program.run({ ...inputs, at: new BigInt64Array([0n, -9n, 7n]) }); } catch (error) { said.before = String(error); }
  try { await program.run({ ...inputs, x: [1, 2] }); } catch (error) { said.wrong = String(error); }
  said.again = plain(await program.run(inputs));
} catch (error) { said.error = String(error); }
await fetch("said", { method: "POST", body: JSON.stringify(said) });
</script>
"""
WEBGPU_IN_SOFTWARE = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader")


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, threading.Event, list[Any]]]:
    """The address of a folder's files, and what a page says of itself there."""
    heard, said = threading.Event(), []

    class Handler(SimpleHTTPRequestHandler):
        def do_POST(self) -> None:
            said.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()
            heard.set()

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", heard, said
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.slow
def test_a_browser_computes_what_python_does(tmp_path: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    export(compiled(), tmp_path / "site")
    at = np.array([5, 0, 2])
    (tmp_path / "given.json").write_text(json.dumps({"x": X.ravel().tolist(), "at": at.tolist()}))
    (tmp_path / "index.html").write_text(PAGE)
    shutil.copy(LOADER, tmp_path)
    with served(tmp_path) as (address, heard, said):
        options = ("--headless=new", "--no-sandbox", f"--user-data-dir={tmp_path / 'profile'}", *WEBGPU_IN_SOFTWARE)
        browser = subprocess.Popen(
            [chromium, *options, f"{address}/index.html"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            assert heard.wait(120), "the page says nothing"
        finally:
            browser.kill()
            browser.wait()
    (found,) = said
    assert "error" not in found, found["error"]
    assert "test_browser.py:" in found["fault"]
    assert "index 6 is outside an axis of 6 elements" in found["fault"]
    assert "index -9 is outside" in found["before"]
    assert found["wrong"] == "TypeError: x is f32[6,8]: a Float32Array of 48"
    assert found["again"] == found["first"]
    right = rlx.jit(program, target="cpu")(W, X, at)
    for (_, values), expected in zip(found["first"], right, strict=True):
        bits = np.array(values, np.uint16).view(np.float16) if expected.dtype == np.float16 else np.array(values)
        np.testing.assert_allclose(
            bits.reshape(expected.shape), expected, rtol=2e-3 if expected.dtype == np.float16 else 2e-5
        )
