"""Checks of contributions: the required type of each kind of contribution when its address is imported.

Code that uses a contribution runs the check of its kind (`EXPECTED`); the command line runs all of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from rlx_core import __version__, ir, pipeline
from rlx_core.contributions import Contribution, KernelSpec, OpSpec, PassSpec, RuleSpec, SchemeSpec
from rlx_core.errors import UnknownNameError
from rlx_core.ir.declared import accepts, complaints
from rlx_core.ir.op import Op
from rlx_core.ops.families import removed_ops
from rlx_core.pipeline.backend import Backend
from rlx_core.pipeline.kernels import Kernel
from rlx_core.plugins import PluginHost, Registry
from rlx_core.plugins.conditions import conditions_of
from rlx_core.public import CORE, FUNCTIONS
from rlx_core.system.records import frozen

if TYPE_CHECKING:
    from rlx_core.pipeline.dispatch import LegalizationTable

Complaint = Callable[[Any, Any, Registry], str | None]
"""From an imported object, its record and the registry to the fault, or `None`."""


def expectation(kind: str, spec: Contribution, registry: Registry) -> Callable[[Any], str | None]:
    """Return the check of a record as a function of the imported object alone, which returns the fault or `None`."""
    return lambda thing: EXPECTED[kind](thing, spec, registry)


def load_op(host: PluginHost, name: str) -> type[Op]:
    """The op of a name, or the block: a program holds both.

    Raises:
        PluginError: It does not load, or is no op that can be used; and see `Registry.require`.
        UnknownNameError: An earlier version had the op.
    """
    registry = host.activate_for(*conditions_of("ops", name))
    kind = "blocks" if name in registry.blocks and name not in registry.ops else "ops"
    try:
        spec = host.require(kind, name)
    except UnknownNameError as error:
        if name not in removed_ops():
            raise
        raise UnknownNameError(
            f"{name}: an op of an earlier version; rlx {__version__} computes it by other ops",
            hint="trace the function again with this version, and save it",
        ) from error
    registry = host.registry()
    op: type[Op] = registry.load(kind, name, expectation(kind, spec, registry))
    return op


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


def legalization_tables(registry: Registry, target: str) -> tuple[LegalizationTable, ...]:
    """The tables for a target that can be used, in order."""
    tables: list[LegalizationTable] = []
    for spec in registry.legalizations_for(target):
        table = registry.usable("legalizations", spec.name, expectation("legalizations", spec, registry))
        if table is not None:
            table.plugin = registry.owner("legalizations", spec.name).plugin
            tables.append(table)
    return tuple(tables)


# ------------------------------------------------------------------------------------------------ checks


def op_fault(thing: Any, spec: OpSpec, registry: Registry) -> str | None:
    if not (isinstance(thing, type) and issubclass(thing, Op)):
        return f"it is {described(thing)}, and no op: a class made with `define_op`"
    if thing.name != spec.name:
        return f"the class is called {thing.name}"
    return next(complaints(thing), None)


def block_fault(thing: Any, spec: Contribution, registry: Registry) -> str | None:
    if not (isinstance(thing, type) and issubclass(thing, ir.block.Block)):
        return f"it is {described(thing)}, and no block: a class made with `define_block`"
    return next(complaints(thing), None)


def contributed_rule_fault(thing: Any, spec: RuleSpec, registry: Registry) -> str | None:
    from rlx_core.transforms.contributed import rule_fault  # here, because few programs meet rules of plugins

    return rule_fault(thing, spec, registry)


def pass_fault(thing: Any, spec: Contribution, registry: Registry) -> str | None:
    from rlx_core.passes import engine  # here, because a program from a cache runs no pass

    if isinstance(thing, engine.rules.RuleSet):
        return None
    if not (isinstance(thing, type) and issubclass(thing, engine.base.Pass | engine.base.LirPass)):
        return f"it is {described(thing)}, which is neither a pass nor a rule set"
    properties = (thing.requires - {engine.base.LOWERED}, thing.ensures, thing.invalidates, thing.before, thing.after)
    if isinstance(spec, PassSpec) and spec.ops and any(properties):
        return "its record names ops, and it requires more than lowered programs, or it ensures or precedes something"
    return method_fault(thing, "run", "self, graph, context")


def legalization_fault(thing: Any, spec: Contribution, registry: Registry) -> str | None:
    return (
        None
        if isinstance(thing, pipeline.dispatch.LegalizationTable)
        else f"it is {described(thing)}, not a LegalizationTable"
    )


def backend_fault(thing: Any, spec: Contribution, registry: Registry) -> str | None:
    if isinstance(thing, Backend):
        return None
    if not (isinstance(thing, type) and issubclass(thing, Backend)):
        return f"it is {described(thing)}, and no Backend"
    lacking = sorted(getattr(thing, "__abstractmethods__", ()))
    if lacking:
        return f"the class {thing.__name__} lacks {', '.join(lacking)}"
    return method_fault(thing, "compile", "self, lir, target, options")


def method_fault(owner: type, name: str, parameters: str) -> str | None:
    """Return the reason why a method cannot be called as rlx calls it, or `None` if it can."""
    method: Any = getattr(owner, name)
    if accepts(method, parameters.count(",") + 1):
        return None
    return f"its {name} takes {inspect.signature(method)}, and is called as {name}({parameters})"


def kernels_fault(thing: Any, spec: KernelSpec, registry: Registry) -> str | None:
    """Return the fault of a table of kernels, or `None`; one wrong row is enough."""
    if not isinstance(thing, Iterable) or isinstance(thing, str | bytes | Mapping):
        return f"it is {described(thing)}, not a KernelTable"
    if isinstance(thing, Iterator):
        return (
            f"it is {described(thing)}, which can be read once; a KernelTable or a tuple of its rows can be read again"
        )
    target = getattr(thing, "target", spec.target)
    if target != spec.target:
        return f"the table is for the target {target}"
    return next((fault for row in thing if (fault := kernel_fault(row)) is not None), None)


def kernel_fault(row: Any) -> str | None:
    if not isinstance(row, Kernel):
        return f"a row is {described(row)}, not a Kernel"
    op, run = attrgetter("op", "run")(row)  # of any type: nothing has validated the plugin's values
    if not (isinstance(op, type) and issubclass(op, Op)):
        return f"kernel {row.name} is for {described(op)}, which is no op"
    if callable(run) and accepts(run, 1 + len(op.operands), ("out", "workspace")):
        return None
    signature = inspect.signature(run) if callable(run) else described(run)
    names = "".join(f"{'*' * o.is_variadic}{o.name}, " for o in op.operands)
    return f"kernel {row.name} takes {signature}, and is called as kernel(op, {names}*, out, workspace)"


def called_with(count: int, what: str) -> Complaint:
    """Return the check whether an object can be called with so many arguments, which `what` describes."""

    def fault(thing: Any, spec: Contribution, registry: Registry) -> str | None:
        if not callable(thing):
            return f"it is {described(thing)}, not a function of {what}"
        return None if accepts(thing, count) else f"it takes {inspect.signature(thing)}, and is called with {what}"

    return fault


def scheme_fault(thing: Any, spec: SchemeSpec, registry: Registry) -> str | None:
    from rlx_core.ir.schemes import Scheme  # here, because few programs quantise

    if not (isinstance(thing, type) and issubclass(thing, Scheme)):
        return f"it is {described(thing)}, and no Scheme"
    lacking = sorted(getattr(thing, "__abstractmethods__", ()))
    if lacking:
        return f"the class {thing.__name__} lacks {', '.join(lacking)}"
    if not accepts(thing, 0):
        return f"{thing.__name__} takes {inspect.signature(thing)}, and is made without arguments"
    if (thing.name, thing.ggml_id) != (spec.name, spec.ggml_id):
        return f"the class is {thing.name!r} with the number {thing.ggml_id}, unlike its record"
    return method_fault(thing, "decode", "self, fields") or method_fault(thing, "encode", "self, values")


def function_fault(thing: Any, spec: Contribution, registry: Registry) -> str | None:
    if spec.name in CORE or spec.name in FUNCTIONS:
        return "it is never reached: rlx has a name like that of its own"
    return None if callable(thing) else f"it is {described(thing)}, not a function"


def command_fault(thing: Any, spec: Contribution, registry: Registry) -> str | None:
    return None if callable(thing) else f"it is {described(thing)}, neither a function nor a typer.Typer"


def described(thing: object) -> str:
    """Return a short description of an object: its repr and its type."""
    shown = repr(thing)
    return f"{shown if len(shown) <= 40 else shown[:39] + '…'} ({type(thing).__name__})"


EXPECTED: Final[Mapping[str, Complaint]] = {
    "ops": op_fault,
    "rules": contributed_rule_fault,
    "passes": pass_fault,
    "rulesets": pass_fault,
    "legalizations": legalization_fault,
    "backends": backend_fault,
    "kernels": kernels_fault,
    "blocks": block_fault,
    "schemes": scheme_fault,
    "importers": called_with(2, "a path and a host"),
    "exporters": called_with(3, "a path, a value and a host"),
    "commands": command_fault,
    "functions": function_fault,
    "events": called_with(1, "a CompileEvent"),
}
"""The check of each kind whose records have an address; pipelines and options are plain data."""
