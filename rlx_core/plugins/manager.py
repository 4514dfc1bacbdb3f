"""The hook side: pluggy finds and verifies a plugin's hook implementations, and this module makes that safe.

Four things are mended. Registration is all or nothing. Looking for hooks runs no code of the plugin:
properties and lazy module attributes stay asleep. A misspelt hook is refused, not ignored. Implementations
are called one plugin at a time, so that one that raises costs only its own plugin.

pluggy 1.7 does the first two itself; rlx accepts pluggy 1.5, which does not.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any, Final

import pluggy

from rlx_core import hooks
from rlx_core.errors import Fact, PluginError, nearest
from rlx_core.hooks import PREFIX, PROJECT

MARK: Final = f"{PROJECT}_impl"  # where `hookimpl` leaves its options
ORDERING: Final = ("tryfirst", "trylast", "wrapper", "hookwrapper")

Hook = Callable[[], object]


class PluginManager(pluggy.PluginManager):
    """pluggy's manager for the hooks of `rlx_core.hooks`, with all-or-nothing registration.

    Args:
        plugin_modules: The modules that are plugins, by name: hooks belong to the module that defines them, not to importers.
    """

    def __init__(self, plugin_modules: frozenset[str] = frozenset()) -> None:
        super().__init__(PROJECT)
        self.plugin_modules: Final = plugin_modules
        self.add_hookspecs(hooks)
        self.known: Final = frozenset(name for name, value in vars(hooks).items() if hasattr(value, f"{PROJECT}_spec"))

    def parse_hookimpl_opts(self, plugin: object, name: str) -> Any:
        """Only the plugin's own plain functions and methods are examined, and without evaluating the attribute."""
        function = routine(plugin, name)
        if function is None or self.is_imported(function, plugin):
            return None
        return super().parse_hookimpl_opts(plugin, name)

    def register(self, plugin: object, name: str | None = None) -> str | None:
        """Register every hook implementation of a plugin, or none.

        Raises:
            PluginError: a hook's name or arguments are not those of a hook, or its marker uses an option that rlx
                does not support; the manager is as it was before.
        """
        self.verify(plugin)
        try:
            return super().register(plugin, name)
        except BaseException as error:
            if self.holds(plugin):
                self.unregister(plugin)
            if isinstance(error, pluggy.PluginValidationError):
                message = str(error).strip().splitlines()[-1]
                raise PluginError(f"a hook's arguments differ from its specification: {message}") from error
            raise

    def is_imported(self, function: Any, plugin: object) -> bool:
        """Return whether a function is a hook of another plugin module, which this plugin imported: its records are not this
        one's.

        A package may spread its hooks over modules, as long as those are not plugins themselves. A function that is not an
        attribute of its module was made for the plugin that holds it.
        """
        if not inspect.ismodule(plugin) or function.__module__ == plugin.__name__:
            return False
        if function.__module__ in self.plugin_modules:
            return True
        member = vars(sys.modules.get(function.__module__, plugin)).get(function.__name__)
        is_elsewhere = function.__module__.partition(".")[0] != plugin.__name__.partition(".")[0]
        return is_elsewhere and member is function

    def holds(self, plugin: object) -> bool:
        """Return whether this very object is registered; plugins need neither be hashable nor compare sanely."""
        return any(each is plugin for _, each in self.list_name_plugin())

    def verify(self, plugin: object) -> None:
        """Refuse hooks that pluggy would accept and then never call, or call in an order that rlx does not keep."""
        for hook, function, options in self._hooks_of(plugin):
            if hook not in self.known:
                if options is not None and options.get("optionalhook"):
                    continue  # declared optional: written for a later rlx as well
                hint = nearest(hook, self.known)
                if hint is None and options is not None:
                    continue  # a hook of a later rlx-core; see `newer_hooks`
                raise PluginError(f"`{hook}` is not a hook of rlx", place(function), hint=hint)
            if options is None:
                raise PluginError(f"`{hook}` lacks its `@hookimpl` marker", place(function))
            for option in ORDERING:
                if options.get(option):
                    hint = "order is said by the records: before, after, priority"
                    raise PluginError(f"`{hook}` is marked `{option}`", place(function), hint=hint)

    def newer_hooks(self, plugin: object) -> list[str]:
        """Return the hooks of a plugin that are unknown to this rlx-core and not similar to a known name."""
        return [
            hook
            for hook, _, options in self._hooks_of(plugin)
            if options is not None and hook not in self.known and not options.get("optionalhook")
        ]

    def _hooks_of(self, plugin: object) -> Iterator[tuple[str, Any, Mapping[str, Any] | None]]:
        """Yield the functions of a plugin that are marked as hooks, or that it defines under a name of one; none imported from
        elsewhere. With each comes the name of the hook, and the options of its marker, if it has one."""
        for name in dir(plugin):
            function = routine(plugin, name)
            options: Mapping[str, Any] | None = getattr(function, MARK, None)
            if function is None or self.is_imported(function, plugin):
                continue
            if options is not None or (name.startswith(PREFIX) and defined_by(function, plugin)):
                yield name if options is None else options.get("specname") or name, function, options

    def implementations(self, plugin: object) -> dict[str, list[Hook]]:
        """A registered plugin's hooks and the functions that implement them."""
        return {
            caller.name: [each.function for each in caller.get_hookimpls() if each.plugin is plugin]
            for caller in self.get_hookcallers(plugin) or ()
        }


def routine(plugin: object, name: str) -> Any:
    """Return the function or method behind an attribute without running a property or `__getattr__`; else `None`."""
    attribute = inspect.getattr_static(plugin, name, None)
    if isinstance(attribute, staticmethod | classmethod):
        return attribute.__func__
    return attribute if isinstance(attribute, FunctionType | MethodType) else None


def defined_by(function: Any, plugin: object) -> bool:
    """Return whether a function was written in the plugin itself, not imported into it."""
    module = plugin.__name__ if inspect.ismodule(plugin) else type(plugin).__module__
    return bool(function.__module__ == module)


def place(function: Any) -> Fact:
    """Return the file and line of a function."""
    file, line = source_of(function)
    return Fact("hook", f"{file}:{line}")


def source_of(function: Any) -> tuple[str, int]:
    """The file and the line of a function."""
    code = getattr(function, "__func__", function).__code__
    return code.co_filename, code.co_firstlineno
