"""Programs from a package's form: whether they run here, and their code and buffers in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlx_core.errors import FormatError
from rlx_core.ir.forms import Json, need
from rlx_core.ir.types import TensorType
from rlx_core.pipeline.backend import Blobs, Program, Unpack
from rlx_cpu.native.runtime import interpreter
from rlx_cpu.native.runtime.code import ENTRY, RESULT_MEMORY, STEPS, VERSION, bring, codes
from rlx_cpu.packaged.features import reason_against
from rlx_cpu.packaged.form import program_from
from rlx_cpu.packaged.image import image_from
from rlx_cpu.packaged.mapping import MappedCode
from rlx_cpu.packaged.program import PackagedProgram

__all__ = ["reason_against_code", "unpacked"]


def reason_against_code(form: Json, options: Mapping[str, Any]) -> str | None:
    """Why a form's code does not run here, or is not wanted, as the end of a sentence about it; `None` if it runs.

    Raises:
        FormatError: It is no form of this backend.
    """
    row = need(form, dict, "code")
    isa = need(row.get("isa"), str, "an instruction set")
    needs = [need(each, str, "a feature") for each in need(row.get("needs"), list, "needs")]
    reason = reason_against(need(row.get("arch"), str, "an architecture"), needs)
    version = need(row.get("runtime"), int, "a version")
    if reason is not None:
        return reason
    if version != VERSION:
        return f"is for version {version} of the run-time, and this rlx has {VERSION}"
    wanted = options.get("cpu.isa", "auto")
    if wanted not in ("auto", isa):
        return f"is for {isa}, and cpu.isa is {wanted}"
    if options.get("cpu.tier") == "numpy":
        return "is native, and cpu.tier is numpy"
    asked = next((name for name in ("cpu.oracle", "cpu.poison") if options.get(name)), None)
    return None if asked is None else f"runs as a whole, and {asked} looks at every step"


def unpacked(form: Json, blobs: Blobs, threads: int, spin_us: int) -> Unpack:
    """What makes the programs of a form.

    Raises:
        FormatError: It is none, or a blob of it is damaged.
    """
    row = need(form, dict, "code")
    modules, programs = need(row.get("modules"), dict, "modules"), need(row.get("programs"), list, "programs")
    # What enters programs is for the interpreters whose arrays it knows; elsewhere every call is checked.
    wanted = (STEPS, ENTRY, RESULT_MEMORY) if interpreter.reason_against() is None else (STEPS,)
    bring({name: MappedCode(image_from(modules.get(name), blobs)) for name in wanted if name not in codes})
    image = None if row.get("code") is None else image_from(row["code"], blobs)
    code = None if image is None else MappedCode(image)

    def program(number: int, inputs: tuple[TensorType, ...], outputs: tuple[TensorType, ...]) -> Program:
        if not 0 <= number < len(programs):
            raise FormatError(f"package: there are {len(programs)} programs, and none of number {number}")
        found = program_from(programs[number], blobs.nbytes, {} if image is None else image.exports)
        said = tuple(each.type for each in found.inputs), tuple(each.type for each in found.outputs)
        if said != (inputs, outputs):
            raise FormatError(
                f"package: program {number} is from {said[0]} to {said[1]}, and called from {inputs} to {outputs}"
            )
        return PackagedProgram(found, code, blobs.arrays(list(found.buffers)), threads, spin_us)

    return program
