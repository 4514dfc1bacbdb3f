"""Kernels on one of NVIDIA's GPUs vs. PyTorch's: `python -m benchmarks.cuda`, or `make bench-cuda`.

Times are medians by CUDA events around calls on data that lies on the device; both systems work on the default stream. PyTorch,
if it is installed with CUDA, runs eagerly and compiled (`max-autotune`); rlx is compared with whichever is faster, and results
have to agree. Whole models are timed by `rlx bench --target cuda`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from attrs import asdict, frozen

import rlx_core as rlx
from benchmarks.first_call import seconds_of
from rlx_core import nn
from rlx_core.errors import RlxError

SAMPLES = 30
DTYPES = {"f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16)}


@frozen
class CudaCase:
    """A program for both systems.

    Attributes:
        rlx, torch: Functions of the arrays; PyTorch's is given its module first.
        shapes: Of the arrays.
        goal: The part of the best peer's time that rlx should take at most.
        nbytes, flops: Least number of bytes that a call moves, or of its operations.
    """

    name: str
    rlx: Callable[..., Any]
    torch: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    goal: float
    nbytes: int = 0
    flops: int = 0


@frozen
class ResultRow:
    """The times of a case in microseconds per call; `None` where there is no peer, and rlx's where the case failed.

    Attributes:
        failure: The error of a case that was refused, ran out of memory or had another result than PyTorch.
    """

    name: str
    rlx: float | None
    eager: float | None
    compiled: float | None
    goal: float
    rate: str
    failure: str = ""

    @property
    def ratio(self) -> float | None:
        peers = [each for each in (self.eager, self.compiled) if each is not None]
        return self.rlx / min(peers) if peers and self.rlx is not None else None


def cases(scale: int) -> list[CudaCase]:
    """All cases, with axes divided by `scale`."""
    rows: list[CudaCase] = []

    def add(name: str, ours: Any, theirs: Any, shapes: Any, dtype: str, goal: float, **work: int) -> None:
        rows.append(CudaCase(name, ours, theirs, shapes, dtype, goal, **work))

    n = (64 << 20) // scale**2
    add("chain f32 256 MB", lambda x: rlx.tanh(x) * 0.5 + x * x, lambda t, x: t.tanh(x) * 0.5 + x * x, ((n,),), "f32", 0.95,
        nbytes=8 * n)  # fmt: skip
    for width in (512, 1024, 4096, 8192):
        shape = (max(n // width, 8), width)
        each = {"nbytes": 8 * shape[0] * width}
        w = (width,)
        add(
            f"softmax f32 rows of {width}",
            lambda x: nn.softmax(x),
            lambda t, x: t.softmax(x, -1),
            (shape,),
            "f32",
            0.95,
            **each,
        )
        add(f"layer norm f32 rows of {width}", lambda x, w, b: nn.layer_norm(x, w, b),
            lambda t, x, w, b: t.nn.functional.layer_norm(x, x.shape[-1:], w, b), (shape, w, w), "f32", 0.95, **each)  # fmt: skip
        add(f"RMS norm f32 rows of {width}", lambda x, w: nn.rms_norm(x, w, eps=1e-6),
            lambda t, x, w: t.nn.functional.rms_norm(x, x.shape[-1:], w, 1e-6), (shape, w), "f32", 0.95, **each)  # fmt: skip
    for dtype in ("bf16", "f32"):
        for size in (1024, 2048, 4096, 8192):
            m = max(size // scale, 8)
            square, work = (m, m), {"flops": 2 * m**3}
            add(
                f"product {dtype} {size}",
                lambda x, w: x @ w,
                lambda t, x, w: x @ w,
                (square, square),
                dtype,
                1.0,
                **work,
            )
            add(f"product {dtype} {size}, bias and GELU", lambda x, w, b: nn.gelu(x @ w + b),
                lambda t, x, w, b: t.nn.functional.gelu(t.addmm(b, x, w)), (square, square, (m,)), dtype, 0.95,
                **work)  # fmt: skip
            add(f"product {dtype} {size}, bias and GELU by tanh", lambda x, w, b: rlx.gelu_approx(x @ w + b),
                lambda t, x, w, b: t.nn.functional.gelu(t.addmm(b, x, w), approximate="tanh"),
                (square, square, (m,)), dtype, 0.95, **work)  # fmt: skip
    for head in (64, 128):
        for length in (1024, 4096, 16384):
            s = max(length // scale, 8)
            heads, shape = 16, (1, s, 16 * head)
            add(f"attention bf16 head {head}, {length}, causal",
                lambda q, k, v, heads=heads: nn.attention(q, k, v, num_heads=heads, is_causal=True),
                lambda t, q, k, v, heads=heads: attended(t, q, k, v, heads), (shape,) * 3, "bf16", 1.15,
                flops=2 * s * s * heads * head)  # fmt: skip
            add(f"attention bf16 head {head}, {length}, causal, backward",
                lambda q, k, v, dy, heads=heads: differentiated(q, k, v, dy, heads),
                lambda t, q, k, v, dy, heads=heads: attended_backward(t, q, k, v, dy, heads), (shape,) * 4, "bf16", 1.15,
                flops=7 * s * s * heads * head)  # fmt: skip
    return rows


def differentiated(q: Any, k: Any, v: Any, dy: Any, heads: int) -> Any:
    """The forward pass, and the cotangents that `dy` gives."""

    def loss(q: Any, k: Any, v: Any) -> Any:
        return rlx.sum(nn.attention(q, k, v, num_heads=heads, is_causal=True) * dy)

    return rlx.grad(loss, argnums=(0, 1, 2))(q, k, v)


def attended(torch: Any, q: Any, k: Any, v: Any, heads: int) -> Any:
    q, k, v = (each.unflatten(-1, (heads, -1)).transpose(1, 2) for each in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)


def attended_backward(torch: Any, q: Any, k: Any, v: Any, dy: Any, heads: int) -> Any:
    leaves = [each.detach().requires_grad_() for each in (q, k, v)]
    with torch.enable_grad():
        return torch.autograd.grad(attended(torch, *leaves, heads), leaves, dy)


# ------------------------------------------------------------------------------------------------ timing


def by_events(call: Callable[[], Any]) -> float:
    """The median of microseconds that the device takes for a call."""
    import cupy

    def sample(times: int) -> float:
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record(cupy.cuda.Stream.null)
        for _ in range(times):
            call()
        end.record(cupy.cuda.Stream.null)
        end.synchronize()
        return 1e3 * float(cupy.cuda.get_elapsed_time(start, end)) / times

    once = max(sample(5), sample(5))
    times = max(1, int(5000 / max(once, 1)))  # 5 ms a sample, beyond the resolution of an event
    return statistics.median(sample(times) for _ in range(SAMPLES))


def by_wall(call: Callable[[], Any]) -> float:
    """The same by the host's clock, for the stand-in, whose times have no meaning."""
    for each in each_of(call()):
        np.asarray(each)
    start = time.perf_counter()
    for each in each_of(call()):
        np.asarray(each)
    return 1e6 * (time.perf_counter() - start)


