"""Native kernels that another package brings: run as native code, named after their owner, kept while its code is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core.contributions import KernelSpec
from rlx_core.hooks import hookimpl
from rlx_core.ops import Op, Value, define_op, op_function
from rlx_core.pipeline.kernels import Emitting, KernelTable
from rlx_core.plugins import PluginEntry, PluginHost
from rlx_cpu.emitters import Emitted, NativeTable, counting, memory_type, offset, pointer_at, share, starting
from rlx_cpu.native.llvm import objects
from rlx_cpu.native.runtime.steps import external_packages, functions_of
from rlx_cpu.native.table import is_external, is_native


@define_op(domain="guest")
class Mirror(Op):
    """The elements in the opposite order."""

    def decompose(self, x: Value) -> Any:
        return rlx.flip(x, axis=0)


mirror = op_function(Mirror)
table = NativeTable()


@table.register(Mirror, dtypes="f32", accepts_strides=False)
def mirrored(module: Any, node: Any, layout: Any, isa: Any, name: str) -> Emitted:
    """From both ends."""
    type = layout.results[0].type
    size, element = type.dtype.itemsize, memory_type(type.dtype)
    builder, buffers, tid, nthreads = starting(module, name)
    source, to = pointer_at(builder, buffers, 0), pointer_at(builder, buffers, 1)
    low, high = share(builder, type.size, tid, nthreads)
    with counting(builder, low, high) as place:
        found = builder.load(offset(builder, source, (place, size)), typ=element, align=size)
        builder.store(found, offset(builder, to, (place, -size), (type.size - 1) * size), align=size)
    builder.ret_void()
    return Emitted(name)


def host_with(rows: object) -> PluginHost:
    class Guest:
        @hookimpl
        def rlx_kernels(self) -> list[KernelSpec]:
            return [KernelSpec("cpu", rows)]

    return PluginHost([PluginEntry("cpu", plugin=rlx_cpu.plugin), PluginEntry("guest", plugin=Guest())])


def run(rows: object, **options: str) -> Any:
    config = {"options": {f"cpu.{name}": value for name, value in options.items()}}
    function = rlx.jit(lambda x: mirror(x), target="cpu", host=host_with(rows), config=config)
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(function(x), x[::-1])
    return function.report


def test_a_guests_emitter_runs_as_native_code_under_its_owners_name() -> None:
    report = run(table)
    assert dict(report.kernels) == {("guest.mirror", "guest.native_mirrored", "guest"): 1}
    assert report.tiers.summary == "1 of 1 steps native"


def test_without_a_native_tier_the_row_is_left_out() -> None:
    assert "guest.native_mirrored" not in {kernel for _, kernel, _ in run(table, tier="numpy").kernels}


def test_a_row_that_calls_itself_native_and_has_no_emitter_is_a_function() -> None:
    rows = KernelTable("cpu")

    @rows.register(Mirror, dtypes="f32", accepts_strides=True, tier="native")
    def backwards(op: Mirror, x: np.ndarray, *, out: np.ndarray, workspace: object) -> None:
        np.copyto(out, x[::-1])

    report = run(rows)
    assert dict(report.kernels) == {("guest.mirror", "backwards", "guest"): 1}
    assert report.tiers.summary == "0 of 1 steps native, 1 numpy"


@pytest.mark.parametrize(
    ("kernel", "native_one", "guests_one"),
    [
        ("native_loop[rlx.abs]", True, False),
        ("a-b.native_x[rlx.abs]", True, True),
        ("reference", False, True),
        ("x_native_y", False, True),
    ],
)
def test_the_name_says_whether_a_kernel_is_native_and_whose(kernel: str, native_one: bool, guests_one: bool) -> None:
    assert (is_native(kernel), is_external(kernel)) == (native_one, guests_one)


def test_the_guests_package_is_in_the_key_of_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    report = run(table)
    functions, _ = functions_of(report.lir)
    kernels = KernelTable("cpu")
    kernels.register(Mirror, name="guest.native_mirrored")(Emitting(mirrored))
    packages = external_packages(functions, kernels)
    assert packages == {mirrored.__module__.partition(".")[0]}

    seen: list[set[str]] = []
    monkeypatch.setattr(objects, "stamp_of", lambda packages: seen.append(set(packages)))
    objects.key_of(functions, None, frozenset({"guest_rlx"}))  # type: ignore[arg-type]  # no stamp, so nothing else is read
    assert "guest_rlx" in seen[0]
