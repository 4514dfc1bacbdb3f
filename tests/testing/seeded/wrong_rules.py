"""Plugins that contribute a wrong rule for an op of rlx, and no op."""

from __future__ import annotations

from rlx_core.contributions import RuleSpec
from rlx_core.hooks import hookimpl
from rlx_core.ops import exp, flip, sum, where
from seeded.seeds import Seeds

SEEDS = Seeds()


def celu_vjp(op, g, x, *, y):
    return (where(x > 0, g, g * exp(x / op.alpha)),)


def half_of_it(op, g, x, *, y):
    return (celu_vjp(op, g, x, y=y)[0] * 0.5,)


def backwards(op, t, x, *, y):
    return celu_vjp(op, t[0], x, y=y)[0] * -1.0


def mixed_up(op, size, x, is_batched):
    return flip(op(x[0]), axis=0)


def too_small(op, size, x, is_batched):
    return sum(op(x[0]), axis=0)


def twice(op, x):
    return where(x > 0, x, op.alpha * (exp(x / op.alpha) - 1.0)) * 2.0


class Rule:
    """A plugin with one rule."""

    spec: RuleSpec

    @hookimpl
    def rlx_rules(self):
        return [self.spec]


class Right(Rule):
    """What the wrong ones should have been."""

    spec = RuleSpec("rlx.celu", "vjp", celu_vjp)


@SEEDS.plugin("vjp_agrees_with_finite_differences", "by the vjp rule")
class HalfAGradient(Rule):
    spec = RuleSpec("rlx.celu", "vjp", half_of_it)


@SEEDS.plugin("own_rule_agrees_with_derived_rule", "the vjp rule differs")
class HalfAGradientBesideADecomposition(Rule):
    spec = RuleSpec("rlx.celu", "vjp", half_of_it)


@SEEDS.plugin("vjp_and_jvp_are_transposes", "not transposes")
class PushesBackwards(Rule):
    spec = RuleSpec("rlx.celu", "jvp", backwards)


@SEEDS.plugin("vmap_agrees_with_a_loop", "differs from a loop over the examples")
class MixesExamplesOfCelu(Rule):
    spec = RuleSpec("rlx.celu", "batch", mixed_up)


@SEEDS.plugin("vmap_agrees_with_a_loop", "must give")
class LosesTheBatch(Rule):
    spec = RuleSpec("rlx.celu", "batch", too_small)


@SEEDS.plugin("decomposition_means_the_same", "means something else")
class MeansTwiceAsMuch(Rule):
    spec = RuleSpec("rlx.celu", "decompose", twice)


@SEEDS.plugin("cost_is_a_finite_number", "not a finite number")
class CeluForLessThanNothing(Rule):
    spec = RuleSpec("rlx.celu", "cost", lambda op, x: -1)


@SEEDS.plugin("contribution_can_be_used", r"(?s)seluu.*selu")
class RuleForNoOp(Rule):
    spec = RuleSpec("rlx.seluu", "vjp", celu_vjp)


@SEEDS.plugin("contribution_can_be_used", "loading it raised")
class RuleThatIsNotThere(Rule):
    spec = RuleSpec("rlx.celu", "vjp", "seeded.wrong_rules:nowhere")


@SEEDS.plugin("contribution_can_be_used", "is no function")
class RuleThatIsANumber(Rule):
    spec = RuleSpec("rlx.celu", "vjp", "seeded.wrong_rules:NUMBER")


NUMBER = 42
