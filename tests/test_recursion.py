"""No recursion over a program: every function that calls itself is listed here with what bounds how deep it goes.

Python allows about a thousand calls inside one another, and programs are longer than that. Calls are found by name within a
module: of functions, and of methods through `self`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ("rlx_core", "plugins/rlx_cpu/src/rlx_cpu", "plugins/rlx_custom_ops/src/rlx_custom_ops")

BOUNDED = {
    "graphs are nested at most MOST_NESTED deep (ir/graph), and each level is one round of these": {
        "rlx_core/ir/bind.py": "bind check_guards _bound_node bind_op _places _bound _with_bound",
        "rlx_core/ir/encoding.py": "Encoder.value Encoder._object Encoder.op Encoder.graph Encoder._node",
        "rlx_core/ir/forms.py": "RecordForms.write RecordForms._read",
        "rlx_core/ir/graph/program.py": "ops_inside symbols_inside _in_each",
        "rlx_core/ir/hir.py": "has_blocks",
        "rlx_core/ir/mesh.py": "named_axes nodes_over",
        "rlx_core/ir/plan_form.py": "encode_lir _step_form decode_lir _step",
        "rlx_core/ir/tape.py": "tape_of_op tape_of_graph steps_of",
        "rlx_core/ir/text.py": "_graph_lines _node_text attribute_text _object_text",
        "rlx_core/ir/text_lir.py": "_lines _step_lines _LirParser.lir _LirParser.fact _LirParser.step _LirParser.nested",
        "rlx_core/ir/verify.py": "verify _node _faults _nested",
        "rlx_core/ir/verify_lir.py": "verify_lir _nested",
        "rlx_core/draw/view.py": "_rows",
        "rlx_core/ops/host/effects.py": "without_effects",
        "rlx_core/passes/engine/base.py": "each_graph each_graph.change",
        "rlx_core/passes/lower_hir.py": "blocks_in",
        "rlx_core/passes/static_int8.py": "products_in_bodies",
        "rlx_core/pipeline/compile.py": "domains_of",
        "rlx_core/pipeline/legalize.py": "one_round legal_bodies legal_bodies.change survey",
        "rlx_core/pipeline/planning/planner.py": "_draft _step _nested",
        "rlx_core/pipeline/planning/verify_steps.py": "step_faults",
        "rlx_core/pipeline/tiers.py": "tier_of_step why_step",
        "rlx_core/emit/code.py": "compile_plan",
        "rlx_core/emit/program.py": "device_program device_program.nested",
        "plugins/rlx_cpu/src/rlx_cpu/native/runtime/program.py": (
            "native_program native_program.nested native_program.build native_program.code native_program.compiled_steps"
        ),
        "plugins/rlx_cpu/src/rlx_cpu/numpy_program.py": "numpy_program numpy_program.nested",
        "plugins/rlx_cpu/src/rlx_cpu/native/runtime/steps.py": "emit_step emit_step.inside reason_to_drive kernels_in",
        "plugins/rlx_cpu/src/rlx_cpu/native/work.py": "estimated_us",
    },
    "axes of an operand, of which there are as many as a tensor may have": {
        "rlx_core/ops/convolution/channels_last.py": "_by_phases.joined",
    },
    "half as many each time": {
        "plugins/rlx_cpu/src/rlx_cpu/native/llvm/cuts.py": "by_value",
        "rlx_core/functions/control/associative.py": "associative_scan.running",
        "rlx_core/functions/control/choices.py": "switch.among",
    },
    "lengths are cut by a factor each time, and what a prime becomes is a power of two": {
        "rlx_core/ops/fourier/cooley_tukey.py": "dft _split _bluestein",
    },
    "readers refuse what is nested deeper than their _MAX_DEPTH": {
        "rlx_core/ir/decoding.py": "Decoder.value Decoder._nested",
        "rlx_core/ir/parse.py": (
            "Parser.graph Parser.graph_and_names Parser.statement Parser.node Parser.attributes Parser.attributes.read "
            "Parser.attribute Parser._attribute Parser.worded Parser.record Parser.record.read"
        ),
        "rlx_core/ir/dims/text.py": (
            "parse_dims.atom parse_dims.bare_atom parse_dims.factor parse_dims.term parse_dims.total"
        ),
        "rlx_core/ir/mesh.py": "named_axes nodes_over",
        "rlx_core/ir/plan_form.py": "option_from",
    },
    "quotients and minima are nested at most MOST_NESTED deep, and MOST_BOUNDS are bounded (ir/dims)": {
        "rlx_core/ir/dims/algebra.py": "free_symbols floor_quotient smaller _smaller_of_difference",
        "rlx_core/ir/dims/bounds.py": "_Search.holds _Search._grows _Search._holds_around",
        "rlx_core/ir/dims/binding.py": "substitute _substitute_atom",
        "rlx_core/importing/symbols.py": "foreign_size _foreign_atom",
    },
    "ops decompose into ops that do not decompose after a few rounds, and calls into graphs": {
        "rlx_core/transforms/batch.py": "batch_into _batch_node _by_decomposition",
        "rlx_core/transforms/prepare.py": "_copy _take_apart",
        "rlx_core/transforms/sweeps.py": (
            "backward pull _by_decomposition _by_transposition pushforward push _push_by_decomposition _push_by_transposition"
        ),
        "rlx_core/pipeline/dispatch.py": "Dispatcher.runs_all_of Dispatcher.runs",
    },
    "configurations are refused below MOST_NESTED (pipeline/config_reading)": {
        "rlx_core/ir/fingerprint.py": "canonical",
        "rlx_core/ir/mesh.py": "named_axes nodes_over",
        "rlx_core/ir/plan_form.py": "option_form",
        "rlx_core/pipeline/config/records.py": "freeze thaw",
        "rlx_core/pipeline/config/reading.py": "merged key_paths expect_text_keys",
        "rlx_core/pipeline/config/structure.py": "value_of record_of",
        "rlx_core/pipeline/job.py": "as_tables",
        "rlx_core/pipeline/plan.py": "plain",
        "rlx_core/plugins/digest.py": "canonical fields_of",
    },
    "an attribute, or a record that a plugin contributes, as its author wrote it": {
        "rlx_core/contributions/validators.py": "is_plain",
        "rlx_core/ir/annotations.py": "_each_is _spelled exact_types fitting",
        "rlx_core/ir/op.py": "exact",
        "rlx_core/testing/reduce.py": "with_number.changed",
    },
    "a rule's pattern, as its author wrote it": {
        "rlx_core/passes/engine/patterns.py": "matches match_all mismatch",
        "rlx_core/passes/engine/rule_checks.py": "variables_of same_bits",
        "rlx_core/passes/engine/rules.py": "instantiate",
    },
    "it stops at a depth of its own": {
        "rlx_core/testing/equivalence.py": "zeros_agree elements_equal",
        "rlx_core/passes/recognise/attention_hiding.py": "magnitude",
        "rlx_core/passes/recognise/chains.py": "factors_of",
        "rlx_core/passes/joined_slices.py": "Joining.join Joining.of_chains",
        "rlx_core/passes/quantized_activations.py": "largest",
        "rlx_core/passes/static_int8.py": "StaticQuantisation.codes StaticQuantisation.moved_codes",
        "rlx_core/pipeline/planning/alias.py": "Views.fit Views._reads",
    },
    "records of a plan inside one another, which no program makes deeper": {
        "rlx_core/pipeline/recording.py": "SizeRecording.expression SizeRecording._spelling SizeRecording._assigned",
    },
    "one level for each axis": {
        "rlx_core/ops/array_creation.py": "asarray",
        "plugins/rlx_cpu/src/rlx_cpu/native/movement/mover.py": "Mover._nest",
        "plugins/rlx_cpu/src/rlx_cpu/native/loops/nests.py": "Loops._rows_outside Loops._over",
        "plugins/rlx_cpu/src/rlx_cpu/native/loops/panels.py": "PanelLoops._copies PanelLoops._rows PanelLoops._written_out",
    },
    "one more call, for the simpler case": {
        "rlx_core/ir/dtypes.py": "_join_real_complex promote",
        "rlx_core/ir/graph/builder.py": "Builder.input Builder.emit Builder._own",
        "rlx_core/ops/array_shapes.py": "roll repeat",
        "rlx_core/ops/kinds.py": "scaled",
        "rlx_core/testing/special_points.py": "same_bits",
        "rlx_core/functions/transforms.py": "grad hessian jacfwd jacrev value_and_grad vmap",  # made again from a pickle
        "rlx_core/runtime/jit.py": "jit",
        "rlx_core/functions/training.py": "train_step",
        "rlx_core/trees/classes.py": "register_dataclass",
        "rlx_core/ops/attention.py": "Attention.batch",
        "plugins/rlx_cpu/src/rlx_cpu/native/llvm/ir/numbers.py": "integer_like constant suffix",
        "rlx_core/codegen/scalars/conversion.py": "converted",
    },
    "an expression of Python, as its author wrote it": {
        "rlx_core/functions/captured/analysis.py": "reads_of",  # functions inside functions
        "rlx_core/ir/graph/elements.py": "_resolved",
        "rlx_core/testing/api/stubs.py": "Writer.text Writer._union",
    },
    "folders inside a package": {
        "rlx_core/cli/scaffold.py": "templates",
        "rlx_core/plugins/digest.py": "files_in",
    },
}
"""What bounds the depth → file → the functions that call themselves, directly or through one another."""


def functions_in(
    tree: ast.AST, prefix: str = "", owner: str | None = None
) -> Iterator[tuple[str, ast.AST, str | None, bool]]:
    """Qualified name, definition, class around it, and whether it is a method of that."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{child.name}", child, owner, isinstance(tree, ast.ClassDef)
            yield from functions_in(child, f"{prefix}{child.name}.", owner)
        elif isinstance(child, ast.ClassDef):
            yield from functions_in(child, f"{prefix}{child.name}.", child.name)
        else:
            yield from functions_in(child, prefix, owner)


