"""What depends on parameters only is computed when they are bound, and views of them are left where they cost nothing."""

import numpy as np
import pytest

from rlx_core.ir.graph import Builder
from rlx_core.ir.interpret import interpret
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp
from rlx_core.ops.creation import iota
from rlx_core.ops.linalg import matmul
from rlx_core.ops.structural import expand, reshape, transpose
from rlx_core.pipeline.planning.prepare import split_prepare

W = np.arange(6.0).reshape(2, 3) / 8
X = np.arange(8.0).reshape(4, 2)


def program(make):
    b = Builder()
    x, w, unused = b.input("x", spec("f64[4, 2]")), b.param("w", spec("f64[2, 3]")), b.param("v", spec("f64[3]"))
    made = make(x, w, unused)
    return b.finish(made if isinstance(made, list) else [made])


def ops(graph):
    return [n.op.name for n in graph.nodes if not n.is_leaf]


def run_in_two(split, params):
    """Prepare, then run: what an executable does."""
    if split.prepare is None:
        return interpret(split.graph, {"x": X}, {n: params[n] for n in split.graph.param_types})
    fed = interpret(split.prepare, {}, params)
    return interpret(split.graph, {"x": X}, dict(zip(split.graph.param_types, fed, strict=True)))


PROGRAMS = {
    "param work": lambda x, w, v: matmul(x, exp(w)),
    "beside the param itself": lambda x, w, v: matmul(x, exp(w) + w) + exp(v),
    "a chain and its middle": lambda x, w, v: matmul(x, exp(exp(w))) + matmul(x, exp(w)),
    "an output of params alone": lambda x, w, v: [exp(w), matmul(x, w), w],
    "a transposed weight": lambda x, w, v: matmul(x, transpose(transpose(exp(w), (1, 0)), (1, 0))),
    "views of a param": lambda x, w, v: matmul(x, transpose(expand(v, (2, 3)), (0, 1))),
    "a view that the view before it makes none": lambda x, w, v: matmul(x, reshape(transpose(w, (1, 0)), (2, 3))),
    "with a range": lambda x, w, v: matmul(x, w + iota(shape=(2, 3), axis=1, dtype=w.dtype)),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("accepts_views", [True, False])
def test_two_parts_compute_what_the_whole_does(name, accepts_views, target_with):
    graph = program(PROGRAMS[name])
    params = {"w": W, "v": np.ones(3)}
    split = split_prepare(graph, target_with(accepts_views=accepts_views))
    for whole, parts in zip(interpret(graph, {"x": X}, params), run_in_two(split, params), strict=True):
        np.testing.assert_array_equal(whole, parts)
    again = split_prepare(split.graph, target_with(accepts_views=accepts_views))
    assert again.prepare is None


def test_rows_of_a_transposed_weight_are_copied_when_it_is_bound(target_with):
    split = split_prepare(
        program(PROGRAMS["a view that the view before it makes none"]), target_with(accepts_views=True)
    )
    assert ops(split.graph) == ["rlx.matmul"]
    assert ops(split.prepare) == ["rlx.transpose", "rlx.reshape"]


def test_only_work_on_inputs_is_left(target_with):
    split = split_prepare(program(PROGRAMS["param work"]), target_with())
    assert ops(split.graph) == [ops(program(lambda x, w, v: matmul(x, w)))[0]]
    assert ops(split.prepare) == ["rlx.exp"]
    assert split.graph.param_types == {"prepared.0": spec("f64[2, 3]")}


def test_the_users_params_stay_the_signature_of_the_prepare_graph(target_with):
    split = split_prepare(program(PROGRAMS["param work"]), target_with())
    assert list(split.prepare.param_types) == ["w", "v"]
    assert list(split.graph.param_types) == ["prepared.0"]


def test_views_of_params_are_not_copied_where_the_target_has_views(target_with):
    graph = program(lambda x, w, v: matmul(x, transpose(transpose(w, (1, 0)), (1, 0))))
    assert split_prepare(graph, target_with()).prepare is None
    assert ops(split_prepare(graph, target_with(accepts_views=False)).prepare) == ["rlx.transpose", "rlx.transpose"]


def test_pinned_params_are_not_prepared(target_with):
    graph = program(PROGRAMS["param work"])
    assert split_prepare(graph, target_with(), pinned=["w"]).prepare is None


def test_impure_work_runs_every_time(target_with, noise):
    graph = program(lambda x, w, v: matmul(x, noise(w)))
    assert split_prepare(graph, target_with()).prepare is None


def test_a_name_of_the_node_is_in_the_name_of_the_param(target_with):
    graph = program(lambda x, w, v: matmul(x, exp(w, name="scale")))
    assert list(split_prepare(graph, target_with()).graph.param_types) == ["prepared.scale"]
