"""The public names for packages that provide ops, passes, kernels, blocks or backends; `rlx_core.contributions` has the records.

These names stay (decision 0056): `tests/plugins/kit_names.txt` lists them, and one that is replaced is deprecated for two
releases first. A plugin's light module, which lists its records, does not need them.
"""

from rlx_core.codegen import formula_of
from rlx_core.codegen.loops import Const, Load
from rlx_core.codegen.places import Fault, Layout, Place
from rlx_core.device.device import Device
from rlx_core.device.driver import At, DeviceFacts, Driver, Whole
from rlx_core.emit.backend import DeviceBackend
from rlx_core.emit.emitters import Call, Emitted, Function, Language
from rlx_core.ir.block import Block, define_block
from rlx_core.ir.dtypes import FLOATS
from rlx_core.ir.graph import Constant, Graph, Node, Param, Value, as_results
from rlx_core.ir.interpret import widened
from rlx_core.ir.lir import Alias, Lir, Step
from rlx_core.ir.op import ZERO, Op, define_op
from rlx_core.ir.rewrite import rebuild
from rlx_core.ir.schemes import Scheme, SchemeField
from rlx_core.ir.types import TensorType, expect_dtype, expect_rank, expect_shape, spec
from rlx_core.ops.arity import op_function
from rlx_core.ops.kinds import elementwise
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.validators import number, one_of, whole
from rlx_core.passes.engine.apply_rules import pass_of
from rlx_core.passes.engine.base import LOWERED, Context, Pass, Result, define_pass, field
from rlx_core.passes.engine.rules import rewrite, ruleset
from rlx_core.passes.engine.runner import run_passes
from rlx_core.pipeline.backend import Backend, Level, Program, Target
from rlx_core.pipeline.dispatch import LegalizationTable
from rlx_core.pipeline.kernels import Condition, Kernel, KernelTable, condition
from rlx_core.pipeline.plan import resolve_plan

__all__ = [
    "FLOATS",
    "LOWERED",
    "ZERO",
    "Alias",
    "At",
    "Backend",
    "Block",
    "Call",
    "Condition",
    "Const",
    "Constant",
    "Context",
    "Device",
    "DeviceBackend",
    "DeviceFacts",
    "Driver",
    "Emitted",
    "Fault",
    "Function",
    "Graph",
    "Kernel",
    "KernelTable",
    "Language",
    "Layout",
    "LegalizationTable",
    "Level",
    "Lir",
    "Load",
    "Node",
    "Op",
    "Param",
    "Pass",
    "Place",
    "Program",
    "Rejected",
    "Result",
    "Sample",
    "Scheme",
    "SchemeField",
    "Step",
    "Target",
    "TensorType",
    "Value",
    "Whole",
    "as_results",
    "condition",
    "define_block",
    "define_op",
    "define_pass",
    "elementwise",
    "expect_dtype",
    "expect_rank",
    "expect_shape",
    "field",
    "formula_of",
    "number",
    "one_of",
    "op_function",
    "pass_of",
    "rebuild",
    "resolve_plan",
    "rewrite",
    "ruleset",
    "run_passes",
    "spec",
    "whole",
    "widened",
]
