"""The laws of program transformations: rules, passes, legalizations, blocks, and formats of files.

Each is applied to programs in which it fires, and results before and after it are compared on ordinary and on special inputs. A
rule's programs follow from its own samples or from its left side, a legalization's from the samples of its op, a pass's from its
samples and from `compositions.py`. Only violations that a rewrite declares are excused (`equivalence.py`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import RlxError
from rlx_core.ir.block import Block, lower_block
from rlx_core.ir.dtypes import dtype as dtype_named
from rlx_core.ir.graph import Graph, Node, Value, as_results
from rlx_core.ir.interpret import interpret
from rlx_core.ir.rewrite import rebuild
from rlx_core.ir.types import TensorType
from rlx_core.ir.verify import IrStage, check
from rlx_core.passes.engine.apply_rules import apply_rules
from rlx_core.passes.engine.base import Context, LirPass
from rlx_core.passes.engine.rule_checks import default_samples, is_type, left_graph, shown, variables_of
from rlx_core.passes.engine.rules import RewriteRule, RuleSet
from rlx_core.passes.engine.splice import draft
from rlx_core.pipeline.compile import compile_graph
from rlx_core.pipeline.config.records import Configuration
from rlx_core.pipeline.plan import resolve_plan
from rlx_core.plugins import default_host
from rlx_core.runtime.executable import Executable
from rlx_core.testing.cases import OpProgram, programs
from rlx_core.testing.compositions import FIRST_TYPE, OTHER_TYPES, compositions, generated, single_ops
from rlx_core.testing.equivalence import difference, inputs_of
from rlx_core.testing.subjects import FormatRow, LegalizationRow, PassSubject, RuleRow
from rlx_core.testing.variants import accepted, bases
from rlx_core.testing.yardstick import yardstick

OwnInputs = Mapping[str, np.ndarray] | None
Named = tuple[str, Graph, Graph, OwnInputs]
"""A program in words, the program, the program after the rewrite, and inputs that it is known to take."""

MAX_RETYPED: Final = 24
"""Number of the compositions that a pass changes that are tried in other types as well."""
MAX_COMPARED: Final = 48
"""Number of the programs that a pass changes that are compared; they are taken from the list at equal distances."""

LIR: Final = {"hir": ["lower-hir"], "mir": ["canonicalize", "cse", "dead-code", "legalize"]}


class Rewrites:
    """The results of a program do not change by a rewrite."""

    def test_rewrite_rule_keeps_values(self, rewrite_rule: RuleRow) -> None:
        rule, fired = rewrite_rule.rule, 0
        for name, before, after, _ in rewritten_by_rule(rule):
            fired += 1
            assert_equivalent(str(rewrite_rule), name, before, after, rule.gives_up, is_exact=rule.gives_up is None)
        assert fired, (
            f"{rewrite_rule} fires on no program that follows from its left side, so nothing of it was compared; give it a"
            ' sample in which it fires: `.sampled(x="f32[3, 4]", …)`'
        )

    def test_pass_keeps_values_and_signature(self, contributed_pass: PassSubject) -> None:
        if issubclass(contributed_pass.load, LirPass):
            assert_lir_pass_keeps_values(contributed_pass)
            return
        changed = list(rewritten_by_pass(contributed_pass))
        is_sampled = contributed_pass.load.samples is not None
        if not changed and not is_sampled:
            pytest.skip(
                f"{contributed_pass} changes no program that was tried; programs that it does are its `samples`"
            )
        assert changed, f"{contributed_pass} changes none of its own samples"
        step = max(1, len(changed) // MAX_COMPARED)
        for name, before, after, own_inputs in changed[::step]:
            assert_equivalent(
                str(contributed_pass), name, before, after, contributed_pass.load.gives_up, own_inputs=own_inputs
            )

    def test_legalization_keeps_values(self, legalization: LegalizationRow) -> None:
        tried = [p for p in programs((legalization.op,)) if p.is_static and p.failure is None]
        tried += [v for base in bases(tried) for v in accepted(base)]
        changed = [(p, after) for p in tried if (after := legalized(p, legalization)) is not None]
        assert changed, f"{legalization} declines each of the {len(tried)} samples of its op and their variants"
        for program, after in changed:
            assert_equivalent(str(legalization), repr(program), program.graph, after, None, own_inputs=own_of(program))

    def test_lowerings_of_a_block_mean_the_same(self, block: type[Block]) -> None:
        tried = [p for p in programs((block,)) if p.is_static and p.failure is None]
        assert tried, (
            f"block {block.name} has no samples, so nothing of it was tried; `samples` is written as for an op"
        )
        for program in [*tried, *(v for base in bases(tried) for v in accepted(base))]:
            fusable, direct = (lowered(program, policy) for policy in ("fusable", "direct"))
            assert_equivalent(
                f"block {block.name}: its lowering `direct`",
                repr(program),
                fusable,
                direct,
                None,
                own_inputs=own_of(program),
            )

    def test_what_a_format_writes_it_reads(self, file_format: FormatRow) -> None:
        assert_round_trips(file_format)


def assert_equivalent(
    what: str,
    name: str,
    before: Graph,
    after: Graph,
    law: str | None,
    *,
    own_inputs: OwnInputs = None,
    is_exact: bool = False,
) -> None:
    """Require equal signatures, a graph that verifies, and equal results on inputs of every kind."""
    for attribute in ("input_types", "param_types"):
        old, new = getattr(before, attribute), getattr(after, attribute)
        assert list(old.items()) == list(new.items()), (
            f"{what} changes the signature of {name}: its {attribute.removesuffix('_types')}s were {dict(old)} and are"
            f" {dict(new)}"
        )
    old, new = [v.type for v in before.outputs], [v.type for v in after.outputs]
    assert old == new, f"{what} changes the signature of {name}: its outputs were {old} and are {new}"
    check(after, IrStage.HIR, after=what)
    for fed in inputs_of(before, own_inputs):
        problem = difference(before, after, fed, law=law, is_exact=is_exact)
        assert problem is None, f"{what} changes what {name} computes: {problem}"


# --------------------------------------------------------------------------------------------------- rules


def rewritten_by_rule(rule: RewriteRule) -> Iterator[Named]:
    """Each program that follows from a rule's samples or its left side, in which it fires."""
    is_own = bool(rule.samples)
    for sample in [*(resized for each in rule.samples for resized in sizes_of(each)), *other_samples(rule)]:
        before = left_graph(rule, sample, is_own=is_own and sample in rule.samples)
        if before is None:
            continue
        result = apply_rules(before, RuleSet("tried", lambda: [rule]), rounds=1)
        if rule.key in result.counts:
            yield shown(sample), before, result.graph, None
        assert rule.key in result.counts or sample not in rule.samples, (
            f"rewrite {rule.key} does not fire on its own sample {shown(sample)}:"
            f" {'; '.join(m.reason for m in result.misses) or 'its pattern does not match'}"
        )


