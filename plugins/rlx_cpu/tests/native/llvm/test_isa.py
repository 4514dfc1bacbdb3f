"""What LLVM says of processors, and what is made of it: for every processor of the table `hosts.HOSTS`."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from hosts import HOSTS, Row, made_for, masked

import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core.codegen.places import Layout, Place
from rlx_core.errors import ConfigError
from rlx_core.ir.dtypes import DType, bf16, f16, f32, f64, i8, u8
from rlx_core.ir.graph import Builder
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.ops.activation import gelu
from rlx_core.ops.linalg import MatMul
from rlx_core.plugins import PluginHost
from rlx_cpu import tier
from rlx_cpu.native.llvm import boundary
from rlx_cpu.native.llvm import isa as host_module
from rlx_cpu.native.llvm.isa import (
    ISAS,
    Host,
    Isa,
    assuming_host,
    available,
    host_from,
    host_isa,
    named,
    portable,
    this_host,
)
from rlx_cpu.native.llvm.optimise import assembly, generate, machine_words, new_module
from rlx_cpu.native.table import emitter_in, native
from rlx_cpu.packaged import features
from rlx_cpu.packaged.features import NEEDS, reason_against

EVERY_HOST = pytest.mark.parametrize("row", HOSTS, ids=lambda row: row.name)
HERE = PluginHost([rlx_cpu.plugin])

# ------------------------------------------------------------------------------------------- detection


def test_aarch64_has_neon_where_llvm_learns_nothing_of_the_processor() -> None:
    """An emulator's `/proc/cpuinfo` is of another architecture, and LLVM then names four features, none of them there."""
    reported = {"sha2": False, "aes": False, "sve": False, "rand": False}
    found = host_from("aarch64-unknown-linux-gnu", "generic", reported)
    assert found.features == {"neon", "fp-armv8"}
    assert found.missing == reported.keys()
    assert [isa.name for isa in available(found)] == ["neon"]


def test_what_the_abi_guarantees_is_there_where_llvm_says_nothing_at_all() -> None:
    assert host_isa(host_from("aarch64-apple-darwin", "apple-m9", {})) is not None
    assert host_isa(host_from("x86_64-pc-windows-msvc", "generic", {})) is not None


def test_what_llvm_says_is_missing_is_missing() -> None:
    assert available(host_from("aarch64-unknown-linux-gnu", "generic", {"neon": False})) == ()


@pytest.mark.parametrize(("triple", "arch"), [("arm64-apple-darwin23", "aarch64"), ("amd64-unknown-freebsd", "x86_64")])
def test_an_architecture_has_one_name(triple: str, arch: str) -> None:
    assert host_from(triple, "generic", {}).arch == arch


def test_a_processor_that_llvm_cannot_be_asked_about_has_its_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> Any:
        raise RuntimeError("failed to get host cpu features")

    monkeypatch.setattr(boundary.llvm, "get_host_cpu_features", refused)
    monkeypatch.setattr(boundary, "host_features", boundary.host_features.__wrapped__)
    monkeypatch.setattr(boundary, "triple", lambda: "aarch64-unknown-linux-gnu")
    monkeypatch.setattr(boundary, "host_name", lambda: "generic")
    monkeypatch.setattr(host_module, "facts", host_module.facts_of_llvm)
    assert host_module._detected.__wrapped__() == Host("aarch64", "generic", frozenset({"neon", "fp-armv8"}))


# ------------------------------------------------------------------------------------ instruction sets


@EVERY_HOST
def test_sets_follow_from_features(row: Row) -> None:
    assert tuple(isa.name for isa in available(row.host)) == row.sets
    found = host_isa(row.host)
    assert found is not None
    assert found.name == row.best


