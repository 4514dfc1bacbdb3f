"""The laws of derivatives: rules agree with differences, with each other, and with the decomposition."""

from __future__ import annotations

import pytest
from attrs import evolve

from rlx_core.errors import MissingRuleError
from rlx_core.ir.rules import CustomDerivative
from rlx_core.testing.about import about, differentiable, has_own_derivative, refuses_derivatives, smooth
from rlx_core.testing.cases import OpProgram, typed, wide
from rlx_core.testing.differences import random_like
from rlx_core.testing.judges import (
    EXACT,
    agrees_with_differences,
    chosen,
    close,
    differentiable_outputs,
    near_oracle,
    transposes,
    widened,
)
from rlx_core.transforms.jvp import jvp_graph
from rlx_core.transforms.vjp import vjp_graph

DERIVATIVES = ["vjp", "jvp", "decompose"]


class Derivatives:
    """Three judges, none derived from another: differences, the other mode, and the decomposition."""

    @about(smooth, rules=DERIVATIVES, widens=True, variants=["rank", "broadcasting"])
    def test_vjp_agrees_with_finite_differences(self, program: OpProgram) -> None:
        program = program.widened
        for name in program.differentiable:
            agrees_with_differences(program.graph, [name], program.draw(), program.rng(), engine=program.engine)

    @about(differentiable, rules=DERIVATIVES, widens=True, variants=["dtype", "rank", "broadcasting"])
    def test_vjp_and_jvp_are_transposes(self, program: OpProgram) -> None:
        program = program.widened
        names = program.differentiable
        # Also one operand at a time: a rule then gets ZERO for the others.
        for wrt in [names] if len(names) == 1 else [names, *([name] for name in names)]:
            try:
                transposes(program.graph, wrt, program.draw(), program.rng(), engine=program.engine)
            except Exception as error:
                if wrt != names:
                    error.add_note(f"with respect to {wrt[0]} alone: the tangents of the other operands are ZERO")
                raise

    @about(has_own_derivative, rules=DERIVATIVES, widens=True, variants=["size", "rank", "broadcasting"])
    def test_own_rule_agrees_with_derived_rule(self, program: OpProgram) -> None:
        program = program.widened
        engine, op = program.engine, program.node.op
        derived = evolve(engine, ignoring=frozenset({("vjp", op.name), ("jvp", op.name)}))
        arrays, rng = program.draw(), program.rng()
        what = "the {} rule differs from what follows from the decomposition"
        if engine.rule(op, "vjp") is not None:
            own_rule, other = (vjp_graph(program.graph, program.differentiable, engine=e) for e in (engine, derived))
            seeds = [random_like(rng, y) for y in differentiable_outputs(program.graph, arrays)]
            close(wide(own_rule, [*arrays, *seeds]), wide(other, [*arrays, *seeds]), EXACT, what.format("vjp"))
        if engine.rule(op, "jvp") is not None:
            own_rule, other = (jvp_graph(program.graph, program.differentiable, engine=e) for e in (engine, derived))
            tangents = [random_like(rng, widened(a)) for a in chosen(program.graph, arrays, program.differentiable)]
            close(wide(own_rule, [*arrays, *tangents]), wide(other, [*arrays, *tangents]), EXACT, what.format("jvp"))

    @about(smooth, rules=DERIVATIVES, widens=True)
    def test_second_derivative_agrees_with_differences_of_the_gradient(self, program: OpProgram) -> None:
        program = program.widened
        arrays, rng, engine = program.draw(), program.rng(), program.engine
        gradient = vjp_graph(program.graph, program.differentiable, engine=engine)
        seeds = [random_like(rng, y) for y in differentiable_outputs(program.graph, arrays)]
        names = [n for n, t in gradient.input_types.items() if t.dtype.is_differentiable]
        agrees_with_differences(gradient, names, [*arrays, *seeds], rng, engine=engine)
        transposes(gradient, names, [*arrays, *seeds], rng, engine=engine)

    @about(lambda program: program.is_differentiable and refuses_derivatives(program))
    def test_derivative_that_users_must_state_is_refused_with_the_reason(self, program: OpProgram) -> None:
        op = program.node.op
        assert isinstance(op, CustomDerivative)
        for derive in (vjp_graph, jvp_graph):
            with pytest.raises(MissingRuleError) as caught:
                derive(program.graph, program.differentiable, engine=program.engine)
            assert (caught.value.message, caught.value.hint) == op.why_unstated()
            assert caught.value.hint, f"{op.title} does not say who could state its derivative, and how"

    @about(differentiable, rules=DERIVATIVES, variants=["dtype"])
    def test_gradient_is_close_to_its_float64_oracle(self, program: OpProgram) -> None:
        gradient = vjp_graph(program.graph, program.differentiable, engine=program.engine)
        arrays, rng = program.draw(), program.rng()
        kinds = [o.dtype for o in program.graph.outputs if o.dtype.is_differentiable]
        seeds = [
            random_like(rng, y).astype(kind.numpy)
            for y, kind in zip(differentiable_outputs(program.graph, arrays), kinds, strict=True)
        ]
        fed = [*arrays, *seeds]
        near_oracle(gradient, typed(gradient, fed), wide(gradient, fed), fed, "the gradient loses more than rounding")