def sizes_of(sample: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A sample of the rule's author, and the same in narrow dtypes."""
    yield sample
    for dtype in ("f16", "bf16"):
        yield {n: v.replace("f32[", f"{dtype}[") if isinstance(v, str) and is_type(v) else v for n, v in sample.items()}


def other_samples(rule: RewriteRule) -> Iterator[Mapping[str, Any]]:
    """Yield one type for all variables, of each dtype and of other sizes; nothing for a rule with its own samples."""
    if rule.samples:
        return
    yield from default_samples(rule)
    names = sorted(variables_of(rule.left)) if isinstance(rule.left, Value) else []
    for type in OTHER_TYPES:
        yield dict.fromkeys(names, type)
    if not isinstance(rule.left, Value):
        for program in programs((rule.left,)):
            if program.is_static and program.failure is None:
                types = dict(program.graph.input_types.items())
                yield {**types, "make": partial(called, program)}


def called(program: OpProgram, **operands: Value) -> Any:
    """The op of a program on other operands."""
    remaining = iter(operands.values())
    return program.node.op(*(None if t is None else next(remaining) for t in program.sample.types))


# -------------------------------------------------------------------------------------------------- passes


def rewritten_by_pass(row: PassSubject) -> Iterator[Named]:
    """Each program that a pass changes: of its samples, of single ops, of compositions, of generated programs."""
    known = context()
    changed_by = partial(changed, row.load(), str(row), known)
    for i, graph in enumerate(() if row.load.samples is None else row.load.samples()):
        yield from changed_by(f"sample {i}", graph)
    for name, graph, own_inputs in (*generated(), *single_ops()):
        yield from changed_by(name, graph, own_inputs)
    retyped = 0
    for each in compositions():
        first = each.graph(FIRST_TYPE)
        assert first is not None, "compositions exist for their first type"
        changes = list(changed_by(each.name, first))
        yield from changes
        retyped += bool(changes)
        for type in OTHER_TYPES if changes and retyped <= MAX_RETYPED else ():
            if (retyped_graph := each.graph(type)) is not None:
                yield from changed_by(f"{each.name} on {type}", retyped_graph)


def changed(
    contributed: Any, what: str, known: Context, name: str, before: Graph, own_inputs: OwnInputs = None
) -> Iterator[Named]:
    """Yield a program and the result of a pass on it, if that differs."""
    try:
        after = contributed.run(before, known).graph
    except Exception as error:
        error.add_note(f"{what} on {name}")
        raise
    if after is not before and after != before:
        yield name, before, after, own_inputs


def context() -> Context:
    """Return the context of a pass with the default configuration."""
    return resolve_plan(Configuration(), default_host().activate_all()).context


def assert_lir_pass_keeps_values(row: PassSubject) -> None:
    """Require the tolerance of the yardstick for planned programs, with the pass in their pipeline."""
    if not default_host().activate_all().backends:
        pytest.skip(f"{row} works on planned programs, and no backend is installed")
    config = {"use": "tried", "pipeline": {"tried": {**LIR, "lir": [row.name]}}}
    for name, graph, own_inputs in (*single_ops()[::24], *generated()):
        executable = Executable(compile_graph(graph, config=config))
        outputs = [np.array(a) for a in executable.run(dict(own_inputs))]
        complaint = yardstick(graph, own_inputs).complaint(outputs)
        assert complaint is None, f"{row} changes what {name} computes: {complaint}"


# ---------------------------------------------------------------------------------- legalizations and blocks


def legalized(program: OpProgram, row: LegalizationRow) -> Graph | None:
    """Return the program with its op replaced by the table's rewrite; `None` where the table declines."""
    is_replaced = False

    def replace(node: Node, operands: tuple[Value | None, ...]) -> Sequence[Value] | None:
        nonlocal is_replaced
        if type(node.op) is not row.op:
            return None
        drafted = draft(partial(row.rewrite, node.op, *operands), row.name)
        if drafted is None:
            return None
        assert drafted.types == node.types, (
            f"{row} changes the type of {program!r} from {list(map(str, node.types))} to {list(map(str, drafted.types))}"
        )
        is_replaced = True
        return drafted.place(node)

    after = rebuild(program.graph, replace)[0]
    return after if is_replaced else None


def own_of(program: OpProgram) -> dict[str, np.ndarray]:
    """The arrays of a program's sample by input."""
    return dict(zip(program.graph.input_types, program.draw(), strict=True))


def lowered(program: OpProgram, policy: Any) -> Graph:
    """The program of a block by one of its lowerings."""

    def replace(node: Node, operands: tuple[Value | None, ...]) -> Sequence[Value] | None:
        return as_results(lower_block(node.op, operands, policy)) if isinstance(node.op, Block) else None

    return rebuild(program.graph, replace)[0]


# ------------------------------------------------------------------------------------------------- formats

DTYPES: Final = ("f32", "f64", "f16", "bf16", "i8", "i32", "i64", "u8", "bool", "c64")
SHAPES: Final = ((2, 3), (5,), (1,), (0, 2), ())


def assert_round_trips(row: FormatRow) -> None:
    """Require that arrays and programs of the kinds that the format takes are read as they were written."""
    taken = 0
    with tempfile.TemporaryDirectory() as folder:
        for dtype in DTYPES:
            for shape in SHAPES:
                taken += is_kept(row, Path(folder), arrays_of(dtype, shape), f"{dtype}{list(shape)}")
        for name, value, fed in written_programs():
            taken += is_program_kept(row, Path(folder), name, value, fed)
    if not taken:
        pytest.skip(f"{row} takes neither arrays by name nor graphs, so nothing was written and read")


def arrays_of(dtype: str, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Two arrays of special values by name, one of them in Fortran order."""
    type = TensorType(dtype_named(dtype), shape)
    graph = rlx.trace(lambda a, b: (a, b), type, type)
    *_, fed = inputs_of(graph)
    first, second = fed.arrays.values()
    return {"first": first, "second.inner": np.asfortranarray(second)}


def is_kept(row: FormatRow, folder: Path, arrays: Mapping[str, np.ndarray], name: str) -> bool:
    """Return whether the format takes some arrays; then they have to come back bit for bit."""
    path = folder / f"tried{row.suffix}"
    try:
        row.write(path, dict(arrays), default_host())
    except RlxError:
        return False
    loaded = row.read(path, default_host())
    assert isinstance(loaded, Mapping), f"{row} reads a {type(loaded).__name__} where arrays by name were written"
    assert sorted(loaded) == sorted(arrays), f"{row} reads {sorted(loaded)} where {sorted(arrays)} were written"
    for key, array in arrays.items():
        read = np.asarray(loaded[key])
        is_same = read.dtype == array.dtype and read.shape == array.shape and read.tobytes() == array.tobytes()
        assert is_same, f"{row} reads {read.dtype}{list(read.shape)} {read!r} where {array!r} ({name}) was written"
    return True


def written_programs() -> Iterator[tuple[str, Graph, Mapping[str, np.ndarray]]]:
    """Graphs of a few ops, which formats of programs take."""
    yield from generated()[:8]


def is_program_kept(row: FormatRow, folder: Path, name: str, graph: Graph, fed: Mapping[str, np.ndarray]) -> bool:
    """Return whether the format takes a graph; then the graph that is read has to compute the same bits."""
    path = folder / f"tried{row.suffix}"
    try:
        row.write(path, graph, default_host())
    except RlxError:
        return False
    loaded = row.read(path, default_host())
    read = loaded if isinstance(loaded, Graph) else getattr(loaded, "graph", None)
    if not isinstance(read, Graph):
        return False
    for a, b in zip(interpret(graph, fed), interpret(read, fed), strict=True):
        is_same = a.dtype == b.dtype and a.tobytes() == b.tobytes()
        assert is_same, f"{row} reads another program than {name}, which it wrote"
    return True
