"""What a plan is on a device before anything runs: launches, modules, and the same of the plans inside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import field

from rlx_core.device.device import Device
from rlx_core.emit.emitters import Function, Language
from rlx_core.emit.modules import Modules, build_modules
from rlx_core.emit.steps import Emissions, emissions
from rlx_core.errors import Fact
from rlx_core.ir.lir import Lir
from rlx_core.pipeline.select.backend import ObjectStore
from rlx_core.pipeline.select.kernels import KernelTable
from rlx_core.system.records import frozen

__all__ = ["Code", "code_of", "functions_of"]


@frozen(eq=False)
class Code:
    """What programs of one plan share.

    Attributes:
        emissions: What the steps become.
        modules: The functions that they call.
        nested: The same of the graphs inside steps, by the step's number and the attribute.
    """

    emissions: Emissions
    modules: Modules
    nested: Mapping[tuple[int, str], Code] = field(factory=dict)


def code_of(
    lir: Lir, device: Device, kernels: KernelTable, language: Language, objects: ObjectStore | None = None
) -> Code:
    """What programs of a plan share, and of the plans inside it.

    Raises:
        KernelBuildError: The device's compiler refuses a function.
    """
    made = emissions(lir, kernels)

    def told(function: Function) -> Sequence[Fact]:
        calling = (
            lir.steps[n] for n, each in made.steps.items() if any(c.function == function.name for c in each.calls)
        )
        return [Fact("node", f"{s.node.label} {s.node.op.name}", s.node.origin.source) for s in calling]

    nested = {
        (number, name): code_of(plan, device, kernels, language, objects)
        for number, step in enumerate(lir.steps)
        for name, plan in step.nested.items()
    }
    return Code(made, build_modules(device, language, made.functions, objects, told), nested)


def functions_of(lirs: Iterable[Lir], kernels: KernelTable) -> list[Function]:
    """Every function of some plans and of those nested in them, once."""
    found: dict[str, Function] = {}
    waiting = list(lirs)
    while waiting:
        lir = waiting.pop()
        found.update((f.name, f) for f in emissions(lir, kernels).functions)
        waiting += [plan for step in lir.steps for plan in step.nested.values()]
    return list(found.values())
