"""The ops and blocks of a plugin host as a table by name, for whoever reads a program from a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import frozen

from rlx_core.ir.op import Op
from rlx_core.plugins import PluginHost
from rlx_core.plugins.conditions import conditions_of

__all__ = ["HostOps"]


@frozen
class HostOps(Mapping[str, type[Op]]):
    """The ops and blocks of a host: one is imported, and its plugin activated, when a program names it."""

    host: PluginHost

    def __getitem__(self, name: str) -> type[Op]:
        # Whoever has the name is active after this, whether it is an op's or a block's.
        self.host.activate_for(*conditions_of("ops", name))
        kind = "blocks" if name in self.host.registry().blocks else "ops"
        found: type[Op] = self.host.load(kind, name)
        return found

    def __iter__(self) -> Iterator[str]:
        registry = self.host.activate_all()
        return iter([*registry.ops, *registry.blocks])

    def __len__(self) -> int:
        return sum(1 for _ in self)
