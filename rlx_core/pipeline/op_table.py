"""The ops of a plugin host as a table by name, for readers of programs in files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rlx_core.ir.op import Op
from rlx_core.pipeline.contributed import load_op
from rlx_core.plugins import PluginHost
from rlx_core.system.records import frozen


@frozen
class HostOps(Mapping[str, type[Op]]):
    """The ops and blocks of a host: one is imported, and its plugin activated, when a program names it."""

    host: PluginHost

    def __getitem__(self, name: str) -> type[Op]:
        return load_op(self.host, name)

    def __iter__(self) -> Iterator[str]:
        registry = self.host.activate_all()
        return iter({**registry.ops, **registry.blocks})

    def __len__(self) -> int:
        return len(list(iter(self)))