def self_calling(source: str) -> set[str]:
    """The functions of a module that reach themselves through names and `self`."""
    found = list(functions_in(ast.parse(source)))
    plain = {name for name, _, _, is_method in found if not is_method}
    methods = {(owner, name.rpartition(".")[2]): name for name, _, owner, is_method in found if is_method}
    calls: dict[str, set[str]] = {}
    for name, definition, owner, _ in found:
        inside = list(ast.walk(definition))
        local = {n.arg for n in inside if isinstance(n, ast.arg)}
        local |= {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        named = {n.id for n in inside if isinstance(n, ast.Name)} - local
        through_self = {n.attr for n in inside if isinstance(n, ast.Attribute) and is_self(n.value)}
        calls[name] = {seen for n in named if (seen := visible(n, name, plain)) is not None}
        calls[name] |= {methods[owner, n] for n in through_self if (owner, n) in methods}
    return {name for name in calls if name in reached(calls, name)}


def visible(name: str, function: str, plain: set[str]) -> str | None:
    """The function that `name` means inside `function`: one defined in it, beside it, or further outside."""
    parts = function.split(".")
    scopes = [".".join([*parts[:depth], name]) for depth in range(len(parts), -1, -1)]
    return next((scope for scope in scopes if scope in plain), None)


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def reached(calls: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = list(calls[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += calls[name]
    return seen


def test_every_function_that_calls_itself_is_listed_with_what_bounds_it() -> None:
    found = {
        (str(path.relative_to(ROOT)), name)
        for folder in SOURCES
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in self_calling(path.read_text())
    }
    listed = {(file, name) for files in BOUNDED.values() for file, names in files.items() for name in names.split()}

    assert sorted(found - listed) == [], "make it a loop over a list of what waits, or say here what bounds it"
    assert sorted(listed - found) == [], "it calls itself no more"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def f(x):\n    return f(x.below)", {"f"}),
        ("def f(x):\n    return map(g, x)\ndef g(x):\n    return f(x)", {"f", "g"}),
        (
            "class A:\n    def f(self):\n        return self.g()\n    def g(self):\n        return self.f()",
            {"A.f", "A.g"},
        ),
        ("def f():\n    def g():\n        return 1\n    return g\ndef g():\n    return f()", set()),
        ("def f(f):\n    return f()", set()),
        ("class A:\n    def f(self, other):\n        return other.f()", set()),
    ],
)
def test_a_function_that_reaches_itself_is_found(source: str, names: set[str]) -> None:
    assert self_calling(source) == names
