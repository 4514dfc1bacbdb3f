"""HIR extensions: named functions from module to module that plugins add, applied in an order they declare.

The order follows from `before` and `after` alone, with ties by name, so it never depends on who registered first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from attrs import field, frozen

from rlx_core.errors import ConfigError, CycleError, Fact, UnknownNameError, nearest
from rlx_core.ir.module import Module, Stage
from rlx_core.ir.verify import raise_faults, verify

__all__ = ["Extension", "Extensions"]


@frozen
class Extension:
    """One extension.

    Attributes:
        name: Unique among all that are registered.
        run: From a HIR module to a HIR module.
        before, after: Extensions that it precedes or follows, where they are there at all.
        owner: Who offers it, for messages.
    """

    name: str
    run: Callable[[Module], Module] = field(eq=False)
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    owner: str = "unknown"


@frozen
class Extensions:
    """The extensions of one registry: a value, so that two compiles never see each other's."""

    members: tuple[Extension, ...] = ()

    def register(self, extension: Extension) -> Extensions:
        """These and one more.

        Raises:
            ConfigError: The name is taken; the message has both owners.
        """
        first = next((e for e in self.members if e.name == extension.name), None)
        if first is not None:
            raise ConfigError(
                f"extension {extension.name}: {first.owner} offers it already",
                Fact("first", first.owner),
                Fact("second", extension.owner),
            )
        return Extensions((*self.members, extension))

    def ordered(self, names: Iterable[str] | None = None) -> tuple[Extension, ...]:
        """All, or those named, in the order in which they run.

        Raises:
            UnknownNameError: A name is not registered.
            CycleError: Their relations contradict each other; the message spells the cycle out.
        """
        known = {e.name: e for e in self.members}
        wanted = sorted(known if names is None else set(names))
        for name in wanted:
            if name not in known:
                raise UnknownNameError(f"extension {name}: nobody offers it", hint=nearest(name, known))
        earlier = {name: self._earlier(known[name], [known[n] for n in wanted]) for name in wanted}
        return tuple(known[name] for name in _topological(earlier))

    @staticmethod
    def _earlier(extension: Extension, among: Sequence[Extension]) -> set[str]:
        """The names that must run before `extension`."""
        return {e.name for e in among if e.name in extension.after or extension.name in e.before}

    def apply(self, module: Module, names: Iterable[str] | None = None) -> Module:
        """The module after all extensions, or a named subset, ran on it; verified after each.

        Raises:
            WrongStageError: The module is not HIR, or an extension returned one that is not.
            VerifyError: An extension broke the module; the message names it.
        """
        module.require(Stage.HIR, "an extension")
        for extension in self.ordered(names):
            module = extension.run(module)
            graph = module.require(Stage.HIR, f"the result of extension {extension.name}")
            raise_faults(verify(graph, Stage.HIR), f"HIR module {graph.name} after extension {extension.name}")
        return module


def _topological(earlier: dict[str, set[str]]) -> list[str]:
    """Names after everything that must precede them; among those that are free, alphabetically."""
    order: list[str] = []
    left = dict(earlier)
    while left:
        free = sorted(name for name, before in left.items() if not before & left.keys())
        if not free:
            raise CycleError(f"extensions: {' before '.join(_cycle(left))}")
        order.append(free[0])
        del left[free[0]]
    return order


def _cycle(left: dict[str, set[str]]) -> list[str]:
    """One cycle among names that all wait for another, earliest first."""
    path = [min(left)]
    while True:
        previous = min(left[path[0]] & left.keys())
        if previous in path:
            return [previous, *path[: path.index(previous) + 1]]
        path.insert(0, previous)
