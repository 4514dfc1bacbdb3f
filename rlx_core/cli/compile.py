"""`rlx compile`: a program on its way to a target, printed at any level, or the report of the whole way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from attrs import evolve

from rlx_core.cli.plan import configuration_of
from rlx_core.cli.program import from_op, program_from
from rlx_core.cli.session import CliSession
from rlx_core.draw.emission import Planned, emit
from rlx_core.errors import ConfigError, DeviceUnavailableError
from rlx_core.files.load_save import save, writing
from rlx_core.ir.bind import named_binding
from rlx_core.ir.graph import Graph
from rlx_core.ir.lir import Lir
from rlx_core.ir.module import IrStage, Module
from rlx_core.pipeline.backend import ABSENT
from rlx_core.pipeline.compile import compile_graph
from rlx_core.pipeline.compiled import CompiledProgram
from rlx_core.pipeline.report import CompilationReport
from rlx_core.pipeline.targets import find_target, with_contributed_kernels
from rlx_core.system.records import frozen


def compile_program(
    ctx: typer.Context,
    program: Annotated[
        str,
        typer.Argument(metavar="PROGRAM", help="A saved program or its text, or MODULE:FUNCTION, FILE.py:FUNCTION."),
    ] = "",
    types: Annotated[
        list[str] | None, typer.Argument(metavar="TYPE", help="The types of a function's arguments: f32[64,128].")
    ] = None,
    op: Annotated[
        str, typer.Option(metavar="'OP TYPES'", help="A program of this op alone; without types those of a sample.")
    ] = "",
    attr: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An attribute of --op; may be repeated.")
    ] = None,
    level: Annotated[
        str,
        typer.Option(
            "--emit", metavar="LEVEL", help="Print it at this level: hir mir lir loops, then the target's own."
        ),
    ] = "",
    step: Annotated[
        str, typer.Option(metavar="N|NAME", help="Only this step of the plan, or those of an op or a kernel.")
    ] = "",
    bind: Annotated[
        list[str] | None, typer.Option(metavar="SYMBOL=SIZE", help="The size of a symbolic dim; may be repeated.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="NAME", help="The device; by default what the configuration says.")
    ] = None,
    arch: Annotated[
        str | None, typer.Option(metavar="NAME", help="What to compile for: the target's option `arch`, sm_90 say.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", metavar="FILE", help="Write it to this file; without --emit, the plan as a program."
        ),
    ] = None,
    is_complete: Annotated[bool, typer.Option("--all", help="List the passes that had no effect too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compile a program, and print it at a level on its way or the report of all of it.

    \b
    rlx compile --op 'softmax f32[64,128]' --emit loops
    rlx compile model.py:predict 'f32[n,64]' --bind n=8 --emit asm --step softmax
    rlx compile program.rlx -o plan.rlx
    """
    session = CliSession.of(ctx)
    request = Asked(program, tuple(types or ()), op, tuple(attr or ()), tuple(bind or ()), target, arch)
    if level:
        session.answer(lambda: emitted(session, request, level, step, out), text_json if as_json else None, text_layout)
    else:
        session.answer(
            lambda: compiled(session, request, step, out),
            CompilationReport.to_json if as_json else None,
            lambda report: report_layout(report, is_complete),
        )


@frozen
class Asked:
    """The program and the target of a command line."""

    program: str
    types: tuple[str, ...]
    op: str
    attrs: tuple[str, ...]
    bind: tuple[str, ...]
    target: str | None
    arch: str | None = None


@frozen
class ProgramAtLevel:
    """A program at one level."""

    program: str
    target: str
    level: str
    text: str
    out: Path | None


def emitted(session: CliSession, request: Asked, level: str, step: str, out: Path | None) -> ProgramAtLevel:
    """The text of a program at a level; without the target's device, its code for what such devices mostly are.

    Raises:
        RlxError: There is no such program, level or step, or it cannot be compiled.
    """
    module = found(session, request)
    try:
        planned = plan_of(session, request, module)
    except DeviceUnavailableError:
        if request.target is None or ":" in request.target:
            raise
        planned = plan_of(session, evolve(request, target=f"{request.target}:{ABSENT}"), module)
    text = emit(planned, level, step or None)
    if out is not None:
        with writing("compile", out):
            out.write_text(text, encoding="utf-8")
    return ProgramAtLevel(module.name, planned.target.name, level, text, out)


