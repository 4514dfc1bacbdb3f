"""Places in sorted lines: a thread a value, by halving."""

from __future__ import annotations

from rlx_core.codegen.ordering import Search
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.emit.emitters import Emitted
from rlx_core.ir.dtypes import i32
from rlx_gpu.codegen.indexing import index_refusal, length_refusal
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.lines.keys import count_before, load_key
from rlx_gpu.codegen.lines.template import Template, bits_dtype
from rlx_gpu.codegen.walks import Machine


def refusal(problem: Search, language: GpuDialect) -> str | None:
    """Return why places cannot be computed, as "needs …" would continue."""
    return (
        length_refusal("lines", problem.n)
        or language.refusal(problem.keys.dtype)
        or index_refusal(language, problem.lines * max(problem.n, problem.count))
    )


def print_search(problem: Search, language: GpuDialect, machine: Machine, scalars: ScalarTable) -> Emitted:
    """Return the launches that search; the buffers are the sorted lines, the values and the places."""
    assert (reason := refusal(problem, language)) is None, f"{problem} needs {reason}"
    p, total = problem, problem.lines * problem.count
    if not total:
        return Emitted((), ())
    t = Template(language, machine, scalars, machine.group, p.lines * max(p.n, p.count))
    with t.each_thread(total) as i:
        place = t.b.literal(i32, 0)
        if p.n:
            bits = bits_dtype(p.keys.dtype)
            base = t.number(f"({i} / {p.count}u) * {p.n}u", "base", t.kind)
            key, lines = load_key(t, p.keys, t.buffer(1, bits), i), t.buffer(0, bits)
            takes_equal = "true" if p.is_right else "false"
            count = count_before(t, key, takes_equal, f"{p.n}u", lambda k: load_key(t, p.keys, lines, f"{base} + {k}"))
            place = t.word(count)
        result = t.buffer(2, p.index, is_written=True)
        t.memory.store(result, p.index, i, t.b.resized(place, p.index, is_signed=False))
    return t.done("search")
