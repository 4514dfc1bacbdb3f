"""Candidate schedules of matrix products: the items that threads share, and the bytes of the blocks that items consist of.

The candidates differ in how many tiles and panels an item has, in the number of parts, and thus in what is packed for each
item. Register tiles, the depth of cache blocks and the order of summation are those of the default, so that all candidates
give the same bits.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

from rlx_core.codegen.epilogue import region_function
from rlx_core.codegen.places import Layout, Place
from rlx_core.codegen.product import MatrixProduct
from rlx_core.ops.fused import FusedMatMulBiasAct
from rlx_core.ops.fused_matmul_epilogue import FusedMatMulEpilogue
from rlx_core.system.records import evolve
from rlx_core.tuning.problem import Candidate, TuningProblem
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.objects import Function
from rlx_cpu.native.llvm.optimise import new_module
from rlx_cpu.native.machine import CpuMachine
from rlx_cpu.native.products.gemm_plan import ProductPlan
from rlx_cpu.native.products.gemm_sized import product_of
from rlx_cpu.native.scalars.table import NATIVE

VERSION: Final = "1"
"""Changes with the meaning of the parameters and with the code of products, so that former choices no longer apply."""

KERNELS: Final = frozenset({"native_matmul", "native_matmul_bias_activation", "native_matmul_epilogue"})
"""The kernels of floating-point products whose factors are matrices in memory."""

MIN_PRODUCTS: Final = 1 << 20
"""Fused products of a problem, some 10 µs: for a smaller one, the overhead of a call exceeds the differences."""

ITEMS: Final = (8, 16, 64, 128)
"""Minimum numbers of items."""

BLOCK_NBYTES: Final = (1 << 17, 1 << 18, 1 << 20, 1 << 21)
"""Bytes of cache blocks: for an L2 of 256 KiB to 4 MiB."""

PART_PRODUCTS: Final = (1 << 17, 1 << 21)
"""Fused products of a part."""


def machine_with(machine: CpuMachine, candidate: Candidate) -> CpuMachine:
    """Return the machine parameters with those of a candidate."""
    return evolve(machine, products=evolve(machine.products, **dict(candidate.parameters)))


def product_problem(function: Function, isa: Isa) -> TuningProblem | None:
    """Return the tuning problem of a function that is a large product of row-major matrices; `None` for another function.

    A bound factor B is packed, so its strides in memory do not matter.
    """
    layout = function.layout
    if function.kernel not in KERNELS or not _is_reproducible(layout):
        return None
    plan = plan_of(function, isa)
    if plan.products < MIN_PRODUCTS or not plan.uses_threads:
        return None
    candidates = [Candidate("model")]
    seen = {_schedule(plan)}
    for candidate in _candidates(plan):
        schedule = _schedule(plan_of(function, evolve(isa, machine=machine_with(isa.machine, candidate))))
        if schedule not in seen:
            seen.add(schedule)
            candidates.append(candidate)
    return TuningProblem(_line(function, plan.product), f"products {VERSION}", tuple(candidates))


def _is_reproducible(layout: Layout) -> bool:
    """Whether separate row-major arrays of the operands' types lie as the operands do, as far as the schedule depends on it."""
    a, b, *others = layout.required()
    places = [place for place in (a, *others, *layout.results) if place.literal is None]
    is_in_loop = any(place.is_held or place.is_fresh or place.is_inside for place in (*places, b))
    return not is_in_loop and (b.is_dense or b.is_bound) and all(place.is_dense for place in places)


def plan_of(function: Function, isa: Isa) -> ProductPlan:
    """Return the plan of a function's product."""
    layout, keeps_result = function.layout, isinstance(function.node.op, FusedMatMulEpilogue)
    return ProductPlan.of(new_module("tuning"), isa, product_of(layout), layout, keeps_result=keeps_result)


def _schedule(plan: ProductPlan) -> Hashable:
    """The decisions of a plan that the candidates' parameters affect."""
    return plan.blocks, plan.parts, plan.panels, plan.rows, plan.owns_rows, plan.goes_by_panels


def _candidates(plan: ProductPlan) -> Iterator[Candidate]:
    """Candidates of which each changes one property of the default."""
    for items in ITEMS:
        yield Candidate(f"items={items}", (("items", items), ("panel_items", max(1, items // 2))))
    for nbytes in BLOCK_NBYTES:
        yield Candidate(f"block={nbytes >> 10}KiB", (("block_nbytes", nbytes),))
    for products in PART_PRODUCTS:
        yield Candidate(f"part={products >> 10}Ki", (("part_products", products),))


def _line(function: Function, product: MatrixProduct) -> str:
    """The product and its epilogue, with the types of what the epilogue reads."""
    others = [place for place in function.layout.operands[2:] if place is not None]
    reads = [str(place.type) for place in others if place.literal is None]
    epilogue = _epilogue(function, others)
    return (
        str(product) + (f", epilogue {epilogue}" if epilogue else "") + (f", reads {', '.join(reads)}" if reads else "")
    )


def _epilogue(function: Function, others: Sequence[Place]) -> str:
    """The function of the sums, `x`, that follows the product."""
    op = function.node.op
    if isinstance(op, FusedMatMulBiasAct):
        return "x + read1" if op.activation is None else f"{op.activation.title}(x + read1)"
    if isinstance(op, FusedMatMulEpilogue):
        return str(region_function(NATIVE, op.region, [value.type for value in function.node.present()], others))
    return ""