@EVERY_HOST
def test_the_option_takes_what_the_processor_has(row: Row) -> None:
    with assuming_host(row.host):
        assert named("auto").name == row.best
        assert [named(name).name for name in row.sets] == list(row.sets)
        for absent in (isa.name for isa in ISAS if isa.name not in row.sets):
            with pytest.raises(ConfigError, match=rf"this machine has {', '.join(row.sets)}, not {absent}") as caught:
                named(absent)
            assert row.name in str(caught.value)


@EVERY_HOST
def test_a_set_turns_off_what_it_does_without(row: Row) -> None:
    for isa in available(row.host):
        words = set(isa.features(row.host).split(","))
        assert {f"+{need}" for need in isa.needs} <= words
        if isa.name == "sse2":
            assert not any(word.startswith("+avx") for word in words)
        if isa.name == "avx2":
            assert not any(word.startswith("+avx512") for word in words)


def dots(row: Row, name: str | None = None) -> tuple[str, ...]:
    """The features with products of four bytes in a set, the best one by default."""
    return next(isa.dots for isa in available(row.host) if isa.name == (name or row.best))


def test_products_of_four_bytes_follow_from_features() -> None:
    by_name = {row.name: row for row in HOSTS}
    for name, expected in {
        "znver3": (),
        "skylake-avx512": (),
        "icelake-server": ("avx512vnni",),
        "sapphirerapids": ("avx512vnni",),
        "znver5": ("avx512vnni",),
        "alderlake": ("avxvnni",),
        "sierraforest": ("avxvnniint8", "avxvnni"),
        "generic": (),
        "neoverse-n1": ("dotprod",),
        "neoverse-n2": ("dotprod", "i8mm"),
        "apple-m1": ("dotprod",),
    }.items():
        assert dots(by_name[name]) == expected, name
    # A narrower set uses what remains of the processor without what it turns off.
    assert dots(by_name["sapphirerapids"], "avx2") == ("avxvnni",)
    assert dots(by_name["icelake-server"], "avx2") == ()
    assert dots(by_name["sierraforest"], "sse2") == ()
    with assuming_host(by_name["alderlake"].host):
        assert named("avx2").dots == named("auto").dots == ("avxvnni",)


def test_portable_code_has_no_products_of_four_bytes() -> None:
    for isa in ISAS:
        assert not portable(isa.name).dots
        assert isa.quad_product(i8, i8) is None


def test_every_mac_with_arm_has_dot_products() -> None:
    found = host_isa(host_from("arm64-apple-darwin23", "apple-m9", {}))
    assert found is not None
    assert found.dots == ("dotprod",)


@pytest.mark.parametrize(
    ("name", "with_dots", "first", "second", "expected"),
    [
        ("avx512", ("avx512vnni",), i8, i8, ("llvm.x86.avx512.vpdpbusd.512", True, False)),
        ("avx512", ("avx512vnni",), u8, u8, ("llvm.x86.avx512.vpdpbusd.512", True, True)),
        ("avx512", ("avx512vnni",), u8, i8, ("llvm.x86.avx512.vpdpbusd.512", False, False)),
        ("avx512", ("avx512vnni",), i8, u8, ("llvm.x86.avx512.vpdpbusd.512", False, True)),
        ("avx2", ("avxvnni",), i8, i8, ("llvm.x86.avx512.vpdpbusd.256", True, False)),
        ("avx2", ("avxvnniint8", "avxvnni"), i8, i8, ("llvm.x86.avx2.vpdpbssd.256", False, False)),
        ("avx2", ("avxvnniint8", "avxvnni"), u8, u8, ("llvm.x86.avx2.vpdpbuud.256", False, False)),
        ("neon", ("dotprod",), i8, i8, ("llvm.aarch64.neon.sdot.v4i32.v16i8", False, False)),
        ("neon", ("dotprod",), u8, i8, ("llvm.aarch64.neon.sdot.v4i32.v16i8", True, False)),
        ("neon", ("dotprod", "i8mm"), u8, i8, ("llvm.aarch64.neon.usdot.v4i32.v16i8", False, False)),
    ],
)
def test_the_instruction_of_a_product_of_bytes(
    name: str, with_dots: tuple[str, ...], first: DType, second: DType, expected: tuple[str, bool, bool]
) -> None:
    found = evolve(next(isa for isa in ISAS if isa.name == name), dots=with_dots).quad_product(first, second)
    assert found is not None
    assert (found.intrinsic, found.flips, found.is_swapped) == expected


