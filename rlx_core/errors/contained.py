"""The wrapper around calls of contributed code, whose errors then name the plugin, the record and the step.

The owner is looked up only when something was raised: a call that succeeds costs what a `try` costs, which is nothing on the
Python versions that rlx supports. Layers below `rlx_core.plugins` use this module as well, so it imports that layer on failure.
"""

from __future__ import annotations

import importlib
from types import TracebackType
from typing import NoReturn


def is_contained(error: BaseException | None) -> bool:
    """Return whether an exception is the contribution's own fault: not an interrupt, and not an out-of-memory error."""
    return isinstance(error, Exception | SystemExit) and not isinstance(error, MemoryError)


class contained:
    """Raise exceptions of contributed code as a `PluginError` that names its plugin; for `with`.

    Errors of rlx's own types pass unchanged, and so do exceptions of code that
    belongs to no plugin: a user's own op in a notebook.

    Args:
        kind: The kind of the record: a key of `rlx_core.contributions.KINDS`.
        name: The name of the record, or of the row of its table.
        step: The current step, as a noun phrase: "the code of rlx.exp".
        plugin: The name of the plugin, where it is not the first word of `name`.

    Raises:
        PluginError: The block raised; the exception is the cause.
    """

    __slots__ = ("kind", "name", "plugin", "step")

    def __init__(self, kind: str, name: str, step: str, plugin: str | None = None) -> None:
        self.kind, self.name, self.step, self.plugin = kind, name, step, plugin

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and is_contained(error):
            typed = importlib.import_module("rlx_core.plugins.use").typed_error
            translated = typed(self.kind, self.name, self.step, self.plugin, error)
            if translated is not error:
                raise translated from error


def reraise(error: BaseException, kind: str, name: str, step: str, plugin: str | None = None) -> NoReturn:
    """Raise `error` as `contained` would; for an `except` clause where entering a context costs too much."""
    with contained(kind, name, step, plugin):
        raise error
    raise AssertionError("the context raises what the block raised")
