"""The laws, each stated once. Every op, standard or a plugin's, is tried on its own samples and on variants of them.

A law takes a `program` (see `cases.py`) and applies only to the programs of its `@about`. Three judges
take part and none is derived from another: the NumPy reference in float64, differences, and the op's decomposition. Rules that
a plugin contributes are looked up as for users, and kernels that it contributes are compiled as users' programs are.
"""

from __future__ import annotations

from typing import Any

from rlx_core.errors import RlxError
from rlx_core.ir.op import Op
from rlx_core.ir.parse import parse_graph
from rlx_core.ir.text import print_graph
from rlx_core.ops.samples import Case, Sample
from rlx_core.testing.about import about
from rlx_core.testing.cases import OpProgram, cases_of, programs, refusal
from rlx_core.testing.laws.agreement import Agreement
from rlx_core.testing.laws.backends import EveryBackend, Run
from rlx_core.testing.laws.declarations import Declarations
from rlx_core.testing.laws.derivatives import Derivatives
from rlx_core.testing.laws.kernels import Kernels
from rlx_core.testing.laws.kinks import Kinks
from rlx_core.testing.laws.meaning import Meaning
from rlx_core.testing.laws.ranges import Ranges
from rlx_core.testing.laws.rewrites import Rewrites
from rlx_core.testing.laws.schemes import Schemes
from rlx_core.testing.subjects import ContributionSubject
from rlx_core.testing.variants import bases, variants

__all__ = ["EveryBackend", "EveryOp", "Run", "about"]


class EveryOp(Agreement, Meaning, Derivatives, Kinks, Declarations, Kernels, Ranges, Rewrites, Schemes, EveryBackend):
    """The laws as tests; subclass it with a name that starts with `Test`, and with `ops` to choose the tested ops."""

    def test_contribution_can_be_used(self, contribution: ContributionSubject) -> None:
        assert contribution.fault is None, f"{contribution.name}: {contribution.fault}"

    def test_op_has_samples(self, op: type[Op]) -> None:
        operands = ", ".join(['"f32[4, 8]"'] * max(len(op.operands), 1))
        assert any(isinstance(case.sample, Sample) for case in cases_of([op])), (
            f"{op.name} has no samples, so nothing of it was tried; write in class {op.__name__}:\n"
            f"    @classmethod\n    def samples(cls):\n        yield Sample({operands})"
        )

    def test_what_an_op_does_not_take_it_refuses_with_a_typed_error(self, op: type[Op]) -> None:
        tried = programs((op,))
        for program in [*tried, *(v for base in bases(tried) for v in variants(base))]:
            if program.is_static:
                assert_typed_refusal(program)

    @about(lambda program: True)
    def test_prints_and_parses_back(self, program: OpProgram, op_table: dict[str, type[Op]]) -> None:
        text = print_graph(program.graph)
        assert parse_graph(text, op_table) == program.graph, "the text reads back as another program"
        assert print_graph(parse_graph(text, op_table)) == text

    def test_rejection_says_what_it_promised(self, rejected: Case) -> None:
        error = refusal(rejected)
        assert error is not None, f"{rejected} is accepted"
        sample: Any = rejected.sample
        assert isinstance(error, sample.error), f"{rejected} raises {type(error).__name__}: {error.message}"
        assert sample.says in str(error), f"{rejected} says {str(error)!r}, not {sample.says!r}"


def assert_typed_refusal(program: OpProgram) -> None:
    """Require that a call works, or is refused with one of rlx's errors."""
    error = program.failure
    assert error is None or isinstance(error, RlxError), (
        f"{program!r} raises {type(error).__name__}: {error}\ntake it, or refuse it in `infer` with an error of"
        " rlx_core.errors, so that its users read what would work"
    )