def host_time(call: Callable[[], Any]) -> float:
    """Microseconds of the host for a call without synchronisation."""
    for _ in range(20):
        call()
    samples = []
    for _ in range(SAMPLES):
        start = time.perf_counter()
        for _ in range(50):
            call()
        samples.append(2e4 * (time.perf_counter() - start))
    return statistics.median(samples)


def measured(case: CudaCase, torch: Any, clock: Callable[[Callable[[], Any]], float]) -> ResultRow:
    """The row of a case; one that fails has a row too, so that the others are timed."""
    try:
        return timed(case, torch, clock)
    except (RlxError, MemoryError, RuntimeError) as error:  # PyTorch's errors of devices are RuntimeErrors
        return ResultRow(case.name, None, None, None, case.goal, "", f"{type(error).__name__}: {error}".splitlines()[0])


def timed(case: CudaCase, torch: Any, clock: Callable[[Callable[[], Any]], float]) -> ResultRow:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, np.float32).astype(DTYPES[case.dtype]) for shape in case.shapes]
    on_device = [rlx.device_put(each, "cuda") for each in arrays]
    ours = rlx.jit(case.rlx, target="cuda", outputs="device")
    taken = clock(lambda: ours(*on_device))
    eager = compiled = None
    if torch is not None:
        kind = {"f32": torch.float32, "bf16": torch.bfloat16}[case.dtype]
        theirs = [torch.from_numpy(each.astype(np.float32)).to("cuda", kind) for each in arrays]
        quick = torch.compile(lambda *xs: case.torch(torch, *xs), mode="max-autotune-no-cudagraphs")
        with torch.no_grad():
            for mine, other in zip(each_of(ours(*on_device)), each_of(quick(*theirs)), strict=True):
                expect_close(mine.to_host(), other.float().cpu().numpy(), case)
            eager, compiled = clock(lambda: case.torch(torch, *theirs)), clock(lambda: quick(*theirs))
    done = case.nbytes or case.flops
    rate = f"{1e-3 * done / taken:.0f} GB/s" if case.nbytes else f"{1e-6 * done / taken:.1f} TFLOP/s"
    return ResultRow(case.name, taken, eager, compiled, case.goal, rate)


