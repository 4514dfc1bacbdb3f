"""Functions of a GPU language, named by what they contain, and how each is launched."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rlx_core.system.records import frozen
from rlx_gpu.codegen.assembler import TextAssembler
from rlx_gpu.codegen.indexing import as_index, index_type
from rlx_gpu.codegen.languages import Argument

_NAME = "RLX_NAME"
"""Placeholder of the function's name until its text is known, of which the name is a hash."""


@frozen
class Launch:
    """A launch of a function: its grid and its buffers.

    Attributes:
        entry: The function.
        group: Threads of a group.
        groups: Groups, along one dimension.
        buffers: Numbers of the buffers that are passed, in the order of the arguments.
        checked: Values of the kernel, by number, that report an index out of range, each at a separate site. If there are any,
            the status words and the number of the first site follow the buffers.
        dynamic_nbytes: Shared memory of a group beyond what the function declares; an argument of the launch.
    """

    entry: str
    group: int
    groups: int
    buffers: tuple[int, ...]
    checked: tuple[int, ...] = ()
    dynamic_nbytes: int = 0


@frozen
class Function:
    """A function of a GPU language and how it is launched; `parts` are functions that it calls, by name."""

    text: str
    parts: tuple[tuple[str, str], ...]
    launch: Launch


@frozen
class Printed:
    """Functions to launch in their order; workspaces are buffers of so many bytes, numbered after those of the problem."""

    functions: tuple[Function, ...]
    workspaces: tuple[int, ...] = ()


def assembled(
    stem: str,
    b: TextAssembler,
    arguments: Mapping[int, Argument],
    shared: Sequence[str],
    group: int,
    groups: int,
    checked: tuple[int, ...] = (),
    dynamic_nbytes: int = 0,
) -> Function:
    """The function whose body an assembler has written; `arguments` are its buffers by number.

    Its name is a hash of its text, so that equal functions are one whatever they were made for.
    """
    head = b.language.kernel(_NAME, group, list(arguments.values()), shared, bool(checked))
    text = "\n".join((*head, b.text, "}")) + "\n"
    digest = hashlib.sha256("\n".join((text, *b.functions.values())).encode()).hexdigest()[:12]
    name = f"{''.join(c if c.isalnum() else '_' for c in stem)}_{digest}"
    launch = Launch(name, group, groups, tuple(arguments), checked, dynamic_nbytes)
    return Function(text.replace(_NAME, name), tuple(b.functions.items()), launch)


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