def compiled(session: CliSession, request: Asked, step: str, out: Path | None) -> CompilationReport:
    """The report of a compilation; `out` gets the plan.

    Raises:
        RlxError: There is no such program, or it cannot be compiled.
    """
    if step:
        raise ConfigError(f"compile: --step {step} says which part to print, and nothing is printed without --emit")
    module = found(session, request)
    if module.stage is IrStage.LIR:
        raise ConfigError(
            f"compile: {request.program} is compiled already", hint="print it with --emit, or with rlx show"
        )
    program = made_of(session, request, module)
    lir = planned(program, request, module)
    if out is not None:
        with writing("compile", out):
            save(out, Module.of_lir(lir), host=session.host)
    return program.report_for(lir)


def found(session: CliSession, request: Asked) -> Module:
    """The program that was named.

    Raises:
        ConfigError: None was, or two were.
    """
    if bool(request.program) == bool(request.op):
        what = "a program and an op" if request.op else "neither a program nor an op"
        raise ConfigError(
            f"compile: {what} {'were' if request.op else 'was'} named; one is compiled",
            hint="rlx compile --op 'softmax f32[64,128]' --emit loops",
        )
    if request.op:
        return from_op(session.host, request.op, request.attrs)
    if request.attrs:
        raise ConfigError(f"compile: --attr {request.attrs[0]} is for --op, and {request.program} is a program")
    return program_from(session.host, request.program, request.types)


def graph_of(module: Module) -> Graph:
    """The graph of a module that is not planned yet."""
    return module.hir if module.stage is IrStage.HIR else module.mir


def made_of(session: CliSession, request: Asked, module: Module) -> CompiledProgram:
    """The program compiled with the current configuration."""
    if request.arch is not None and request.target is None:
        raise ConfigError(f"compile: --arch {request.arch} is an option of a target", hint="name it with --target")
    target = (request.target or "").partition(":")[0]
    options = None if request.arch is None else {f"{target}.arch": request.arch}
    configuration = configuration_of(session, request.target, options=options)
    return compile_graph(graph_of(module), target=request.target, config=configuration, host=session.host)


def plan_of(session: CliSession, request: Asked, module: Module) -> Planned:
    """The plan with its backend; one that was read from a file stays as it is."""
    if module.stage is IrStage.LIR:
        if request.bind or request.target not in (None, module.lir.target):
            raise ConfigError(f"compile: {request.program} is planned for {module.lir.target} already, sizes included")
        name, backend, registry = find_target(session.host, module.lir.target)
        options: Any = module.lir.options.get("options", {})
        target = with_contributed_kernels(backend.target_for(options), registry, name)
        return Planned(module.lir, backend, target)
    program = made_of(session, request, module)
    return Planned(planned(program, request, module), program.backend, program.target, graph_of(module))


def planned(program: CompiledProgram, request: Asked, module: Module) -> Lir:
    """The plan of a compiled program, for the sizes that were named.

    Raises:
        ConfigError, UnknownNameError, BindingError: A symbol and its size are not what they should be.
    """
    return program.specialize(named_binding(graph_of(module), sizes(request.bind))) if request.bind else program.lir


def sizes(words: Sequence[str], option: str = "--bind") -> dict[str, int]:
    """Sizes from option values such as `n=8`.

    Raises:
        ConfigError: It is no name and size.
    """
    result: dict[str, int] = {}
    for word in words:
        name, equals, size = word.partition("=")
        if not equals or not size.isdecimal() or not name.isidentifier():
            raise ConfigError(f"{option} {word}: wanted SYMBOL=SIZE, such as n=8")
        result[name] = int(size)
    return result


# --------------------------------------------------------------------------------------------------- output


def text_json(printed: ProgramAtLevel) -> dict[str, Any]:
    """The text, with its subject."""
    return {"program": printed.program, "target": printed.target, "level": printed.level, "text": printed.text}


def text_layout(printed: ProgramAtLevel) -> Iterator[Any]:
    """The text, or where it was written."""
    if printed.out is None:
        yield printed.text.rstrip("\n")
    else:
        yield f"{printed.out}: {printed.program} at level {printed.level}, {printed.text.count(chr(10))} lines"


def report_layout(report: CompilationReport, is_complete: bool) -> Iterator[Any]:
    """The report as tables; a complete one has the passes that had no effect too."""
    from rlx_core.cli.tables import report_tables

    yield from report_tables(report, is_complete=is_complete)
