"""Tables of kernels that meet: rows of several plugins under their own names, one table taken once, refusals that explain."""

from __future__ import annotations

import attrs
import pytest
from attrs import evolve

from rlx_core.errors import ConfigError
from rlx_core.ir.dtypes import f32, f64
from rlx_core.ir.graph import Builder, building
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp, log
from rlx_core.pipeline.kernels import Condition, Kernel, KernelTable, Traits, TraitWords


def run(op, x, *, out, workspace) -> None:
    """Nothing is run here."""


def other_run(op, x, *, out, workspace) -> None:
    """Nor here."""


FAST = Kernel("fast", exp.op, run)


def test_rows_of_two_plugins_that_are_called_the_same_keep_their_plugins_apart() -> None:
    table = KernelTable("toy", plugin="toy")
    table.merge([FAST], plugin="acme")
    table.merge([evolve(FAST, run=other_run)], plugin="other")

    assert [(row.name, row.plugin) for row in table] == [("fast", "acme"), ("other.fast", "other")]
    assert table.get("other.fast").run is other_run


def test_one_table_that_two_plugins_offer_is_taken_once() -> None:
    table = KernelTable("toy")
    table.merge([FAST], plugin="acme")
    table.merge([FAST], plugin="other")
    assert [(row.name, row.plugin) for row in table] == [("fast", "acme")]


def test_two_rows_of_one_plugin_with_one_name_are_refused() -> None:
    table = KernelTable("toy")
    with pytest.raises(ConfigError, match="two kernels are called 'fast'"):
        table.merge([FAST, evolve(FAST, op=log.op)], plugin="acme")


def test_a_condition_explains_what_is_lacking_where_it_can() -> None:
    builder = Builder("main")
    with building(builder):
        node = exp(builder.input("x", spec("f32[3]"))).node

    def never(node: object) -> bool:
        return False

    named = evolve(FAST, when=(Condition("an even size", never),))
    explained = evolve(FAST, when=(Condition("an even size", never, lambda n: f"an even size, not {n.type.size}"),))
    silent = evolve(FAST, when=(Condition("an even size", never, lambda n: None),))

    assert named.refusal(node) == silent.refusal(node) == "needs an even size"
    assert explained.refusal(node) == "needs an even size, not 3"


def test_keywords_of_register_are_the_traits_of_its_rows() -> None:
    assert list(TraitWords.__annotations__) == [a.name for a in attrs.fields(Traits)]

    table = KernelTable("toy")
    table.register(exp.op, dtypes="f32 f64", when=Condition("nothing", bool), is_generated=True, priority=3)(run)
    (row,) = table
    assert (row.name, row.dtypes, [c.name for c in row.when], row.priority) == ("run", {f32, f64}, ["nothing"], 3)
    assert (row.is_each_in_place, row.writes_strides) == (True, True), "as a loop nest is"
    with pytest.raises(TypeError, match="accepts_stride"):
        table.register(log.op, accepts_stride=True)(run)
