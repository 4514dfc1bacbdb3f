"""Elements as keys in registers, and how many keys of a sorted run come before one."""

from __future__ import annotations

from collections.abc import Callable

from rlx_core.codegen.ordering import Keys
from rlx_core.ir.dtypes import DType, i32, i64
from rlx_gpu.codegen.assembler import Register
from rlx_gpu.codegen.lines.template import Template, bits_dtype


def key_dtype(keys: Keys) -> DType:
    """The register of a key: of 32 bits or more."""
    return i64 if keys.dtype.itemsize == 8 else i32


def load_key(t: Template, keys: Keys, name: str, index: str) -> Register:
    """The key of an element of a buffer that is taken for its bits."""
    bits = t.memory.load(name, bits_dtype(keys.dtype), index)
    function = f"order_key_{keys.dtype}" + "_descending" * keys.is_descending + "_nan_first" * keys.nan_is_first
    return t.b.resized(t.b.invoke(function, keys.of, [bits], is_inline=True), key_dtype(keys), is_signed=False)


def count_before(t: Template, key: Register, takes_equal: str, count: str, load: Callable[[str], Register]) -> str:
    """Return how many keys of a sorted run are less than a key, by binary search.

    Args:
        takes_equal: A condition: whether equal keys count too.
        count: The keys of the run.
        load: The key at a place of the run.
    """
    low, high = t.variable("0u", "low"), t.variable(count, "high")
    with t.forever_while(f"{low} < {high}"):
        middle = t.number(f"({low} + {high}) / 2u", "middle")
        candidate = load(middle)
        is_less = t.b.icmp_unsigned("<", candidate, key).text
        is_equal = t.b.icmp_unsigned("==", candidate, key).text
        is_before = t.number(f"{is_less} || ({takes_equal} && {is_equal})", "is_before", "bool")
        t.b.line(f"if ({is_before}) {{ {low} = {middle} + 1u; }} else {{ {high} = {middle}; }}")
    return low
