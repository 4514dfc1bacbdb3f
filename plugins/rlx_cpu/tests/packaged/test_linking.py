"""Objects linked into images: what is filled in, what is refused, and what runs."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

import pytest

from rlx_core.errors import FormatError, KernelBuildError
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.elf import Relocation, read_object
from rlx_cpu.native.llvm.isa import ISAS, available, portable
from rlx_cpu.native.llvm.optimise import generate, new_module, triple_for
from rlx_cpu.packaged import features
from rlx_cpu.packaged.features import NEEDS, reason_against
from rlx_cpu.packaged.image import PAGE, Image
from rlx_cpu.packaged.linking import _fill, _write_stub, linked
from rlx_cpu.packaged.mapping import MappedCode

HERE = portable(next(isa.name for isa in available()))
X86, ARM = 62, 183


def made(text: str, isa: object = HERE) -> bytes:
    return generate(f'target triple = "{triple_for(isa)}"\n{text}', isa)  # type: ignore[arg-type]


CALLER = """
declare i64 @two(i64)
declare double @sin(double)
define i64 @one(i64 %x) { %y = call i64 @two(i64 %x)  %z = add i64 %y, 1  ret i64 %z }
define double @wave(double %x) { %y = call double @sin(double %x)  ret double %y }
define i64 @chosen(i64 %x) {
  switch i64 %x, label %d [i64 0, label %a i64 1, label %b i64 2, label %c i64 3, label %e]
a: ret i64 11
b: ret i64 47
c: ret i64 5
e: ret i64 9
d: ret i64 -1
}
"""
CALLED = "define i64 @two(i64 %x) { %y = mul i64 %x, 3  ret i64 %y }"


def test_objects_call_one_another_the_c_library_and_read_constants() -> None:
    code = MappedCode(linked([made(CALLER), made(CALLED)]))
    word = ctypes.c_int64
    assert ctypes.CFUNCTYPE(word, word)(code.address("one"))(5) == 16
    assert [ctypes.CFUNCTYPE(word, word)(code.address("chosen"))(n) for n in range(5)] == [11, 47, 5, 9, -1]
    assert ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(code.address("wave"))(0.5) == pytest.approx(
        0.479425538604203
    )


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_every_instruction_set_links_here(isa: object) -> None:
    image = linked([made(CALLER, portable(isa.name)), made(CALLED, portable(isa.name))])  # type: ignore[attr-defined]
    assert image.imports == ("sin",)
    assert {"one", "two", "wave", "chosen"} <= image.exports.keys()
    assert image.table % PAGE == 0


def test_code_is_not_writable_once_it_can_be_run() -> None:
    code = MappedCode(linked([made(CALLED)]))
    at = code.address("two")
    rights = set()
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, found, *_ = line.split()
        low, high = (int(end, 16) for end in span.split("-"))
        if low <= at < high:
            rights.add(found)
    assert rights == {"r-xp"}


def test_what_cannot_be_linked_is_named() -> None:
    with pytest.raises(KernelBuildError, match="two functions are called two"):
        linked([made(CALLED), made(CALLED)])
    with pytest.raises(KernelBuildError, match="data of its own"):
        linked([made("@n = global i64 1\ndefine i64 @f() { %x = load i64, ptr @n ret i64 %x }")])
    with pytest.raises(KernelBuildError, match="relocations of kind 99"):
        _fill(bytearray(8), X86, 0, 0, Relocation(1, 0, 99, 0, 0))
    with pytest.raises(KernelBuildError, match="too large"):
        _fill(bytearray(8), X86, 0, 1 << 33, Relocation(1, 0, 2, 0, 0))


def test_images_that_lie_are_refused() -> None:
    image = linked([made(CALLED)])
    for lying, said in [
        (Image(image.code, 12, (), image.exports), "table"),
        (Image(image.code, image.table, (), {"f": len(image.code)}), "outside"),
        (Image(image.code, image.table, ("system",), image.exports), "system"),
    ]:
        with pytest.raises(FormatError, match=said):
            MappedCode(lying)


def test_jumps_through_the_table_are_those_of_every_plt() -> None:
    """The instructions as assemblers write them; those of AArch64 are run by no test here."""
    code = bytearray(16)
    _write_stub(code, X86, 0x1000 - 0x1000, 0x10060)
    assert code[:6] == b"\xff\x25" + struct.pack("<i", 0x10060 - 6)  # jmp *0x1005a(%rip)
    code = bytearray(0x2010)
    _write_stub(code, ARM, 0x2000, 0x10068)
    assert struct.unpack_from("<III", code, 0x2000) == (
        0xD0000070,
        0xF9403610,
        0xD61F0200,
    )  # adrp x16, 0xe pages; ldr; br


def test_relocations_of_aarch64() -> None:
    code = bytearray(struct.pack("<IIII", 0x94000000, 0x90000000, 0x3DC00000, 0x91000000))
    _fill(code, ARM, 0, 0x100, Relocation(1, 0, 283, 0, 0))  # bl
    _fill(code, ARM, 4, 0x3040, Relocation(1, 4, 275, 0, 0))  # adrp x0
    _fill(code, ARM, 8, 0x3040, Relocation(1, 8, 299, 0, 0))  # ldr q0, [x0, lo12]
    _fill(code, ARM, 12, 0x3041, Relocation(1, 12, 277, 0, 0))  # add x0, x0, lo12
    assert struct.unpack("<IIII", code) == (0x94000040, 0xF0000000, 0x3DC01000, 0x91010400)


def test_elf_numbers_are_read_from_what_llvm_writes() -> None:
    found = read_object(made(CALLER, portable("neon")))
    assert found.machine == ARM
    assert {"one", "wave"} <= {symbol.name for symbol in found.symbols if symbol.section is not None}


def test_portable_code_needs_what_llvm_may_use_for_it() -> None:
    """Every set has its features listed, and what the emitters count on is among them."""
    spelt = {"avx512bf16": "avx512_bf16", "neon": "asimd"}
    for isa in ISAS:
        arch, needs = NEEDS[isa.name]
        assert arch == isa.arch
        assert {spelt.get(need, need) for need in isa.needs} <= set(needs)


def test_machines_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reason_against(*NEEDS[HERE.name]) is None
    assert "is for riscv64" in (reason_against("riscv64", ()) or "")
    assert "needs amx_tile_9, which this processor lacks" in (reason_against(features.arch(), ["amx_tile_9"]) or "")
    monkeypatch.setattr(features.sys, "platform", "darwin")
    assert "is for Linux" in (reason_against(features.arch(), ()) or "")


def test_neon_code_runs_where_linux_lists_the_features_of_another_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    """An emulator of AArch64 on x86-64 shows the `/proc/cpuinfo` of the machine below it."""
    monkeypatch.setattr(features, "features", lambda: frozenset({"sse2", "avx"}))
    monkeypatch.setattr(features, "arch", lambda: "aarch64")
    monkeypatch.setattr(features.sys, "platform", "linux")
    assert reason_against(*NEEDS["neon"]) is None


def test_modules_name_the_machine_that_they_are_for() -> None:
    module = new_module("m", portable("neon"))
    assert module.triple == "aarch64-unknown-linux-gnu"
    assert isinstance(module, ir.Module)
