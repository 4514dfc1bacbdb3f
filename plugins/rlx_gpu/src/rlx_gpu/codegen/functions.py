"""Functions of a GPU language, named by what they contain, each with its call."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rlx_core.codegen.places import Fault
from rlx_core.emit.emitters import Call, Emitted, Function
from rlx_gpu.codegen.assembler import TextAssembler
from rlx_gpu.codegen.indexing import as_index, index_type
from rlx_gpu.codegen.languages import Argument

_NAME = "RLX_NAME"
"""Placeholder of the function's name until its text is known, of which the name is a hash."""


def assembled(
    stem: str,
    b: TextAssembler,
    arguments: Mapping[int, Argument],
    shared: Sequence[str],
    group: int,
    groups: int,
    faults: tuple[Fault, ...] = (),
    dynamic_nbytes: int = 0,
) -> Emitted:
    """Return the function whose body an assembler has written, and its call; `arguments` are its buffers by number.

    Its name is a hash of its text, so that equal functions are one whatever they were made for.
    """
    head = b.language.kernel(_NAME, group, list(arguments.values()), shared, bool(faults))
    text = "\n".join((*head, b.text, "}")) + "\n"
    digest = hashlib.sha256("\n".join((text, *b.functions.values())).encode()).hexdigest()[:12]
    name = f"{''.join(c if c.isalnum() else '_' for c in stem)}_{digest}"
    function = Function(name, text.replace(_NAME, name), tuple(b.functions.items()))
    return Emitted((function,), (Call(name, groups, group, tuple(arguments), faults, dynamic_nbytes=dynamic_nbytes),))


@contextmanager
def each_group(b: TextAssembler, name: str, total: int, groups: int) -> Iterator[None]:
    """Loop over `total` shares of work, whose number is `name`, distributed over groups."""
    kind = index_type(total)
    if total <= groups:
        b.let(name, b.language.group, kind)
        yield
        return
    with b.loop(name, as_index(b.language.group, kind), f"{total}u", f"{groups}u", kind):
        yield
        b.barrier()  # reused in the next iteration only after all threads have read it
