"""The loop language's text is read back to the same kernel, and what does not fit is refused with its place."""

from __future__ import annotations

import pytest

from rlx_core.codegen import parse_kernel, print_kernel
from rlx_core.codegen.loops import Kernel
from rlx_core.errors import FormatError
from rlx_core.ops import standard_ops

from .kernels import SAMPLES, SOFTMAX

OPS = {op.name: op for op in standard_ops()}

GATHER = """\
kernel "of a table" grid [6, 2] row []
  operand 0: x0 f32
  operand 1: x1 i64
  result 2: y0 f32
  %0 = load x1[g0*8 + -16] : i64
  %1 = index g1*2 + 3 : i64
  %2 = bound %0 in 0..2 checked : i64
  %3 = load x0[g1*4 + 8 + %2*16] : f32
  %4 = const nan(0x7ff8000000000001) : f32
  %5 = max(%3, %4) : f32
  %6 = cast(%1, to=f32) : f32
  %7 = add(%5, %6) : f32
  store %7 -> y0[g0*8 + g1*4]
"""


def test_the_samples_of_many_ops_are_kernels() -> None:
    assert len(SAMPLES) > 1000


@pytest.mark.parametrize("made", SAMPLES.values(), ids=map(str, SAMPLES))
def test_a_kernel_prints_and_parses_back(made: Kernel) -> None:
    text = print_kernel(made)

    read = parse_kernel(text, OPS)

    assert repr(read) == repr(made)  # every field; `==` would tell a NaN from itself
    assert print_kernel(read) == text


ALIGNED = SOFTMAX.replace("x0 f32", "x0 f32 aligned 4", 1)


@pytest.mark.parametrize("text", [SOFTMAX, GATHER, ALIGNED], ids=["softmax", "gather", "aligned"])
def test_text_by_hand_means_what_it_prints(text: str) -> None:
    read = parse_kernel(text, OPS)
    printed = [line for line in print_kernel(read).splitlines() if not line.lstrip().startswith("#")]
    assert "\n".join(printed) + "\n" == text


def test_comments_and_space_do_not_matter() -> None:
    loose = SOFTMAX.replace(" : ", "   :\n   ").replace("  store", "  # the end\n store")
    assert parse_kernel(loose, OPS) == parse_kernel(SOFTMAX, OPS)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("kernel softmax", "kernl softmax", "line 1, column 1: expected `kernel`, found `kernl`"),
        ("grid [3]", "grid [3", "line 1, column 24: expected `,` or `]`, found `row`"),
        ("operand 0", "operand 1", "line 2, column 11: expected buffer 0, the next one, found `1`"),
        ("y0 f32", "x0 f32", "line 3, column 13: two buffers are called x0, found `x0`"),
        ("x0 f32", "x0 f33", "line 2, column 17: f33 is no dtype, found `f33`"),
        ("%1 = max", "%7 = max", "line 5, column 3: expected %1, the next value, found `%`"),
        ("load x0", "load x9", "line 4, column 13: there is no buffer x9, found `x9`"),
        ("[g0*20 + r1*4] : f32", "[g0*20 + r2*4] : f32", "line 4, column 24: r2 is no axis of the row (those are r1)"),
        ("[g0*20 + r1*4] : f32", "[g0*20 + g0*4] : f32", "line 4, column 24: an axis has one stride"),
        ("[g0*20 + r1*4] : f32", "[g0*20 r1*4] : f32", "line 4, column 22: expected `+` or `]`, found `r1`"),
        ("over row", "over rows", "line 5, column 17: expected `row`, found `rows`"),
        ("sub(%0, %1)", "sub(%0, %2)", "line 6, column 16: %2 is not defined before this"),
        ("sub(%0, %1)", "sbu(%0, %1)", "line 6, column 8: op rlx.sbu: no active plugin provides it"),
        ("exp(%2)", "exp(%2, base=2)", "exp: line 7, column 8: "),
        ("%1) : f32[row]", "%1) : f32", "line 6, column 22: %2 varies over the row: expected [row]"),
        ("of %3 : f32", "of %3 : f32[row]", "%4 is one a row: expected no [row]"),
        ("  store %5 ->", "  store %5", "line 10, column 12: expected `->`, found `y0`"),
        ("-> y0[g0*20 + r1*4]", "-> y0[g0*20 + %0*4]", "a store has no index that is a value"),
        ("  store %5", "  stroe %5", "line 10, column 3: expected a value or `store`, found `stroe`"),
        ("r1*4]\n", "r1*4] x\n", "expected"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_its_place(old: str, new: str, says: str) -> None:
    head, found, tail = SOFTMAX.rpartition(old) if old == "r1*4]\n" else SOFTMAX.partition(old)
    assert found
    with pytest.raises(FormatError) as refused:
        parse_kernel(head + new + tail, OPS)
    assert says in str(refused.value)
