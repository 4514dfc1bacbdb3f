"""Plugins that contribute rewrites, lowerings and formats of files that change what programs compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

import rlx_core as rlx
from rlx_core.contributions import (
    BlockSpec,
    ExporterSpec,
    ImporterSpec,
    LegalizationSpec,
    PassSpec,
    RuleSetSpec,
)
from rlx_core.errors import FormatError
from rlx_core.files.safetensors import load_safetensors, save_safetensors
from rlx_core.hooks import hookimpl
from rlx_core.ir.block import Block, define_block
from rlx_core.ir.graph import Builder, building
from rlx_core.ir.rewrite import rebuild
from rlx_core.ops import exp, log, maximum, where
from rlx_core.ops.activation import tanh
from rlx_core.ops.arithmetic import add, multiply
from rlx_core.ops.samples import Sample
from rlx_core.passes.base import Pass, Result, define_pass
from rlx_core.passes.rules import predicate, rewrite, ruleset
from rlx_core.pipeline.dispatch import LegalizationTable
from seeded.seeds import Seeds

SEEDS = Seeds()
NEVER = predicate("never")(lambda match: False)
RULE = "rewrite_rule_keeps_values"
PASS = "pass_keeps_values_and_signature"
LEGALIZATION = "legalization_keeps_values"
BLOCK = "lowerings_of_a_block_mean_the_same"
FORMAT = "what_a_format_writes_it_reads"


# ---------------------------------------------------------------------------------------------- rule sets


def plugin_of_rules(*equations: Any) -> type:
    """A plugin whose one rule set has these rules, each made from the variables `x` and `y`."""

    @ruleset("tried", domain="seed")
    def tried(x, y):
        for equation in equations:
            yield equation(x, y)

    class Rules:
        @hookimpl
        def rlx_rulesets(self):
            return [RuleSetSpec("seed.tried", tried)]

    return Rules


RULES = {
    "LogOfExpIsTwice": (lambda x, y: rewrite("r", log(exp(x))).to(x * 2).giving_up("overflow"), "changes what"),
    "SumIsNotStated": (lambda x, y: rewrite("r", x + 0.0).to(x), r"special inputs.* result 0"),
    "ProductWithZero": (lambda x, y: rewrite("r", x * 0.0).to(x - x), r"inputs.* result 0"),
    "NanIsNotStated": (
        lambda x, y: rewrite("r", log(x) + log(y)).to(log(x * y)).giving_up("rounding"),
        "which the stated law .rounding. does not cover",
    ),
    "ExchangedOperands": (lambda x, y: rewrite("r", x - y).to(y - x), "changes what"),
    "MaximumForgetsNan": (
        lambda x, y: rewrite("r", maximum(x, y)).to(lambda x, y: where(x > y, x, y)),
        "special inputs",
    ),
    "WrongInTheTail": (
        lambda x, y: rewrite("r", tanh(x)).to(lambda x: where(x > 8.0, 0.0 * x, tanh(x))).giving_up("rounding"),
        "tails inputs",
    ),
    "FiresNowhere": (lambda x, y: rewrite("r", log(exp(tanh(x)))).to(x).when(NEVER), "fires on no program"),
}
for _name, (_equation, _says) in RULES.items():
    SEEDS.plugin(RULE, _says)(type(_name, (plugin_of_rules(_equation),), {}))


# -------------------------------------------------------------------------------------------------- passes


def plugin_of_pass(made: type[Pass]) -> type:
    class Passes:
        @hookimpl
        def rlx_passes(self):
            return [PassSpec(made.name, made)]

    return Passes


def replacing(change: Any) -> Any:
    """The `run` of a pass that replaces nodes: `change(node, operands)` gives the results, or `None`."""

    def run(self, graph, context):
        return Result(*rebuild(graph, change, by=self.name))

    return run


def pass_that(name: str, run: Any, **attributes: Any) -> type:
    made = type("Made", (Pass,), {"__doc__": "Wrong.", "run": run, **attributes})
    return type(name, (plugin_of_pass(define_pass(name.lower(), domain="seed")(made)),), {})


def is_of(node: Any, op: Any) -> bool:
    return isinstance(node.op, op.op)


def drops_the_last_output(self, graph, context):
    builder = Builder(graph.name)
    with building(builder):
        inputs = [builder.input(n, t) for n, t in graph.input_types.items()]
    return Result(builder.finish(inputs[:1]), {}) if len(graph.param_types) == 0 and inputs else Result.unchanged(graph)


def renames_its_inputs(self, graph, context):
    if graph.param_types or any(n.op.name != "rlx.exp" for n in graph.nodes if not n.is_leaf):
        return Result.unchanged(graph)
    builder = Builder(graph.name)
    with building(builder):
        inputs = [builder.input(f"{n}_", t) for n, t in graph.input_types.items()]
        return Result(builder.finish([exp(inputs[0])]), {})


PASSES = {
    "AddsTwice": (replacing(lambda n, o: multiply(o[0], 2.0) if is_of(n, exp) else None), {}, "changes what"),
    "DropsOutputs": (drops_the_last_output, {}, "changes the signature of|changes what"),
    "RenamesInputs": (renames_its_inputs, {}, "changes the signature of"),
    "ClampsInSilence": (
        replacing(
            lambda n, o: exp(rlx.clip(o[0], None, 20.0)) if is_of(n, exp) and n.types[0].dtype.is_float else None
        ),
        {},
        "tails inputs|special inputs",
    ),
    "AssociatesNan": (
        replacing(lambda n, o: where(o[0] < o[1], o[1], o[0]) if is_of(n, maximum) else None),
        {},
        "special inputs",
    ),
    "WrongForOneDtype": (
        replacing(lambda n, o: add(o[0], o[0]) if is_of(n, add) and n.types[0].dtype.name == "bf16" else None),
        {},
        "changes what",
    ),
}
for _name, (_run, _attributes, _says) in PASSES.items():
    SEEDS.plugin(PASS, _says)(pass_that(_name, _run, **_attributes))


# ------------------------------------------------------------------------------------------- legalizations


def plugin_of_table(op: Any, legal: Any) -> type:
    table = LegalizationTable("seed.table")
    table.register(op)(legal)

    class Legalizations:
        @hookimpl
        def rlx_legalizations(self):
            return [LegalizationSpec("cpu", "seed.table", table)]

    return Legalizations


LEGALIZATIONS = {
    "ReluForgetsNan": (
        rlx.relu,
        lambda op, x: where(x > 0, x, x * 0.0 if x.dtype.is_integer else 0.0),
        "special inputs",
    ),
    "TanhOverflows": (rlx.tanh, lambda op, x: (exp(x) - exp(-x)) / (exp(x) + exp(-x)), "tails inputs|special inputs"),
    "CeluIgnoresAlpha": (rlx.celu, lambda op, x: where(x > 0, x, exp(x) - 1.0), "changes what"),
    "DeclinesAll": (rlx.tanh, lambda op, x: None, "declines each of"),
}
for _name, (_op, _legal, _says) in LEGALIZATIONS.items():
    SEEDS.plugin(LEGALIZATION, _says)(type(_name, (plugin_of_table(_op.op, _legal),), {}))


# -------------------------------------------------------------------------------------------------- blocks


def plugin_of_block(block: type[Block]) -> type:
    class Blocks:
        @hookimpl
        def rlx_blocks(self):
            return [BlockSpec(block.name, block)]

    return Blocks


@define_block(domain="seed")
class HalfBlock(Block):
    """x / 2 + 1; fused without the 1."""

    def fusable(self, x):
        return x * 0.5 + 1.0

    def direct(self, x):
        return x * 0.5

    @classmethod
    def samples(cls):
        yield Sample("f32[3, 2]")


@define_block(domain="seed")
class UntriedBlock(Block):
    """A block without samples."""

    def fusable(self, x):
        return x * 0.5


SEEDS.plugin(BLOCK, "its lowering `direct` changes what")(type("DirectIsAnother", (plugin_of_block(HalfBlock),), {}))
SEEDS.plugin(BLOCK, "has no samples")(type("BlockWithoutSamples", (plugin_of_block(UntriedBlock),), {}))


# ------------------------------------------------------------------------------------------------- formats


class Format:
    """A plugin with a format of arrays by name: safetensors, with one thing changed."""

    change: ClassVar[Any] = staticmethod(lambda array: array)
    rename: ClassVar[Any] = staticmethod(lambda name: name)

    def write(self, path, value, host):
        if not isinstance(value, Mapping):
            raise FormatError(f"{path.name}: such a file holds arrays by name, not a {type(value).__name__}")
        save_safetensors(path, {self.rename(n): self.change(np.asarray(a)) for n, a in value.items()})

    @hookimpl
    def rlx_importers(self):
        return [ImporterSpec("seed.arrays", lambda path, host: load_safetensors(path), suffixes=[".seed"])]

    @hookimpl
    def rlx_exporters(self):
        return [ExporterSpec("seed.arrays", self.write, suffixes=[".seed"])]


class RightFormat(Format):
    """What the wrong ones should have been."""


@SEEDS.plugin(FORMAT, "was written")
class WritesSingles(Format):
    change = staticmethod(lambda a: a.astype(np.float32) if a.dtype == np.float64 else a)


@SEEDS.plugin(FORMAT, "was written")
class WritesMemoryInOrder(Format):
    change = staticmethod(lambda a: a.ravel(order="K").reshape(a.shape))


@SEEDS.plugin(FORMAT, "was written")
class LosesTheSignOfZero(Format):
    change = staticmethod(lambda a: a + 0 if a.dtype.kind == "f" else a)


@SEEDS.plugin(FORMAT, r"reads \[.*were written")
class ShortensNames(Format):
    rename = staticmethod(lambda n: n.partition(".")[0])