def test_code_is_kept_apart_by_processor() -> None:
    rows = [row for row in HOSTS if "avx2" in row.sets]
    isa = next(isa for isa in ISAS if isa.name == "avx2")
    found = set()
    for row in rows:
        with assuming_host(row.host):
            found.add(machine_words(isa))
    assert len(found) == len(rows)


@EVERY_HOST
def test_packages_run_where_the_processor_has_the_set(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Linux lists and what LLVM says lead to the same sets."""
    monkeypatch.setattr(features, "features", lambda: row.flags)
    monkeypatch.setattr(features, "arch", lambda: row.host.arch)
    monkeypatch.setattr(features.sys, "platform", "linux")
    assert tuple(isa.name for isa in ISAS if reason_against(*NEEDS[isa.name]) is None) == row.sets


# -------------------------------------------------------------------------------- code for a processor

FUSED = {"avx512bf16": "vfmadd", "avx512": "vfmadd", "avx2": "vfmadd", "neon": "fmla", "sse2": "mulp"}
REGISTERS = {
    "avx512bf16": r"%zmm\d",
    "avx512": r"%zmm\d",
    "avx2": r"%ymm\d",
    "neon": r"\bv\d+\.(4s|2d)",
    "sse2": r"%xmm\d",
}
ABSENT = {
    "avx512bf16": None,
    "avx512": "dpbf16ps",
    "avx2": r"%zmm|%k[1-7]|%[xy]mm(1[6-9]|2\d|3[01])",
    "neon": r"\bz\d+\.[bhsd]",
    "sse2": r"%[yz]mm|\bvaddp",
}
"""What code for a set must not contain: wider registers, and extensions that rlx has no tests of."""


def code(emitter: str, op: Op, operands: list[tuple[int, ...]], kind: DType, isa: Isa) -> str:
    """The machine code of an op on dense operands."""
    types = [TensorType(kind, shape) for shape in operands]
    builder = Builder()
    node = builder.emit(op, [builder.input(f"x{i}", each) for i, each in enumerate(types)])[0].node
    module = new_module("kernel", isa)
    layout = Layout(tuple(map(Place.dense, types)), tuple(map(Place.dense, node.types)))
    emitter_in(native, emitter)(module, node, layout, isa, "kernel")
    assert generate(str(module), isa)  # an object file too
    return assembly(module, isa)


@EVERY_HOST
@pytest.mark.parametrize("of", [f32, f64, bf16], ids=str)
def test_products_are_made_for_every_processor(row: Row, of: DType) -> None:
    # LLVM has no `without` of a narrower set where it makes code for another architecture.
    for name in row.sets if row.host.arch == this_host().arch else (row.best,):
        with made_for(row, name) as isa:
            text = code("native_matmul", MatMul(), [(37, 64), (64, 100)], of, isa)
        pairs = of is bf16 and isa.multiplies_bf16
        assert re.search("dpbf16ps" if pairs else FUSED[isa.name], text), isa.name
        assert re.search(REGISTERS[isa.name], text), isa.name
        if ABSENT[isa.name] is not None:
            assert not re.search(str(ABSENT[isa.name]), text), isa.name


@EVERY_HOST
@pytest.mark.parametrize("of", [f32, f64, f16], ids=str)
def test_loops_are_made_for_every_processor(row: Row, of: DType) -> None:
    for name in row.sets:
        with made_for(row, name) as isa:
            text = code("native_loop[rlx.gelu]", gelu.op(), [(5, 100)], of, isa)
        assert re.search(REGISTERS[isa.name], text), isa.name


@pytest.mark.parametrize("row", [row for row in HOSTS if row.best != "sse2"], ids=lambda row: row.name)
@pytest.mark.parametrize("of", [f32, f64], ids=str)
def test_the_inner_loop_of_a_product_spills_nothing_on_any_processor(row: Row, of: DType) -> None:
    """The block with the most fused products touches the stack in no instruction before its own branch back."""
    with made_for(row) as isa:
        text = code("native_matmul", MatMul(), [(128, 384), (384, 384)], of, isa)
    fused = FUSED[isa.name]
    inner = max(re.split(r"\n(?=\.LBB)", text), key=lambda block: block.count(fused))
    loop = re.split(r"\n\t(?:j\w+|b\.\w+|cbn?z|tbn?z)\t", inner)[0]
    assert loop.count(fused) >= 2 * 6 * 2
    assert not re.search(r"rsp|rbp|\[sp|\bsp,", loop)


@pytest.mark.parametrize("row", [row for row in HOSTS if masked(row) is not None], ids=lambda row: row.name)
def test_programs_run_as_on_every_processor_whose_features_are_here(row: Row) -> None:
    """The whole way: options, properties, code of the run-time and of a program, and its numbers."""
    host = masked(row)
    assert host is not None, "it is one of those"
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((9, 33)).astype("f4"), rng.standard_normal((33, 20)).astype("f4")

    def model(x: Any, w: Any) -> Any:
        return rlx.softmax(rlx.gelu(x @ w))

    with assuming_host(host):
        found = rlx.jit(model, host=HERE, target="cpu")
        isa = named("auto")
        with_dots = {"dots": " ".join(isa.dots)} if isa.dots else {}
        assert tier.properties({}) == {"tier": "native", "isa": row.best, **with_dots}
        value = np.asarray(found(x, w))
    expected = rlx.jit(model, host=HERE, target="cpu", config={"options": {"cpu.oracle": True}})(x, w)
    np.testing.assert_allclose(value, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", [isa.name for isa in ISAS])
def test_portable_code_is_the_same_on_every_processor(name: str) -> None:
    found = set()
    for row in (HOSTS[1], HOSTS[-2], next(row for row in HOSTS if row.name == "emeraldrapids")):
        with assuming_host(row.host):
            found.add(code("native_loop[rlx.gelu]", gelu.op(), [(5, 100)], f32, portable(name)))
    assert len(found) == 1


# --------------------------------------------------------------------------- no set that rlx makes code for


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A processor of another architecture, seen by a process that has not asked yet."""
    tier.reason_without.cache_clear()
    tier.warn_of_numpy.cache_clear()
    with assuming_host(Host("riscv64", "sifive-u74", frozenset({"m", "a", "d"}))):
        yield
    tier.reason_without.cache_clear()
    tier.warn_of_numpy.cache_clear()


@pytest.mark.usefixtures("unknown")
def test_the_user_is_told_once_that_numpy_runs_programs() -> None:
    with pytest.warns(RuntimeWarning, match=r"sifive-u74 \(riscv64\) has none of avx512bf16") as told:
        assert not tier.is_native({})
    assert "cpu.tier=numpy" in str(told[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tier.properties({})["tier"] == "numpy"
        assert np.asarray(rlx.jit(lambda x: x + 1, host=HERE, target="cpu")(np.ones(3, "f4"))).tolist() == [2, 2, 2]


@pytest.mark.usefixtures("unknown")
def test_who_asks_for_numpy_is_told_nothing_and_who_asks_for_native_code_why_not() -> None:
    assert not tier.is_native({"cpu.tier": "numpy"})
    with pytest.raises(ConfigError, match="native was asked for") as refused:
        tier.is_native({"cpu.tier": "native"})
    assert "no instruction set" in str(refused.value)


def test_masks_have_no_more_than_this_machine() -> None:
    for host in filter(None, map(masked, HOSTS)):
        assert host.features <= this_host().features
