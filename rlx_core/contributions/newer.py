"""Record fields of later rlx-core versions: they are skipped, so that a plugin works with an earlier version as well.

A field that is like one of this version is taken for a misspelling, which is an error as for any function.
"""

from __future__ import annotations

import functools
from contextvars import ContextVar
from typing import Any, TypeVar

import attrs

from rlx_core.errors import nearest
from rlx_core.system.context import assigned

_T = TypeVar("_T", bound=type)
_skipped: ContextVar[list[str] | None] = ContextVar("fields of later versions", default=None)


def noting_newer_fields() -> assigned[list[str]]:
    """The fields that are skipped while the block runs: `KernelSpec.sharding`."""
    return assigned(_skipped, [])


def skips_newer_fields(cls: _T) -> _T:
    """The class of a record, whose constructor skips keywords that it does not know while a plugin is collected."""
    decorated: Any = cls
    plain = decorated.__init__
    known = frozenset(each.name for each in attrs.fields(decorated))

    @functools.wraps(plain)
    def initialise(self: Any, *args: Any, **fields: Any) -> None:
        skipped = _skipped.get()
        if skipped is not None and not fields.keys() <= known:
            for name in sorted(fields.keys() - known):
                if nearest(name, known) is None:
                    del fields[name]
                    skipped.append(f"{cls.__name__}.{name}")
        plain(self, *args, **fields)

    decorated.__init__ = initialise
    return cls