def each_of(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


class DifferenceError(RuntimeError):
    """Two systems have different results."""


def expect_close(ours: np.ndarray, theirs: np.ndarray, case: CudaCase) -> None:
    """Require that both computed the same, to a few roundings of the largest element.

    Raises:
        DifferenceError: They did not.
    """
    difference = float(np.abs(ours.astype(np.float32).reshape(theirs.shape) - theirs).max())
    allowed = {"f32": 1e-4, "bf16": 3e-2}[case.dtype] * float(np.abs(theirs).max())
    if not difference <= allowed:  # a NaN is no agreement
        raise DifferenceError(f"results differ from PyTorch's by {difference:.3g}, of which {allowed:.3g} is allowed")


FIRST = """
import time, numpy as np, rlx_core as rlx
from rlx_core import nn
x = np.ones((64, 256), np.float32)
start = time.perf_counter()
f = rlx.jit(lambda x: nn.softmax(nn.gelu(x @ x.T) @ x), target="cuda")
f(x)
print(time.perf_counter() - start)
"""


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cuda", description=__doc__)
    parser.add_argument("names", nargs="*", help="only cases whose names contain one of these")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--scale", type=int, default=1, help="divide sizes, to try this program")
    arguments = parser.parse_args(words)
    try:
        (device, *_) = rlx.devices("cuda")
    except RlxError as error:
        print(f"nothing was timed: {error}")
        return 2
    is_stand_in = os.environ.get("RLX_CUDA_STAND_IN", "") in ("1", "true")
    if is_stand_in:
        print("this is the stand-in: no number below says anything of a GPU")
    torch = importlib.import_module("torch") if importlib.util.find_spec("torch") else None
    torch = torch if torch is not None and torch.cuda.is_available() else None
    print(f"{device}; peers: {'PyTorch ' + torch.__version__ if torch else 'none (pip install torch)'}")
    print(f"{'':44} {'rlx us':>9} {'eager':>9} {'compiled':>9} {'ratio':>6} {'goal':>5}")
    rows = []
    for case in cases(arguments.scale):
        if arguments.names and not any(name in case.name for name in arguments.names):
            continue
        row = measured(case, torch, by_wall if is_stand_in else by_events)
        rows.append(row)
        print(line(row), flush=True)
        if arguments.json is not None:  # after each case: what follows may end the process
            arguments.json.write_text(json.dumps([asdict(each) for each in rows], indent=1))
    if not arguments.names:
        vector = rlx.device_put(np.ones(64, np.float32), "cuda")
        call = rlx.jit(lambda x: x + 1, target="cuda", outputs="device")
        print(f"host time of a call: {host_time(lambda: call(vector)):.1f} us (goal 15)")
        print(f"first call, with an empty cache and after it: {', '.join(f'{s:.2f} s' for s in seconds_of(FIRST))}")
    return 1 if any(row.failure for row in rows) else 0


def line(row: ResultRow) -> str:
    """A row of the table."""
    if row.failure:
        return f"{row.name:44} {row.failure}"
    numbers = [f"{each:9.1f}" if each is not None else f"{'-':>9}" for each in (row.rlx, row.eager, row.compiled)]
    ratio = f"{row.ratio:6.2f}" if row.ratio is not None else f"{'-':>6}"
    return f"{row.name:44} {' '.join(numbers)} {ratio} {row.goal:5.2f}  {row.rate}"


if __name__ == "__main__":
    sys.exit(main())
