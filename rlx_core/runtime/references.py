"""Functions in pickles: they are serialised by name, not as code, so the name must be importable."""

from __future__ import annotations

import functools
import sys
import types
from typing import Any

from rlx_core.errors import Fact, FormatError
from rlx_core.plugins import PluginHost, default_host
from rlx_core.trees.flatten import function_name


def is_found(value: Any) -> bool:
    """Return whether importing its module and its qualified name gives the same object."""
    place: Any = sys.modules.get(value.__module__ or "")
    for name in getattr(value, "__qualname__", "").split("."):  # some things that can be called have no name
        place = getattr(place, name, None)
    return place is value


def expect_importable(function: Any) -> None:
    """Require that another process can import a plain function by its name.

    Raises:
        FormatError: It is a lambda, is defined inside another function, or its name means something else by now.
    """
    while isinstance(function, functools.partial | types.MethodType):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    if isinstance(function, types.FunctionType) and not is_found(function):
        code = function.__code__
        raise FormatError(
            f"pickle: {function.__qualname__} cannot be found in {function.__module__}, so no other process can import it",
            Fact("defined", f"{code.co_filename}:{code.co_firstlineno}"),
            hint="define it with def at the top of a module; or compile it, rlx.compile(f, ...), which takes its program along",
        )


def made_again(staged: Any, recipe: functools.partial[Any] | None) -> Any:
    """Return the value of `__reduce__` for a staged function: its name if it suffices (a decorated one), else its constructor.

    Raises:
        FormatError: Its function cannot be imported, or it uses plugins that only this process has.
    """
    if is_found(staged):
        return staged.__qualname__
    name = function_name(staged)
    if recipe is None:
        raise FormatError(f"pickle: {name} was made for one call, and does not travel")
    expect_importable(recipe.args[0])
    expect_default_host(name, recipe.keywords.get("host"))
    return recipe, ()


def expect_default_host(what: str, host: PluginHost | None) -> None:
    """Require the plugins that every process finds.

    Raises:
        FormatError: It is another host.
    """
    if host is not None and host is not default_host():
        raise FormatError(
            f"pickle: {what} was made with a plugin host of its own, and plugins do not travel",
            hint="install the plugins and leave host out; or save it, and load it with the host of that process",
        )
