"""How first calls grow with the length of a program: 100 … 20,000 nodes, each in a new process with nothing cached.

    python -m benchmarks.growth                          # every program, rlx vs. jax.jit where JAX is installed
    python -m benchmarks.growth runge-kutta encoder --most 2000 --out pictures --json growth.json

Lengths are numbers of traced nodes, gradients included. A process imports, finds the device and makes the data first; the clock
runs from there to the first result. Two programs that grow as their length are two lines of slope one in the picture, whose axes
are logarithmic. JAX is left out above `JAX_MOST` nodes, or when a shorter program took it `JAX_SECONDS` already.
"""

from __future__ import annotations

import argparse
import html
import importlib.util
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import asdict, frozen

from benchmarks.first_call import answer_of

LENGTHS: Final = (100, 300, 1000, 3000, 10_000, 20_000)
JAX_MOST: Final = 3000
JAX_SECONDS: Final = 30.0

Arrays = tuple[Any, ...]
Program = Callable[[Any, int], tuple[Callable[..., Any], Arrays]]
"""What namespace to compute with (`rlx_core` or `jax.numpy`), and how many steps → a function and its arguments."""


def random(*shape: int) -> np.ndarray:
    return (np.random.default_rng(0).standard_normal(shape) * 0.1).astype(np.float32)


def chain(xp: Any, steps: int) -> tuple[Callable[..., Any], Arrays]:
    """Element-wise ops one after the other."""

    def run(x: Any) -> Any:
        for i in range(steps):
            x = xp.sin(x) if i % 2 else x * 1.01
        return xp.sum(x)

    return run, (random(1024),)


def runge_kutta(xp: Any, steps: int) -> tuple[Callable[..., Any], Arrays]:
    """Steps of the classical method for `y' = tanh(y w)`, unrolled."""
    h = 0.01

    def run(y: Any, w: Any) -> Any:
        for _ in range(steps):
            k1 = xp.tanh(y @ w)
            k2 = xp.tanh((y + h / 2 * k1) @ w)
            k3 = xp.tanh((y + h / 2 * k2) @ w)
            k4 = xp.tanh((y + h * k3) @ w)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return xp.sum(y)

    return run, (random(4, 16), random(16, 16))


def gru(xp: Any, steps: int) -> tuple[Callable[..., Any], Arrays]:
    """A gated recurrent unit over a sequence, unrolled."""

    def sigmoid(x: Any) -> Any:
        return 1 / (1 + xp.exp(-x))

    def run(xs: Any, w: Any, u: Any, b: Any) -> Any:
        h = xs[0] @ w[0] * 0
        for t in range(steps):
            z = sigmoid(xs[t] @ w[0] + h @ u[0] + b[0])
            r = sigmoid(xs[t] @ w[1] + h @ u[1] + b[1])
            n = xp.tanh(xs[t] @ w[2] + (r * h) @ u[2] + b[2])
            h = (1 - z) * n + z * h
        return xp.sum(h * h)

    return run, (random(steps, 8, 16), random(3, 16, 32), random(3, 32, 32), random(3, 32))


def encoder(xp: Any, layers: int) -> tuple[Callable[..., Any], Arrays]:
    """Layers of an encoder with one set of weights: one head of attention, two norms, two products."""

    def norm(x: Any) -> Any:
        centred = x - xp.mean(x, axis=-1, keepdims=True)
        return centred / xp.sqrt(xp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)

    def run(x: Any, w: Any, up: Any, down: Any) -> Any:
        for _ in range(layers):
            q, k, v = x @ w[0], x @ w[1], x @ w[2]
            scores = xp.exp(q @ xp.permute_dims(k, (1, 0)) * 0.125)
            x = norm(x + (scores / xp.sum(scores, axis=-1, keepdims=True)) @ v @ w[3])
            x = norm(x + xp.tanh(x @ up) @ down)
        return xp.sum(x * x)

    return run, (random(16, 64), random(4, 64, 64), random(64, 128), random(128, 64))


PROGRAMS: Final[dict[str, Program]] = {"chain": chain, "runge-kutta": runge_kutta, "gru": gru, "encoder": encoder}


@frozen
class Point:
    """One first call: of `steps` steps, which are `nodes` nodes to rlx."""

    program: str
    system: str
    steps: int
    nodes: int
    seconds: float
    cpu_seconds: float


# ------------------------------------------------------------------------------------------ one process


