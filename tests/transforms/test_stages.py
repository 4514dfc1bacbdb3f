"""Transformations take graphs; a module, which may be at any stage, is refused with what to pass."""

import pytest

import rlx_core as rlx
from rlx_core.errors import WrongStageError
from rlx_core.ir.module import Module
from rlx_core.transforms import grad_with_loss, inline_calls, jvp_graph, linearize, vjp_graph, vmap_graph
from rlx_core.transforms.higher import hessian, hvp, jacfwd, jacrev
from rlx_core.transforms.prepare import prepare

TRANSFORMS = {
    "grad": lambda program: grad_with_loss(program, ["x"]),
    "vjp": lambda program: vjp_graph(program, ["x"]),
    "jvp": lambda program: jvp_graph(program, ["x"]),
    "linearize": lambda program: linearize(program, ["x"]),
    "hvp": lambda program: hvp(program, ["x"]),
    "jacfwd": lambda program: jacfwd(program, ["x"]),
    "jacrev": lambda program: jacrev(program, ["x"]),
    "hessian": lambda program: hessian(program, ["x"]),
    "inline_calls": inline_calls,
    "prepare": lambda program: prepare(program, "vjp", ["x"]),
    "vmap": lambda program: vmap_graph(program, 0, 0, 2),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transformation_of_a_module_says_to_pass_its_graph(name):
    graph = rlx.trace(lambda x: rlx.sum(rlx.exp(x)), rlx.spec("f32[3]"))
    TRANSFORMS[name](graph)
    with pytest.raises(WrongStageError, match=f"^{name}: takes a graph, not a Module") as raised:
        TRANSFORMS[name](Module.of_mir(graph))
    assert raised.value.hint == "pass module.mir, or module.hir"
    with pytest.raises(WrongStageError, match="not a str"):
        TRANSFORMS[name]("graph")
