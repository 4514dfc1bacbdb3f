"""The time of a first call, taken in a new process: nothing that an earlier call left in memory can help.

    python -m benchmarks.first_call rlx 1 128

The process imports, finds the device and maps the weights first; the clock runs from there to the first result. What starts from
a file, `package`, `imported` and `onnxruntime`, finds it in the cache directory, and reading it is part of the call.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen

from benchmarks.case import Data, Program
from rlx_core.errors import Fact, RlxError

ROOT = Path(__file__).resolve().parents[1]


@frozen(eq=False)
class FirstCall:
    """The report of a process: the time of its first call, and the result."""

    seconds: float
    embedding: np.ndarray


def first_call(system: str, data: Data, cache: Path) -> FirstCall:
    """Start a process that calls MiniLM once, with its cache in `cache`."""
    output = answer_of("benchmarks.first_call", (system, str(data["batch"]), str(data["length"])), cache)
    return FirstCall(output["seconds"], np.array(output["embedding"], np.float32))


def program(
    system: str,
    data: Data,
    cache: tempfile.TemporaryDirectory[str] | None = None,
    files: Mapping[str, bytes] | None = None,
) -> Program:
    """The first call of MiniLM, which takes its own time: with a cache, or each time with an empty one that has `files`."""

    def run() -> FirstCall:
        if cache is not None:
            return first_call(system, data, Path(cache.name))
        with tempfile.TemporaryDirectory() as empty:
            for name, content in (files or {}).items():
                Path(empty, name).write_bytes(content)
            return first_call(system, data, Path(empty))

    return Program(lambda: None, lambda: [run().embedding], clock=lambda: run().seconds)


def answer_of(module: str, words: Sequence[str], cache: Path) -> Any:
    """The JSON in the last line that a module prints in a new process, with its cache in `cache`.

    Raises:
        RlxError: The process failed; its last words are in the facts.
    """
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    # As in a user's process: the cache is where it is by default, and packages have their bytecode, as installed ones do.
    environ = {n: v for n, v in os.environ.items() if n not in ("RLX_CACHE_DIR", "PYTHONDONTWRITEBYTECODE")}
    environ |= {"PYTHONPATH": paths, "XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, "-m", module, *words]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode != 0:
        output = done.stderr.strip().splitlines()[-1:] or ["nothing"]
        raise RlxError(f"bench: the first call of {' '.join(words)} failed", Fact("said", output[0]))
    return json.loads(done.stdout.splitlines()[-1])


def seconds_of(source: str) -> list[float]:
    """The seconds that a program prints in a process with an empty cache, and in another one after it.

    PoCL's own cache is another folder for each, so nothing comes from that.
    """
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for number in range(2):
            environ = {**os.environ, "RLX_CACHE_DIR": f"{folder}/rlx", "POCL_CACHE_DIR": f"{folder}/pocl{number}"}
            command = [sys.executable, "-c", source]
            runs.append(subprocess.run(command, env=environ, capture_output=True, text=True, check=True))
    return [float(each.stdout) for each in runs]


PACKAGE, MODEL = "minilm.rlxpack", "minilm.onnx"
"""Name in the cache directory of the file that some systems start from."""


def file_of(name: str) -> Path:
    return Path(os.environ["XDG_CACHE_HOME"]) / name


def main(system: str, batch: int, length: int) -> None:
    if system == "rlx":
        # Imports are no part of the first call of any system, nor is finding the device: JAX's has the weights already.

        import rlx_core as rlx
        import rlx_cpu.native.runtime.program
        from benchmarks.cases.minilm import compiled, data

        rlx.Session("cpu")

        inputs = data(batch, length)

        def call() -> Any:
            return compiled(inputs)(inputs["ids"], inputs["mask"])
    elif system == "package":
        import rlx_core as rlx
        import rlx_core.files.packages.opening
        import rlx_cpu.backend
        import rlx_cpu.packaged.opening
        from benchmarks.cases.minilm import data

        inputs = data(batch, length)

        def call() -> Any:
            return rlx.load(file_of(PACKAGE), trusted=True)(inputs["ids"], inputs["mask"])
    elif system == "imported":
        import rlx_core as rlx
        import rlx_cpu.native.runtime.program  # noqa: F401
        import rlx_onnx.reading.model  # noqa: F401
        from benchmarks.cases.minilm import data
        from rlx_onnx.walking.table import TABLE

        rlx.Session("cpu")
        TABLE.names()
        inputs = data(batch, length)

        def call() -> Any:
            return rlx.load(file_of(MODEL))(inputs["ids"], inputs["mask"])
    elif system == "onnxruntime":
        import onnxruntime

        from benchmarks.cases.minilm import data

        inputs = data(batch, length)

        def call() -> Any:
            session = onnxruntime.InferenceSession(file_of(MODEL), providers=["CPUExecutionProvider"])
            return session.run(None, {name: inputs[name] for name in ("ids", "mask")})[0]
    else:
        from benchmarks.cases.minilm import data
        from benchmarks.peers.jax_xla import minilm

        inputs = data(batch, length)
        call = minilm(inputs).run
    start = time.perf_counter()
    result = call()
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "embedding": np.asarray(result, np.float64).ravel().tolist()}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