def function_of(program: str, xp: Any, steps: int, grad: Callable[..., Any]) -> tuple[Callable[..., Any], Arrays]:
    """The function that a name means: `gru` itself, `gru-grad` its gradient in all arguments."""
    name = program.removesuffix("-grad")
    function, arrays = PROGRAMS[name](xp, steps)
    return (function if name == program else grad(function, argnums=tuple(range(len(arrays))))), arrays


def first_call(system: str, program: str, steps: int) -> dict[str, float]:
    """The seconds of a first call, here and now."""
    call: Callable[[], object]
    if system == "rlx":
        import rlx_core as rlx
        import rlx_cpu.native.runtime.program  # noqa: F401

        rlx.Session("cpu")
        function, arrays = function_of(program, rlx, steps, rlx.grad)
        compiled = rlx.jit(function)

        def call() -> object:
            return compiled(*arrays)
    else:
        import jax

        function, arrays = function_of(program, jax.numpy, steps, jax.grad)
        arrays = tuple(map(jax.numpy.asarray, arrays))
        jitted = jax.jit(function)

        def call() -> object:
            return jax.block_until_ready(jitted(*arrays))

    start, cpu = time.perf_counter(), time.process_time()
    call()
    return {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}


def in_a_process(system: str, program: str, steps: int) -> dict[str, float]:
    """The same in a fresh process with an empty cache."""
    with tempfile.TemporaryDirectory() as empty:
        words = ("--first-call", system, program, str(steps))
        seconds: dict[str, float] = answer_of("benchmarks.growth", words, Path(empty))
    return seconds


# ---------------------------------------------------------------------------------------------- lengths


def nodes_of(program: str, steps: int) -> int:
    """How many nodes rlx traces."""
    import rlx_core as rlx

    function, arrays = function_of(program, rlx, steps, rlx.grad)
    return len(rlx.trace(function, *arrays))


def steps_for(program: str, nodes: int) -> int:
    """The steps with which a program has about so many nodes; programs are as long as their steps, but for a few nodes."""
    few, more = nodes_of(program, 2), nodes_of(program, 6)
    return max(1, round((nodes - few) / ((more - few) / 4)) + 2)


def growth(programs: Sequence[str], lengths: Sequence[int], repeats: int = 1, jax_most: int = JAX_MOST) -> list[Point]:
    """The points of all lines, printed as they are measured; medians of `repeats`, systems in turns."""
    has_jax = importlib.util.find_spec("jax") is not None
    points_of_all: list[Point] = []
    print(f"{'program':<18} {'nodes':>6} {'steps':>6} {'rlx s':>8} {'of processor':>12} {'jax.jit s':>10} {'ratio':>6}")
    for program in programs:
        jax_seconds = 0.0
        for length in lengths:
            steps = steps_for(program, length)
            nodes = nodes_of(program, steps)
            systems = ["rlx"]
            systems += ["jax.jit"] if has_jax and nodes <= jax_most * 1.1 and jax_seconds < JAX_SECONDS else []
            runs = [{s: in_a_process(s, program, steps) for s in systems} for _ in range(repeats)]
            points = {s: Point(program, s, steps, nodes, *medians([r[s] for r in runs])) for s in systems}
            points_of_all += points.values()
            rlx, jax = points["rlx"], points.get("jax.jit")
            line = f"{program:<18} {nodes:>6} {steps:>6} {rlx.seconds:>8.2f} {rlx.cpu_seconds:>12.2f}"
            if jax is not None:
                jax_seconds = jax.seconds
                line += f" {jax.seconds:>10.2f} {rlx.seconds / jax.seconds:>6.2f}"
            print(line, flush=True)
    return points_of_all


def medians(runs: Sequence[dict[str, float]]) -> tuple[float, float]:
    return statistics.median(r["seconds"] for r in runs), statistics.median(r["cpu_seconds"] for r in runs)


# ---------------------------------------------------------------------------------------------- picture

WIDE, HIGH, LEFT, TOP, GAP = 300, 220, 56, 40, 84  # pixels of a panel, and between panels
MIN_NODES, MAX_NODES = 100, 20_000  # nodes, the ends of the horizontal axis
SHORTEST, LONGEST = 0.1, 100.0  # seconds, the ends of the vertical one


