"""Generated programs on a target: each setup against float64, setups that must agree to the bit, and both modes
of differentiation.

`python -m rlx_core.testing.fuzz --seconds 60` tries new seeds until the time is over; a failing program is reduced, printed,
and written to the folder of `--keep`. If a target can run one program in several ways, `--setups
PACKAGE.MODULE:NAME` selects them.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, field

from rlx_core.errors import KernelBuildError
from rlx_core.ir.lir import Lir
from rlx_core.ir.verify_lir import verify_lir
from rlx_core.pipeline.backend import Target
from rlx_core.pipeline.compile import compile_graph, set_up
from rlx_core.pipeline.compiled import CompiledProgram
from rlx_core.pipeline.config.records import Configuration
from rlx_core.pipeline.planning.planner import PlanOptions, make_lir
from rlx_core.pipeline.planning.verify_steps import step_faults
from rlx_core.plugins import PluginHost
from rlx_core.runtime.executable import Executable
from rlx_core.system.records import frozen
from rlx_core.testing.generate import Generated, generate
from rlx_core.testing.judges import mode_complaint
from rlx_core.testing.kept import text_of, write_case
from rlx_core.testing.reduce import reduce
from rlx_core.testing.yardstick import yardstick

MODES = 4  # of so many programs one is differentiated in both modes
CHUNK = 40  # programs per process without --count: a crash loses no more than these
MAX_PROGRAMS = (
    500  # in one process, with --count: drivers map every kernel they load, and a process may have 65,530 maps
)
TOGETHER = 20  # programs whose code is made at once, where a backend makes it sooner so


@frozen(eq=False)
class FuzzSetup:
    """One configuration with which a generated program is compiled.

    Attributes:
        name: Its name in reports.
        config: The configuration.
        repeats: The earlier setup whose bits it must give again.
        is_apart: It is the plan of the setup that it repeats, planned again so that no result takes over another's bytes.
        every: It is tried on seeds that are a multiple of this; it may cost more than it finds.
    """

    name: str
    config: Mapping[str, Any] = field(factory=dict)
    repeats: str | None = None
    is_apart: bool = False
    every: int = 1

    def tries(self, program: Generated) -> bool:
        """Return whether a program is compiled with this setup."""
        return program.seed < 0 or program.seed % self.every == 0


HOST: Mapping[str, Any] = {"dispatch.allow-host": ["*"]}
"""Ops without a kernel on the target run on the host: setups are about results, not about refusals."""

FUZZ_SETUPS = (
    FuzzSetup("as it is", HOST),
    FuzzSetup("nothing in place", HOST, repeats="as it is", is_apart=True),
    FuzzSetup("without passes", {"use": "none", **HOST}),
)
"""The default setups for a target."""


class Objects:
    """A cache of machine code by key, so that setups of a program which differ only in running share it."""

    def __init__(self) -> None:
        self._entries: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self._entries.get(key)

    def put(self, key: str, payload: bytes) -> bool:
        self._entries[key] = payload
        return True

    def drop(self, key: str, reason: str) -> None:
        self._entries.pop(key, None)


def run_once(program: Generated, compiled: CompiledProgram) -> list[np.ndarray]:
    """The outputs of a compiled program on copies of its arrays."""
    executable = Executable(compiled)
    executable.set_params({name: array.copy() for name, array in program.params.items()})
    return list(executable.run({name: array.copy() for name, array in program.inputs.items()}))


def compiled_for(
    program: Generated, setup: FuzzSetup, target: str | None, host: PluginHost | None, objects: Objects
) -> CompiledProgram:
    """A program compiled with one setup; the configuration file is read once for all programs."""
    plugins, configuration = configured(setup, host)
    compiled = compile_graph(
        program.graph, target=target, config=configuration, host=plugins, donations=program.donations
    )
    return evolve(compiled, objects=objects)


def planned(
    program: Generated,
    setup: FuzzSetup,
    plans: Mapping[str, CompiledProgram],
    target: str | None,
    host: PluginHost | None,
    objects: Objects,
) -> CompiledProgram:
    """Return the plan of one setup; a setup that repeats another reuses its plan."""
    if setup.repeats is None:
        return compiled_for(program, setup, target, host, objects)
    return repeated(plans[setup.repeats], setup, program)


def repeated(compiled: CompiledProgram, setup: FuzzSetup, program: Generated) -> CompiledProgram:
    """The same plan under other options of the target, so that only running it differs; or the same steps on other bytes."""
    options = {**compiled.lir.options, "options": {**_options(compiled.lir), **setup.config.get("options", {})}}
    lir = evolve(compiled.lir, options=options)
    plan = apart(lir, compiled.target, program.donations) if setup.is_apart else lir
    return evolve(compiled, lir=plan, code=[])  # the code of the other plan does not fit this one


def apart(lir: Lir, target: Target, donations: Mapping[str, int | None]) -> Lir:
    """Return a plan with the same kernels in which each result has separate bytes, at distinct addresses of the arena."""
    kernels = {id(step.node): target.kernels.get(step.kernel) for step in lir.steps}
    return make_lir(
        lir.graph,
        target,
        output_names=[e.name for e in lir.manifest.outputs],
        donations=donations,
        prepare=lir.prepare,
        choose=lambda node: kernels.get(id(node)) or target.kernel_for(node),
        options=PlanOptions(in_place=False, strategy="none", alignment=lir.alignment),
        resolved=lir.options,
    )


def plan_complaint(compiled: CompiledProgram) -> str | None:
    """The first rule that a plan breaks."""
    faults = verify_lir(compiled.lir) or step_faults(compiled.lir, compiled.target.kernels)
    return f"plan: {faults[0]!r}" if faults else None


def _options(lir: Lir) -> dict[str, Any]:
    options = lir.options["options"]
    assert isinstance(options, Mapping), "a plan's options are a table"
    return dict(options)


@cache
def configured(setup: FuzzSetup, host: PluginHost | None) -> tuple[PluginHost, Configuration]:
    return set_up(setup.config, host)


def complaint(
    program: Generated,
    setups: Sequence[FuzzSetup] = FUZZ_SETUPS,
    *,
    target: str | None = None,
    host: PluginHost | None = None,
    objects: Objects | None = None,
    ready: Mapping[str, CompiledProgram] | None = None,
) -> str | None:
    """Return the failure of a program, in one line: a result, a bit, or an error; `None` if it passes.

    Args:
        objects: The cache of machine code, shared by programs with much common code; a new one if not given.
        ready: Plans that were made before, by the setup's name.
    """
    if program.seed < 0 or program.seed % MODES == 0:
        wrong = mode_complaint(program.graph, program.fed, program.seed)
        if wrong is not None:
            return f"derivatives: {wrong}"
    expected = yardstick(program.graph, program.fed)
    results: dict[str, list[np.ndarray]] = {}
    plans: dict[str, CompiledProgram] = {}
    shared_objects = Objects() if objects is None else objects
    for setup in setups:
        if not setup.tries(program):
            continue
        try:
            prepared = None if ready is None else ready.get(setup.name)
            plans[setup.name] = (
                planned(program, setup, plans, target, host, shared_objects) if prepared is None else prepared
            )
            wrong = plan_complaint(plans[setup.name])
            outputs = [] if wrong is not None else run_once(program, plans[setup.name])
        except Exception as error:  # noqa: BLE001  whatever it is, the interpreter ran the same program
            return f"{setup.name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        wrong = wrong or expected.complaint(outputs)
        if wrong is not None:
            return f"{setup.name}: {wrong}"
        results[setup.name] = outputs
        if setup.repeats is not None:
            first = results[setup.repeats]
            if any(a.tobytes() != b.tobytes() for a, b in zip(outputs, first, strict=True)):
                return f"{setup.name}: other bits than {setup.repeats}"
    return None


def reduced(
    program: Generated,
    setups: Sequence[FuzzSetup] = FUZZ_SETUPS,
    *,
    target: str | None = None,
    host: PluginHost | None = None,
) -> tuple[Generated, str]:
    """Return the smallest program that fails in the way in which `program` does, and the description of the failure."""
    first = complaint(program, setups, target=target, host=host)
    assert first is not None, "only what fails is reduced"
    name, kind = first.split(":")[0], first.split(":")[1][:8]
    chosen = [w for w in setups if w.name == name]  # none, if it is about derivatives
    chosen = [w for w in setups if w.name in {c.repeats for c in chosen}] + chosen

    def fails(candidate: Generated) -> bool:
        message = complaint(candidate, chosen, target=target, host=host)
        return message is not None and message.split(":")[1][:8] == kind

    smallest = reduce(program, fails)
    return smallest, complaint(smallest, chosen, target=target, host=host) or first


def report(seed: int, program: Generated, why: str) -> str:
    return f"seed {seed} fails; the smallest program that does:\n{text_of(program, why)}"


# ------------------------------------------------------------------------------------------ command line


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 if a program failed."""
    parser = argparse.ArgumentParser(prog="python -m rlx_core.testing.fuzz", description=__doc__)
    parser.add_argument("--target", default=None, help="what to compile for; by default the preferred one")
    parser.add_argument(
        "--setups", default=None, metavar="MODULE:NAME", help="the configurations with which each program is compiled"
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--start", type=int, default=None, help="the first seed; by default one of the clock's")
    parser.add_argument(
        "--count", type=int, default=None, help=f"run so many seeds, in this process up to {MAX_PROGRAMS}, and no more"
    )
    parser.add_argument(
        "--inside", default=None, metavar="MODULE:NAME", help="a context manager to run programs inside"
    )
    parser.add_argument("--keep", type=Path, default=None, help="where failing programs are written")
    chosen = parser.parse_args(arguments)
    # New seeds every time, beyond those of the tests.
    start = chosen.start if chosen.start is not None else int(time.time()) * 1000 + 1_000_000
    if chosen.count is not None and chosen.count > MAX_PROGRAMS:
        parts = range(start, start + chosen.count, MAX_PROGRAMS)
        ends = [
            subprocess.call(command(chosen, seed, min(MAX_PROGRAMS, start + chosen.count - seed))) for seed in parts
        ]
        return min(sum(map(abs, ends)), 1)
    if chosen.count is not None:
        with entered(chosen.inside):
            setups = FUZZ_SETUPS if chosen.setups is None else found_at(chosen.setups)
            return seeds(range(start, start + chosen.count), setups, chosen.target, chosen.keep)
    return keep_going(start, chosen)


def entered(name: str | None) -> AbstractContextManager[Any]:
    """The context manager that `module:name` makes; one that does nothing without a name."""
    if name is None:
        return nullcontext()
    context: AbstractContextManager[Any] = found_at(name)()
    return context


def found_at(name: str) -> Any:
    """Return the object that `module:name` names."""
    module, _, attribute = name.partition(":")
    return vars(importlib.import_module(module))[attribute]


def seeds(numbers: Sequence[int], setups: Sequence[FuzzSetup], target: str | None, keep: Path | None) -> int:
    """Try some seeds in this process; prints the number of each before it, so that a crash can be attributed."""
    failures = 0
    for start in range(0, len(numbers), TOGETHER):
        some = [generate(seed) for seed in numbers[start : start + TOGETHER]]
        print(f"seed {numbers[start]}", flush=True)  # and those after it, whose code is made together
        plans = [plans_of(program, setups, target) for program in some]
        with built_together(plans):
            for program, ready in zip(some, plans, strict=True):
                print(f"seed {program.seed}", flush=True)
                if complaint(program, setups, target=target, ready=ready) is not None:
                    failures += 1
                    told(program, setups, target, keep)
    return min(failures, 1)


def told(program: Generated, setups: Sequence[FuzzSetup], target: str | None, keep: Path | None) -> None:
    """Print the smallest program that fails as this one does, and store it."""
    smallest, why = reduced(program, setups, target=target)
    print(report(program.seed, smallest, why), flush=True)
    if keep is not None:
        print(f"kept as {write_case(keep, f'seed{program.seed}', smallest, why)}", flush=True)


def plans_of(program: Generated, setups: Sequence[FuzzSetup], target: str | None) -> dict[str, CompiledProgram]:
    """Return the plans of a program by the setup's name; setups that fail to plan are missing, and fail again when tried."""
    plans: dict[str, CompiledProgram] = {}
    shared_objects = Objects()
    for setup in setups:
        with suppress(Exception):
            if setup.tries(program):
                plans[setup.name] = planned(program, setup, plans, target, None, shared_objects)
    return plans


def built_together(plans: Sequence[Mapping[str, CompiledProgram]]) -> ExitStack:
    """Return a context in which the code of all plans is built; code that does not build fails when it is tried alone."""
    stack = ExitStack()
    every = [plan for each in plans for plan in each.values()]
    if every:
        first = every[0]
        with suppress(KernelBuildError):
            stack.enter_context(first.backend.built_ahead([p.lir for p in every], first.target, first.lir.options))
    return stack


def command(chosen: argparse.Namespace, seed: int, count: int) -> list[str]:
    """Return the command that tries some seeds in a separate process."""
    options = {"--target": chosen.target, "--setups": chosen.setups, "--keep": chosen.keep, "--inside": chosen.inside}
    words = [word for name, value in options.items() if value for word in (name, str(value))]
    return [sys.executable, "-m", "rlx_core.testing.fuzz", "--start", str(seed), "--count", str(count), *words]


def keep_going(start: int, chosen: argparse.Namespace) -> int:
    """Try new seeds in separate processes until the time is over."""
    end, seed, failures = time.monotonic() + chosen.seconds, start, 0
    while time.monotonic() < end:
        done = subprocess.run(command(chosen, seed, CHUNK), capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if not line.startswith("seed ") or " " in line[5:]]
        failures += done.stdout.count(" fails; the smallest")
        if lines:
            print("\n".join(lines), flush=True)
        if done.returncode not in (0, 1):
            last = [line for line in done.stdout.splitlines() if line.startswith("seed ")][-1:]
            failures += 1
            print(f"the process ended with {done.returncode} at {last}\n{done.stderr[-2000:]}", flush=True)
        seed += CHUNK
        print(
            f"{seed - start} programs from seed {start}, {failures} failed, {max(0.0, end - time.monotonic()):.0f} s left"
        )
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
