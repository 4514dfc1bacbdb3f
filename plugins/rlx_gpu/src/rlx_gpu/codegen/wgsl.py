"""WGSL: f32, u32 and pairs of u32; memory is one array of words.

A 64-bit integer is a `vec2<u32>`, its lower word first, and narrow ones are words whose upper bits are 0. All buffers are in
one binding, because a dispatch may not bind one buffer twice; the start of each is a uniform, in bytes, after a 0 whose value
is opaque to compilers: a part of an array of bytes may begin inside a word. A kernel that writes elements smaller than a word
declares the words atomic: it changes its bits with one exclusive or. The language may lose NaN in comparisons and refuses it as
a constant, so both operate on bits; and it may reassociate, so minuends go through an exclusive or with that 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from attrs import evolve

from rlx_core.ir.dtypes import DType, bool_, f32, i8, i16, i32, i64
from rlx_core.system.records import frozen
from rlx_gpu.codegen.c_family import WITHOUT_F64, builtins
from rlx_gpu.codegen.languages import Argument, GpuDialect
from rlx_gpu.codegen.wgsl_prelude import FRAGMENTS, WIDE_FRAGMENTS, segmented, words

__all__ = ["WGSL", "WGSL_WIDE", "Wgsl", "segmented"]

_OF_PAIRS = frozenset(("add", "sub", "mul", "neg", "udiv", "urem", "sdiv", "srem", "shl", "lshr", "ashr"))

_WRITES_BELOW_WORDS = ("rlx_set_byte", "rlx_set_half")


@frozen(kw_only=True)
class Wgsl(GpuDialect):
    """WGSL, where its syntax differs from the C family."""

    def type(self, dtype: DType) -> str:
        if dtype is bool_:
            return "bool"
        if dtype is i64:
            return "vec2<u32>"
        return "f32" if dtype.is_float else "u32"

    def literal(self, dtype: DType, number: bool | int | float) -> str:
        if dtype is bool_ or dtype.is_float:
            return super().literal(dtype, number)
        integer = int(number) % (1 << 8 * dtype.itemsize)
        if dtype is i64:
            return f"vec2<u32>({integer & 0xFFFFFFFF}u, {integer >> 32}u)"
        return f"{integer}u"

    def float_literal(self, dtype: DType, number: float) -> str:
        # A constant -0.0 may lose its sign.
        if number == 0 and str(float(number)).startswith("-"):
            return self.from_bits(f32, "0x80000000u")
        return super().float_literal(dtype, number)

    # ---------------------------------------------------------------------------------- instructions

    def instruction(self, name: str, dtype: DType, *args: str) -> str:
        if dtype is i64 and name in _OF_PAIRS:
            return f"rlx_{name}64({', '.join(args)})"
        if name in ("sdiv", "srem", "ashr"):
            x = _signed(dtype, args[0])
            y = args[1] if name == "ashr" else _signed(dtype, args[1])
            sign = {"sdiv": "/", "srem": "%", "ashr": ">>"}[name]
            return _wrapped(dtype, f"bitcast<u32>({x} {sign} {y})")
        if name == "fsub":
            # The language may reassociate: (x + c) - c, which rounds, would become x.
            return f"rlx_opaque({args[0]}) - {args[1]}"
        if name == "fabs":
            return f"abs({args[0]})"
        if name == "rint":
            return f"round({args[0]})"  # ties to even
        if name == "copysign":
            return f"rlx_copysign({', '.join(args)})"
        if name == "neg":
            return _wrapped(dtype, f"0u - {args[0]}")
        text = super().instruction(name, i32 if dtype in (i8, i16) else dtype, *args)
        return _wrapped(dtype, text) if not dtype.is_float else text

    def compared(self, relation: str, dtype: DType, x: str, y: str, *, is_signed: bool) -> str:
        if dtype is bool_:
            return f"u32({x}) {relation} u32({y})"
        if dtype is i64:
            if relation in ("==", "!="):
                return f"{'all' if relation == '==' else 'any'}({x} {relation} {y})"
            less, flipped = f"rlx_{'s' if is_signed else 'u'}less64", relation in (">", "<=")
            text = f"{less}({y}, {x})" if flipped else f"{less}({x}, {y})"
            return f"!{text}" if relation in (">=", "<=") else text
        return f"{_signed(dtype, x)} {relation} {_signed(dtype, y)}" if is_signed else f"{x} {relation} {y}"

    def ordered(self, relation: str, x: str, y: str) -> str:
        return f"{x} {relation} {y} && !rlx_isnan2({x}, {y})"

    def unordered(self, relation: str, x: str, y: str) -> str:
        if relation == "uno":
            return f"rlx_isnan({x})" if x == y else f"rlx_isnan2({x}, {y})"
        return f"{x} {relation} {y} || rlx_isnan2({x}, {y})"

    def select(self, condition: str, yes: str, no: str) -> str:
        return f"select({no}, {yes}, {condition})"

    def resized(self, x: str, source: DType, to: DType, *, is_signed: bool) -> str:
        if source is i64:
            return _wrapped(to, f"{x}.x") if to is not i64 else x
        word = f"u32({x})" if source is bool_ else x
        if is_signed and to.itemsize > source.itemsize and source is not bool_:
            word = f"bitcast<u32>({_signed(source, word)})"
        if to is i64:
            return f"rlx_signed64({word})" if is_signed else f"vec2<u32>({word}, 0u)"
        return _wrapped(to, word)

    def float_of(self, x: str, source: DType, to: DType, *, is_signed: bool) -> str:
        if source is i64:
            return f"rlx_f32_of_{'i' if is_signed else 'u'}64({x})"
        return f"f32({_signed(source, x)})" if is_signed else f"f32({x})"

    def whole_of(self, x: str, source: DType, to: DType, *, is_signed: bool) -> str:
        if to is i64:
            return f"rlx_{'i' if is_signed else 'u'}64_of_f32({x})"
        return _wrapped(to, f"bitcast<u32>(i32({x}))" if is_signed else f"u32({x})")

    # ------------------------------------------------------------------------------------ statements

    def declared(self, type: str, name: str, text: str) -> str:
        return f"let {name}: {type} = {text};"

    def variable(self, type: str, name: str, text: str | None = None) -> str:
        return f"var {name}: {type};" if text is None else f"var {name}: {type} = {text};"

    def array(self, type: str, name: str, size: int) -> str:
        return f"var {name}: array<{type}, {size}>;"

    def shared(self, type: str, name: str, size: int) -> str:
        return f"var<workgroup> {name}: array<{type}, {size}>;"

    def loop(self, kind: str, name: str, start: str, stop: str, step: str) -> str:
        return f"for (var {name}: {kind} = {start}; {name} < {stop}; {name} += {step}) {{"

    def function(self, result: str, name: str, parameters: Sequence[tuple[str, str]]) -> str:
        return f"fn {name}({', '.join(f'{n}: {t}' for t, n in parameters)}) -> {result} {{"

    # ---------------------------------------------------------------------------------------- memory

    def index(self, text: str, kind: str) -> str:
        return f"{text}.x"

    def loaded(self, name: str, dtype: DType, index: str) -> str:
        size = dtype.itemsize
        if size == 8:
            return f"vec2<u32>(rlx_word({name} + 2u * ({index})), rlx_word({name} + 2u * ({index}) + 1u))"
        if size == 4:
            word = f"rlx_word({name} + {index})"
            return f"bitcast<f32>({word})" if dtype.is_float else word
        return f"rlx_{'byte' if size == 1 else 'half'}({name}, {index})"

    def stored(self, name: str, dtype: DType, index: str, text: str) -> str:
        size = dtype.itemsize
        if size == 8:
            address = f"{name} + 2u * ({index})"
            return f"rlx_set_word({address}, {text}.x); rlx_set_word({address} + 1u, {text}.y);"
        if size == 4:
            return f"rlx_set_word({name} + {index}, {f'bitcast<u32>({text})' if dtype.is_float else text});"
        return f"rlx_set_{'byte' if size == 1 else 'half'}({name}, {index}, {text});"

    def loaded_words(self, name: str, dtype: DType, index: str, count: int, fresh: str) -> tuple[list[str], list[str]]:
        first = f"let {fresh}: u32 = {_word_of(name, dtype, index)};"
        reads = [f"let {fresh}_{k}: u32 = rlx_word({fresh} + {k}u);" for k in range(count)]
        return [first, *reads], [f"{fresh}_{k}" for k in range(count)]

    def stored_words(self, name: str, dtype: DType, index: str, words: Sequence[str], fresh: str) -> list[str]:
        first = f"let {fresh}: u32 = {_word_of(name, dtype, index)};"
        return [first, *(f"rlx_set_word({fresh} + {k}u, {word});" for k, word in enumerate(words))]

    def joined(self, low: str, high: str) -> str:
        return f"vec2<u32>({low}, {high})"

    def parted(self, text: str) -> tuple[str, str]:
        return f"{text}.x", f"{text}.y"

    def fault(self, site: int, place: str, index: str) -> str:
        return f"rlx_fault(site + {site}u, {place}, {index});"

    def kernel(
        self, name: str, size: int, arguments: Sequence[Argument], shared: Sequence[str], uses_status: bool
    ) -> list[str]:
        places = [("nothing", 0), *((a.name, _below(a.dtype)) for a in arguments), *[("site", 0)] * uses_status]
        return [
            *shared,
            f"@group(0) @binding(1) var<uniform> places: array<vec4<u32>, {-(-len(places) // 4)}>;",
            f"@compute @workgroup_size({size}, 1, 1)",
            f"fn {name}(@builtin(local_invocation_index) thread_in_group: u32, "
            "@builtin(workgroup_id) group_of_three: vec3<u32>) {",
            "  let group_in_grid: u32 = group_of_three.x;",
            *(
                f"  let {place}: u32 = places[{i // 4}].{'xyzw'[i % 4]}{f' >> {below}u' if below else ''};"
                for i, (place, below) in enumerate(places)
                if i
            ),
        ]

    def module(self, functions: Iterable[str]) -> str:
        text = list(functions)
        is_shared = any(word in part for part in text for word in _WRITES_BELOW_WORDS)
        memory = words(are_shared=is_shared)
        return self._module(text, memory["memory"], {**memory, **self.fragments})


def _signed(dtype: DType, text: str) -> str:
    """A word with its sign, as i32."""
    if dtype in (i8, i16):
        unused = 32 - 8 * dtype.itemsize
        return f"(bitcast<i32>({text} << {unused}u) >> {unused}u)"
    return f"bitcast<i32>({text})"


def _wrapped(dtype: DType, text: str) -> str:
    """A word whose bits above the width of `dtype` are 0."""
    if dtype in (i8, i16):
        return f"({text}) & {'0xffu' if dtype is i8 else '0xffffu'}"
    return text


def _below(dtype: DType) -> int:
    """Return log2 of an element's bytes, at most of a word: the number of low address bits below an element's index."""
    return min(dtype.itemsize, 4).bit_length() - 1


def _word_of(name: str, dtype: DType, index: str) -> str:
    """Return the word in which an element of a buffer begins."""
    if dtype.itemsize < 4:
        return f"({name} + ({index})) >> {2 - _below(dtype)}u"
    return f"{name} + 2u * ({index})" if dtype.itemsize == 8 else f"{name} + ({index})"


WGSL = Wgsl(
    name="wgsl",
    suffix=".wgsl",
    dtypes=WITHOUT_F64,
    buffers="words",
    base="",
    fragments=FRAGMENTS,
    inexact=frozenset(("frem", "fma")),
    # The WGSL specification: 3 + 2·|x| ulp for exponentials of up to 88, and a bound without ulp for logarithms next to 1.
    builtins=builtins(exp=180, exp2=260, log=inf, log2=inf, tanh=inf, sin=inf, cos=inf),
    one_entry=True,
    thread="thread_in_group",
    group="group_in_grid",
    barrier="workgroupBarrier();",
    memory_barrier="storageBarrier(); workgroupBarrier();",
    unrolled="",
    forever="loop {",
)

WGSL_WIDE = evolve(WGSL, fragments={**FRAGMENTS, **WIDE_FRAGMENTS})
"""For devices with whole numbers of 64 bits, `shader-int64`: products and quotients of i64 are theirs."""