def picture(points: Sequence[Point]) -> str:
    """A panel a program as SVG: seconds over nodes, both logarithmic; dotted is a line that grows as its length."""
    programs = list(dict.fromkeys(p.program for p in points))
    columns = min(2, len(programs))
    width, height = columns * (WIDE + GAP) + LEFT, math.ceil(len(programs) / columns) * (HIGH + GAP) + TOP
    style = (
        "text{font:12px system-ui,sans-serif;fill:#1d2733}.case{font-weight:600;font-size:13px}.axis{stroke:#c8d0da}"
        ".rlx{stroke:#1f4e8c}.jax{stroke:#b07a3c}.line{fill:none;stroke-width:2}.even{stroke:#9aa6b4;stroke-dasharray:2 4}"
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<style>{style}</style>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for number, program in enumerate(programs):
        left, top = LEFT + number % columns * (WIDE + GAP), TOP + number // columns * (HIGH + GAP)
        lines += [f'<g transform="translate({left} {top})">', *panel(program, points), "</g>"]
    return "\n".join([*lines, "</svg>", ""])


def panel(program: str, points: Sequence[Point]) -> list[str]:
    lines = [f'<text x="0" y="-12" class="case">{html.escape(program)}: seconds of the first call over nodes</text>']
    for nodes in (100, 1000, 10_000):
        x = across(nodes)
        lines.append(f'<path d="M{x:.1f} 0V{HIGH}" class="axis"/>')
        lines.append(f'<text x="{x:.1f}" y="{HIGH + 16}" text-anchor="middle">{nodes:,}</text>')
    for seconds in (0.1, 1.0, 10.0, 100.0):
        y = down(seconds)
        lines.append(f'<path d="M0 {y:.1f}H{WIDE}" class="axis"/>')
        lines.append(f'<text x="-8" y="{y + 4:.1f}" text-anchor="end">{seconds:g}</text>')
    for system in ("rlx", "jax.jit"):
        line = [p for p in points if (p.program, p.system) == (program, system)]
        if line:
            kind, last = system.partition(".")[0], line[-1]
            path = "L".join(f"{across(p.nodes):.1f} {down(p.seconds):.1f}" for p in line)
            lines.append(f'<path d="M{path}" class="line {kind}"/>')
            lines.append(
                f'<text x="{across(last.nodes) - 4:.1f}" y="{down(last.seconds) - 6:.1f}" text-anchor="end">{system}</text>'
            )
            if system == "rlx":
                even = last.seconds * MIN_NODES / last.nodes
                lines.append(
                    f'<path d="M{across(MIN_NODES):.1f} {down(max(even, SHORTEST)):.1f}'
                    f'L{across(last.nodes):.1f} {down(last.seconds):.1f}" class="even"/>'
                    if even >= SHORTEST
                    else f'<path d="M{across(SHORTEST / even * MIN_NODES):.1f} {HIGH}'
                    f'L{across(last.nodes):.1f} {down(last.seconds):.1f}" class="even"/>'
                )
    return lines


def across(nodes: float) -> float:
    return WIDE * math.log(nodes / MIN_NODES) / math.log(MAX_NODES / MIN_NODES)


def down(seconds: float) -> float:
    return HIGH * (1 - math.log(seconds / SHORTEST) / math.log(LONGEST / SHORTEST))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [f"{name}{end}" for name in PROGRAMS for end in ("", "-grad")]
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"of {', '.join(known)}; all of them by default")
    parser.add_argument("--lengths", type=int, nargs="*", default=LENGTHS, help="numbers of nodes")
    parser.add_argument("--most", type=int, default=LENGTHS[-1], help="no longer than this")
    parser.add_argument("--jax-most", type=int, default=JAX_MOST, help="JAX is given no longer programs than this")
    parser.add_argument("--repeats", type=int, default=1, help="first calls a point, of which the median counts")
    parser.add_argument("--out", type=Path, help="a folder for growth.svg")
    parser.add_argument("--json", type=Path, help="a file for the numbers")
    parser.add_argument("--first-call", nargs=3, metavar=("SYSTEM", "PROGRAM", "STEPS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.first_call:
        system, program, steps = arguments.first_call
        print(json.dumps(first_call(system, program, int(steps))))
        return
    if unknown := set(arguments.programs) - set(known):
        parser.error(f"no program is called {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    chosen = arguments.programs or known
    points = growth(
        chosen, [n for n in arguments.lengths if n <= arguments.most], arguments.repeats, arguments.jax_most
    )
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps([asdict(p) for p in points], indent=1) + "\n")
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "growth.svg").write_text(picture(points))


if __name__ == "__main__":
    main()
