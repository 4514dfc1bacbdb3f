"""Programs from a package's form: whether they run here, and their code and buffers in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlx_core.errors import FormatError
from rlx_core.ir.forms import Json, need
from rlx_core.ir.types import TensorType
from rlx_core.pipeline.backend import Blobs, Program, Unpack
from rlx_core.run.memory import HostMemory
from rlx_core.run.packaged.plan_form import reason_against_version
from rlx_core.run.packaged.program import packaged_program
from rlx_cpu.native.runtime import interpreter
from rlx_cpu.native.runtime.code import ENTRY, RESULT_MEMORY, STEPS, VERSION, ProgramCode, bring, codes
from rlx_cpu.native.runtime.compiled import RunSettings
from rlx_cpu.native.runtime.native_steps import NativeCode
from rlx_cpu.packaged.features import reason_against
from rlx_cpu.packaged.form import PackedProgram
from rlx_cpu.packaged.image import image_from
from rlx_cpu.packaged.mapping import MappedCode


def reason_against_code(form: Json, options: Mapping[str, Any]) -> str | None:
    """Return why a form's code does not run here, or is disabled, as the end of a sentence about it; `None` if it runs.

    Raises:
        FormatError: The form is not one of this backend.
    """
    row = need(form, dict, "code")
    isa = need(row.get("isa"), str, "an instruction set")
    needs = [need(each, str, "a feature") for each in need(row.get("needs"), list, "needs")]
    reason = reason_against(need(row.get("arch"), str, "an architecture"), needs) or reason_against_version(row)
    version = need(row.get("runtime"), int, "a version")
    if reason is not None:
        return reason
    if version != VERSION:
        return f"is for version {version} of the run-time, and this rlx has {VERSION}"
    requested = options.get("cpu.isa", "auto")
    if requested not in ("auto", isa):
        return f"is for {isa}, and cpu.isa is {requested}"
    if options.get("cpu.tier") == "numpy":
        return "is native, and cpu.tier is numpy"
    option = next((name for name in ("cpu.oracle", "cpu.poison") if options.get(name)), None)
    return None if option is None else f"runs as a whole, and {option} looks at every step"


def unpacked(form: Json, blobs: Blobs, threads: int, spin_us: int) -> Unpack:
    """Return the function that creates the programs of a form.

    Raises:
        FormatError: The form is invalid, or one of its blobs is damaged.
    """
    row = need(form, dict, "code")
    modules, programs = need(row.get("modules"), dict, "modules"), need(row.get("programs"), list, "programs")
    # The native entry requires an interpreter with a known array layout; with others every call takes the checked path.
    needed = (STEPS, ENTRY, RESULT_MEMORY) if interpreter.reason_against() is None else (STEPS,)
    bring({name: MappedCode(image_from(modules.get(name), blobs)) for name in needed if name not in codes})
    settings = RunSettings(threads, spin_us)
    image = None if row.get("code") is None else image_from(row["code"], blobs)
    code = None if image is None else MappedCode(image)

    def program(number: int, inputs: tuple[TensorType, ...], outputs: tuple[TensorType, ...]) -> Program:
        if not 0 <= number < len(programs):
            raise FormatError(f"package: there are {len(programs)} programs, and none of number {number}")
        packed = PackedProgram.from_json(programs[number], blobs.nbytes, {} if image is None else image.exports)
        packed.plan.expect_types(number, inputs, outputs)
        return program_of(packed, code, blobs, settings)

    return program


def program_of(packed: PackedProgram, code: ProgramCode | None, blobs: Blobs, settings: RunSettings) -> Program:
    """A program that was read, with its code and weights.

    Raises:
        FormatError: A blob is damaged.
    """
    native = NativeCode(packed.compiled(code, settings), packed.arguments, (), packed.takes_longer)
    return packaged_program(packed.plan, HostMemory("cpu"), native, blobs, {})
