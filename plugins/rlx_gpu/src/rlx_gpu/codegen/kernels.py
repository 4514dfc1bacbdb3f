"""A loop kernel in a GPU language: whether it can be printed, and its launches."""

from __future__ import annotations

from attrs import evolve

from rlx_core.codegen.loops import Apply, Kernel
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.emit.emitters import Emitted
from rlx_gpu.codegen.indexing import index_refusal
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.printer import print_function
from rlx_gpu.codegen.stages import stages_of
from rlx_gpu.codegen.walks import Machine, index_count, schedule_of, strides_fault


def refusal(kernel: Kernel, language: GpuDialect, scalars: ScalarTable) -> str | None:
    """Return why a kernel cannot be printed, as "needs …" would continue, or `None` if it can."""
    return values_refusal(kernel, language, scalars) or index_refusal(language, index_count(kernel))


def values_refusal(kernel: Kernel, language: GpuDialect, scalars: ScalarTable) -> str | None:
    """Return why the values of a kernel cannot be printed, for any numbering of its points, as "needs …" would continue."""
    for item in (*kernel.buffers, *kernel.values):
        if (reason := language.refusal(item.dtype)) is not None:
            return reason
    for value in kernel.values:
        if isinstance(value, Apply):
            dtypes = tuple(kernel.values[a].dtype for a in value.args)
            if (reason := scalars.refusal(value.op, dtypes)) is not None:
                return reason
    return strides_fault(kernel)


def print_loops(kernel: Kernel, language: GpuDialect, machine: Machine, scalars: ScalarTable) -> Emitted:
    """Return the launches of a kernel that nothing refuses, and that obeys `check_kernel`."""
    assert (reason := refusal(kernel, language, scalars)) is None, f"{kernel.name} needs {reason}"
    if not kernel.grid_size:
        return Emitted((), ())
    staged = stages_of(kernel, machine)
    launches = []
    for stage in staged.stages:
        schedule = evolve(schedule_of(stage.kernel, machine, stage.parts), flat_axes=stage.flat_axes)
        launches.append(print_function(stage.kernel, schedule, language, machine, scalars))
    return Emitted.joined(launches, staged.workspaces)
