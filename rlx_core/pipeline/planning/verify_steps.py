"""Consistency of a plan with the kernels that it names, which `verify_lir` cannot check because it knows no kernels."""

from __future__ import annotations

from collections.abc import Iterator

from rlx_core.ir.graph import Value
from rlx_core.ir.lir import Lir, Step, placement
from rlx_core.ir.strides import is_dense
from rlx_core.ir.verify import RuleViolation, fault_at
from rlx_core.pipeline.kernels import HOST, HOST_KERNEL, Kernel, KernelTable


def step_faults(lir: Lir, kernels: KernelTable) -> list[RuleViolation]:
    """Return a fault for every step that uses its kernel in a way that the kernel's row does not allow.

    Args:
        lir: A plan in which `verify_lir` finds nothing.
        kernels: The kernels of the target that it was made for.
    """
    names = {HOST: HOST_KERNEL, **{kernel.name: kernel for kernel in kernels}}
    faults: list[RuleViolation] = []
    for step in lir.steps:
        kernel = names.get(step.kernel)
        if kernel is None:
            faults.append(fault_at(step.node, f"the target has no kernel {step.kernel}"))
        else:
            faults += [
                fault_at(step.node, f"{kernel.name} {problem}") for problem in _asked_too_much(lir, step, kernel)
            ]
        faults += [fault for plan in step.nested.values() for fault in step_faults(plan, kernels)]
    return faults


def _asked_too_much(lir: Lir, step: Step, kernel: Kernel) -> Iterator[str]:
    """Yield a description of each unsupported use of a kernel."""
    node = step.node
    refusal = kernel.refusal(node)
    if refusal is not None:
        yield refusal
    required = 0 if kernel.workspace is None or not lir.is_planned else kernel.workspace(node).__index__()
    available = 0 if step.workspace is None else step.nested_offset if step.nested else step.workspace.nbytes
    if available < required:
        yield f"needs {required} bytes of workspace, and has {available}"
    if lir.is_planned and not kernel.accepts_strides:
        strided = [v for v in node.present() if not is_dense(v.type, placement(v, lir.aliases).strides)]
        if strided:
            yield f"reads densely, and {strided[0]!r} is strided"
    if lir.is_planned and not kernel.writes_strides:
        strided = [v for v in node.results if not is_dense(v.type, placement(v, lir.aliases).strides)]
        if strided:
            yield f"writes densely, and {strided[0]!r} is strided"
    if lir.is_planned and not kernel.completes_parts and lir.parts_in(node):
        yield f"writes all of its result, and {node.operands[lir.parts_in(node)[0]]!r} lies in it"
    for result, operand in step.in_place.items():
        if operand not in kernel.in_place or (result and not kernel.is_each_in_place):
            yield f"does not say that result {result} may take over operand {operand}"
        elif any(k not in kernel.in_place for k in _others_there(lir, step, node.operands[operand], operand)):
            yield f"reads what result {result} takes over as another operand too, in an order of its own"


def _others_there(lir: Lir, step: Step, taken: Value | None, position: int) -> Iterator[int]:
    """The other operands that lie in the bytes of the one that is taken over."""
    assert taken is not None, "a schedule without faults takes over operands that are there"
    for k, other in enumerate(step.node.operands):
        if k != position and other is not None and lir.root_of(other) is lir.root_of(taken):
            yield k
