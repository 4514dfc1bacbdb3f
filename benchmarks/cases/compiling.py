"""The first call of MiniLM in a fresh process: compiled without a cache, with another process's cache, from a package."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.case import Case, Data, Program
from benchmarks.cases import minilm
from benchmarks.first_call import PACKAGE, first_call, program


def data() -> Data:
    return {"batch": 1, "length": 128}


def cold(data: Data) -> Program:
    return program("rlx", data)


def cached(data: Data) -> Program:
    cache = tempfile.TemporaryDirectory()
    first_call("rlx", data, Path(cache.name))
    return program("rlx", data, cache)


def packaged(data: Data) -> Program:
    import rlx_core as rlx  # here, because only this case needs it

    cache = tempfile.TemporaryDirectory()
    sizes = minilm.data(data["batch"], data["length"])
    rlx.package(minilm.compiled(sizes), Path(cache.name) / PACKAGE)
    return program("package", data, cache)


CASES = (
    Case("compile-cold", "compile", data, cold, rtol=0, atol=1e-5, is_repeatable=False, aim=1.0),
    Case("compile-cached", "compile", data, cached, rtol=0, atol=1e-5, is_repeatable=False, aim=0.15),
    Case("compile-packaged", "package", data, packaged, rtol=0, atol=1e-5, is_repeatable=False, aim=0.5),
)
