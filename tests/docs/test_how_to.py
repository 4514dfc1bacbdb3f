"""The pages on how to extend rlx are programs that work."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.cli.conforming.trial import conformance_of
from rlx_core.cli.session import CliSession
from rlx_core.contributions import KINDS, BackendSpec
from rlx_core.contributions.records import RULE_KINDS
from rlx_core.hooks import hookimpl
from rlx_core.ops import Op, standard_ops
from rlx_core.ops.arithmetic import add, multiply, negative
from rlx_core.ops.linalg import MatMul
from rlx_core.ops.movement import Concat
from rlx_core.ops.softmax import Softmax
from rlx_core.ops.structural import Sum
from rlx_core.pipeline.backend import Target
from rlx_core.pipeline.kernels import Condition, KernelTable
from rlx_core.plugins import PluginHost, given_entry, set_default_host
from rlx_core.system.budget import Budget
from rlx_core.testing.about import asked_of
from rlx_core.testing.cases import programs
from rlx_core.testing.choice import Amount, tried
from rlx_core.testing.laws import EveryBackend
from rlx_core.testing.targets import TargetRun

pytestmark = pytest.mark.every_case

DOCS = Path(__file__).parents[2] / "docs"
HAS_NATIVE_CODE = all(importlib.util.find_spec(name) is not None for name in ("rlx_cpu", "llvmlite"))


PAGES = [
    "getting-started",
    "how-to/add-an-op",
    "how-to/add-a-pass",
    "how-to/add-a-backend",
    "how-to/plugin-contributions",
    "how-to/write-a-loop",
    "how-to/captured-values",
    "how-to/convolutional-nets",
    "how-to/random-numbers",
    "how-to/narrow-weights",
    "how-to/profile-a-program",
    "types",
]


@pytest.mark.parametrize("page", PAGES)
def test_the_page_prints_what_it_shows(run_page: Callable[[str], Any], page: str) -> None:
    run_page(f"{page}.md")


@pytest.mark.skipif(not HAS_NATIVE_CODE, reason="the page is about native code")
def test_a_native_kernel_is_added_as_the_page_says(run_page: Callable[[str], Any]) -> None:
    run_page("how-to/add-a-native-kernel.md")


def test_every_kind_of_record_and_of_rule_has_an_example() -> None:
    page = (DOCS / "how-to" / "plugin-contributions.md").read_text(encoding="utf-8")
    headings = set(re.findall(r"^## (.*)$", page, re.MULTILINE))
    assert set(KINDS) <= {kind for heading in headings for kind in heading.split(" and ")}
    assert [spec.__name__ for spec in KINDS.values() if f"{spec.__name__}(" not in page] == []
    assert set(re.findall(r"^\| `(\w+)` \| `\(op", page, re.MULTILINE)) == set(RULE_KINDS)


def obeys(
    page: Any, ops: tuple[type[Op], ...], amount: Amount, *, target: str = "chalk", host: str = "host", dtypes: str = ""
) -> int:
    """Run the law of backends on one of the page's targets; returns the number of programs that were compared.

    Args:
        dtypes: The dtypes that the target claims; programs with others are not run. Empty if it claims all.
    """
    law = EveryBackend().test_backend_agrees_with_the_interpreter
    chosen = [
        program
        for program in tried(programs(ops), asked_of(law), law.__name__, amount)
        if not dtypes or {v.dtype.name for n in program.graph.nodes for v in n.results} <= set(dtypes.split())
    ]
    before = set_default_host(page.names[host])
    try:
        for program in chosen:
            law(program, TargetRun(target))
    finally:
        set_default_host(before)
    return len(chosen)


@pytest.mark.medium
def test_the_backend_of_the_page_obeys_the_law_at_every_size_and_rank(run_page: Callable[[str], Any]) -> None:
    """Sizes of 0 have no place in the arena, and arrays of rank 0 keep it."""
    page = run_page("how-to/add-a-backend.md")
    assert obeys(page, (add.op, Sum), "all") > 30


def test_the_device_backend_of_the_page_obeys_the_law(run_page: Callable[[str], Any]) -> None:
    """Its buffers are bytearrays, which compare by content: a buffer is another one although its bytes are the same."""
    page = run_page("how-to/add-a-backend.md")
    assert obeys(page, (add.op, multiply.op, negative.op), "all", target="snail", host="garden", dtypes="f32") >= 3

    names, shape = page.names, (2, 3)
    same = rlx.jit(lambda x: x + x, target="snail", host=names["garden"], outputs="device")
    arrays = [rlx.device_put(np.full(shape, n, np.float32), "snail:0", host=names["garden"]) for n in (0, 1, 0, 2)]
    results = [same(array) for array in arrays]
    assert [result.to_host().tolist() for result in results] == [np.full(shape, 2 * n).tolist() for n in (0, 1, 0, 2)]


@pytest.mark.slow
def test_the_backend_of_the_page_obeys_the_law_on_every_op(run_page: Callable[[str], Any]) -> None:
    page = run_page("how-to/add-a-backend.md")
    assert obeys(page, standard_ops(), "one") > 150
    assert obeys(page, (MatMul, Concat, Softmax), "all") > 60


@pytest.mark.slow
def test_conform_tells_a_partial_backend_of_the_page_from_a_wrong_one(run_page: Callable[[str], Any]) -> None:
    names = run_page("how-to/add-a-backend.md").names
    session = CliSession(make_host=lambda policy: names["host"])
    partial = conformance_of(session, "slate", is_quick=True)
    assert (partial.level, partial.dtypes) == ("none", ("f32",))
    assert "rlx.softmax" in partial.host_ops["softmax"]
    assert all(row.status != "failed" for row in partial.rows)
    assert [str(row) for row in conformance_of(session, "chalk", is_quick=True).rows if row.status == "failed"] == []

    @names["everything"].register(Softmax, dtypes="f32", priority=1)
    def wrong(op: Any, x: Any, *, out: Any, workspace: Any) -> None:
        np.copyto(out, op.reference(x) + 1)

    found = conformance_of(session, "chalk", is_quick=True)
    assert found.level == "elementwise"
    assert "rlx.softmax" in {row.op for row in found.rows if row.status == "failed"}


@pytest.mark.slow
def test_a_backend_of_loops_alone_conforms_like_one_with_products(run_page: Callable[[str], Any]) -> None:
    """A product without a kernel becomes element-wise ops and a reduction."""
    names = run_page("how-to/add-a-backend.md").names
    products = [op for op in standard_ops() if op.category == "compute"]
    loops = KernelTable("loops", plugin="slate")
    loops.register(
        Op, when=(names["has_reference"], Condition("no product", lambda node: type(node.op) not in products))
    )(names["reference"])

    class Loops(names["Slate"]):  # type: ignore[misc]
        target = Target("loops", loops, alignment=16)

    class Plugin:
        @hookimpl
        def rlx_backends(self) -> list[BackendSpec]:
            return [BackendSpec("loops", Loops), BackendSpec("chalk", names["Chalk"])]

    host = PluginHost([given_entry(Plugin())])
    session = CliSession(make_host=lambda policy: host)
    found = conformance_of(session, "loops", is_quick=True)
    assert [str(row) for row in found.rows if row.status == "failed"] == []
    assert "linalg" not in found.host_ops
    assert found.level == conformance_of(session, "chalk", is_quick=True).level == "full"


@pytest.mark.skipif(importlib.util.find_spec("rlx_cpu") is None, reason="the page shows a program on the CPU")
def test_a_program_is_saved_and_sent_as_the_page_says(run_page: Callable[[str], Any]) -> None:
    run_page("how-to/save-and-send.md")


@pytest.mark.medium
@pytest.mark.skipif(not HAS_NATIVE_CODE, reason="the page is about what native code writes in place")
def test_a_model_is_trained_as_the_page_says(run_page: Callable[[str], Any]) -> None:
    run_page("how-to/train.md")


def test_the_page_on_debugging_has_the_defaults_of_every_budget() -> None:
    text = (DOCS / "how-to/debug-a-compilation.md").read_text()
    table = re.search(r"```toml\n(\[budget\].*?)```", text, re.DOTALL)
    assert table is not None
    assert tomllib.loads(table[1])["budget"] == attrs.asdict(Budget())
