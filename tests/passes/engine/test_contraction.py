"""Groups contracted one after the other: dependence is exact, and asking does not walk through the program."""

from __future__ import annotations

import gc
import random
import time

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.ir.graph import Graph, Node, Value
from rlx_core.passes.engine.contraction import Contraction
from rlx_core.passes.fuse import loops as fuse_loops
from rlx_core.passes.fuse.loops import Siblings
from rlx_core.pipeline.compile import compile_graph


def random_graph(seed: int, nodes: int) -> Graph:
    choose = random.Random(seed)

    def f(x: Value, y: Value) -> list[Value]:
        values = [x, y]
        for _ in range(nodes):
            recent = values[-8:] if choose.random() < 0.7 else values
            values.append(choose.choice(recent) + choose.choice(recent))
        return values[-3:]

    return rlx.trace(f, rlx.spec("f32[4]"), rlx.spec("f32[4]"))


def inputs_of(members: list[Node]) -> tuple[Value, ...]:
    return tuple(dict.fromkeys(v for n in members for v in n.present() if v.node not in members))


class Walk:
    """The same question answered by walking back to the start."""

    def __init__(self) -> None:
        self.groups: dict[Node, list[Node]] = {}

    def depends(self, values: tuple[Value, ...], on: list[Node]) -> bool:
        seen: set[Node] = set()
        wanted = {m for n in on for m in self.groups.get(n, [n])}
        stack = [v.node for v in values]
        while stack:
            node = stack.pop()
            if node in wanted:
                return True
            if node not in seen:
                seen.add(node)
                stack += [v.node for v in inputs_of(self.groups.get(node, [node]))]
        return False


@pytest.mark.parametrize("seed", range(12))
def test_dependence_is_what_a_walk_finds_whatever_has_been_contracted(seed: int) -> None:
    graph, choose = random_graph(seed, 60), random.Random(seed + 100)
    contraction, walk = Contraction(graph), Walk()
    answers = []
    for _ in range(150):
        free = [n for n in graph.nodes if n.operands and n not in walk.groups]
        start = choose.randrange(max(1, len(free) - 8))
        members = sorted(choose.sample(free[start : start + 8], min(3, len(free[start:]))), key=lambda n: n.index)
        inputs = inputs_of(members)
        on = choose.sample(graph.nodes, 2)
        assert contraction.depends(inputs, on) == walk.depends(inputs, on)
        answers.append(contraction.depends(inputs, members))
        assert answers[-1] == walk.depends(inputs, members)
        if members and not answers[-1]:
            contraction.contract(members, inputs, [v for n in members for v in n.results])
            walk.groups |= dict.fromkeys(members, members)
    assert set(answers) == {True, False}
    assert_in_order(contraction)


def assert_in_order(contraction: Contraction) -> None:
    """Everything has a place after what it reads."""
    for unit in set(contraction.unit):
        assert all(contraction.place[u] < contraction.place[unit] for u in contraction.before(unit))


def steps(count: int) -> Graph:
    """A loop with a side value that is read at the end, as a gradient reads what the forward part has left."""

    def f(h: Value, w: Value) -> Value:
        kept = []
        for _ in range(count):
            kept.append(h * 0.5)
            h = (h + kept[-1]) @ w
        for value in reversed(kept):
            h = (h + value) @ w
        return h

    return rlx.trace(f, rlx.spec("f32[4, 4]"), rlx.spec("f32[4, 4]"))


def visits(count: int) -> int:
    """Units that are looked at when every sum is grouped with what it adds, where that may be."""
    graph = steps(count)
    contraction = Contraction(graph)
    looked = 0
    before, after = contraction.before, contraction.after

    def counting(unit: int, of: object) -> object:
        nonlocal looked
        looked += 1
        return of(unit)  # type: ignore[operator]

    contraction.before = lambda unit: counting(unit, before)  # type: ignore[assignment, method-assign, return-value]
    contraction.after = lambda unit: counting(unit, after)  # type: ignore[assignment, method-assign, return-value]
    for node in reversed(graph.nodes):
        producers = [v.node for v in node.present() if v.node.operands and v.node.type == node.type]
        members = [node, *producers[:1]]
        if not producers or any(contraction.unit[n.index] in contraction.members for n in members):
            continue
        if not contraction.depends(inputs_of(members), members):
            contraction.contract(members, inputs_of(members), node.results)
    assert len(contraction.members) > count
    return looked


@pytest.mark.medium
def test_a_program_eight_times_as_long_is_looked_at_eight_times_as_often() -> None:
    assert visits(800) < 8 * 1.3 * visits(100)


@pytest.mark.slow
def test_a_long_program_is_contracted_in_the_time_of_its_length() -> None:
    gc.freeze()  # what other tests left is no garbage of this one, however long a look at it takes
    try:
        start = time.process_time()
        visits(100)
        short = time.process_time() - start
        start = time.process_time()
        visits(1600)
        assert time.process_time() - start < 16 * 3 * short
    finally:
        gc.unfreeze()


def test_products_of_one_value_are_compared_with_all_chosen_ones_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(count: int) -> int:
        def f(params: list[Value], x: Value) -> Value:
            total = x @ params[0]
            for w in params[1:]:
                total = total + x @ w
            return total

        calls: list[object] = []
        depends = Contraction.depends
        with monkeypatch.context() as patched:
            patched.setattr(Contraction, "depends", lambda s, v, on: calls.append(on) or depends(s, v, on))
            weights = [np.full((4, 4), i, np.float32) for i in range(count)]
            rlx.compile(f, weights, rlx.spec("f32[4, 4]"), config={"cache": {"disk": False}})
        return len(calls)

    assert 0 < asked(24) < 3.5 * asked(8)


@pytest.mark.medium
def test_a_value_that_all_steps_read_is_no_reason_to_compare_each_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    def joined(count: int) -> int:
        def f(w: Value, x: Value) -> Value:
            for _ in range(count):
                w = w - rlx.sum(x * w, axis=1, keepdims=True)
            return w

        calls: list[object] = []
        join = Siblings.join
        with monkeypatch.context() as patched:
            patched.setattr(Siblings, "join", lambda *given: calls.append(given) or join(*given))
            compile_graph(rlx.trace(f, rlx.spec("f32[64, 1]"), rlx.spec("f32[64, 64]")), target="cpu")
        return len(calls)

    monkeypatch.setattr(fuse_loops, "NEIGHBOURS", 2)
    assert 0 < joined(128) < 2.6 * joined(64)
