"""Errors: how they are put into lines, and that the page of each class tells the truth."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import errors, nn
from rlx_core.errors import Fact, RlxError, ShapeError, UnknownNameError, nearest

pytestmark = pytest.mark.every_case

CLASSES = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, RlxError)]

# What packages of this repository add, where they are there; a page without a program has its reason here.
PACKAGES = [name for name in ("rlx_custom_ops.errors",) if importlib.util.find_spec(name.partition(".")[0])]
WITHOUT_A_PROGRAM = {"NoConvergenceError"}  # no matrix is known on which this LAPACK does not converge


def added() -> list[type[RlxError]]:
    modules = [importlib.import_module(name) for name in PACKAGES]
    classes = [c for m in modules for c in vars(m).values() if isinstance(c, type) and c.__module__ == m.__name__]
    return [c for c in classes if issubclass(c, RlxError) and c.__name__ not in WITHOUT_A_PROGRAM]


# ------------------------------------------------------------------------------------------------- the pages


class FirstLines(doctest.OutputChecker):
    """Of an error, a page shows the class as it is written in a program, and the first line of the message."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        if raised := re.match(r"rlx_\w+\.errors\.(\w+Error: .*)", got):
            got = raised[1] + "\n"
        return super().check_output(want, got, optionflags)


def programs(error: type[RlxError]) -> Iterator[doctest.DocTest]:
    names = {"np": np, "rlx": rlx, "nn": nn}
    return iter(doctest.DocTestFinder(recurse=False).find(error, error.__name__, module=False, globs=names))


@pytest.mark.parametrize("error", [*CLASSES, *added()], ids=lambda c: c.__name__)
class TestEveryPage:
    def test_its_programs_do_what_it_says(self, error: type[RlxError]) -> None:
        runner = doctest.DocTestRunner(FirstLines(), optionflags=doctest.ELLIPSIS)
        report: list[str] = []
        for program in programs(error):
            runner.run(program, out=report.append)
        assert runner.summarize(verbose=False).failed == 0, "".join(report)

    def test_one_program_raises_it_and_a_later_one_works(self, error: type[RlxError]) -> None:
        examples = [example for program in programs(error) for example in program.examples]
        raising = [i for i, example in enumerate(examples) if example.exc_msg is not None]
        if error.__name__ in ("RlxError", "LinearAlgebraError"):  # raised only as one of their subclasses
            assert examples
            return
        assert [examples[i].exc_msg.startswith(f"{error.__name__}: ") for i in raising] == [True]
        assert any(example.want and example.exc_msg is None for example in examples[raising[0] + 1 :])

    def test_it_begins_with_one_sentence_and_says_why(self, error: type[RlxError]) -> None:
        first, blank, reason = inspect.getdoc(error).split("\n")[:3]
        assert first.endswith(".")
        assert (blank, reason.startswith(">>>")) == ("", False)

    def test_it_fits_a_terminal(self, error: type[RlxError]) -> None:
        rest = inspect.getdoc(error).split("\n")[1:]
        assert [line for line in rest if len(line) > 80] == []


@pytest.mark.parametrize("error", CLASSES, ids=lambda c: c.__name__)
def test_a_class_is_known_by_where_it_is_imported_from(error: type[RlxError]) -> None:
    assert error.__module__ == "rlx_core.errors"


@pytest.mark.parametrize("error", [c for c in CLASSES if c is not RlxError], ids=lambda c: c.__name__)
def test_a_class_is_a_builtin_kind_too(error: type[RlxError]) -> None:
    builtin = [base for base in error.__mro__ if base.__module__ == "builtins"]
    assert set(builtin) > {Exception, BaseException, object}


# ------------------------------------------------------------------------------------------------ formatting


def test_an_error_is_its_message_then_its_facts_in_columns_then_the_hint_and_the_page() -> None:
    error = ShapeError(
        "matmul: contracted dims differ (64 != 32)",
        Fact("a", "f32[8, 64]", "model.py:41"),
        Fact("weight", "f32[32, 64]", "model.py:12"),
        Fact("pass", "rlx.cse"),
        hint="b looks transposed",
    )
    assert str(error).split("\n") == [
        "matmul: contracted dims differ (64 != 32)",
        "  a       f32[8, 64]   model.py:41",
        "  weight  f32[32, 64]  model.py:12",
        "  pass    rlx.cse",
        "  hint    b looks transposed",
        "  more    rlx explain shape",
    ]


def test_without_facts_or_a_hint_there_is_the_message_and_the_page() -> None:
    assert str(ShapeError("sum: no")) == "sum: no\n  more  rlx explain shape"


def test_a_long_finding_does_not_push_the_places_of_the_others_away() -> None:
    """48 characters are a column; what is longer sticks out of it alone."""
    lines = str(RlxError("x", Fact("a", "y" * 70, "here"), Fact("b", "z", "there"))).split("\n")
    assert lines[1:3] == [f"  a     {'y' * 70}  here", f"  b     {'z':<48}  there"]


def test_findings_and_places_may_be_any_object() -> None:
    error = RlxError("x", Fact("type", rlx.spec("f32[4]"), 3))
    assert str(error).split("\n")[1] == "  type  f32[4]  3"
    assert repr(error.facts) == "[Fact('type', 'f32[4]', 3)]"


def test_an_error_keeps_its_parts_and_takes_facts_from_outer_layers() -> None:
    inner = ShapeError("sum: no", Fact("a", 1), hint="try")
    outer = inner.with_fact(Fact("file", "model.rlx"), Fact("pass", "rlx.cse"))
    assert outer is inner
    assert (inner.message, [f.label for f in inner.facts], inner.hint) == ("sum: no", ["a", "file", "pass"], "try")
    assert "  file  model.rlx" in str(inner)


def test_two_errors_never_share_facts() -> None:
    shared = [Fact("a", 1)]
    first, second = RlxError("x", *shared), RlxError("y", *shared)
    first.with_fact(Fact("b", 2))
    assert [f.label for f in second.facts] == ["a"]


def test_a_key_error_prints_its_lines_and_not_their_repr() -> None:
    """`KeyError` alone would print the quoted message on one line."""
    assert str(UnknownNameError("op: no", Fact("a", 1))).startswith("op: no\n  a")


@pytest.mark.parametrize(
    ("error", "page"),
    [(RlxError, "error"), (ShapeError, "shape"), (errors.IndexRangeError, "index-range")],
)
def test_the_page_of_a_class_is_its_name_in_words(error: type[RlxError], page: str) -> None:
    assert error.page == page


@pytest.mark.parametrize(
    ("name", "hint"), [("sotfmax", "did you mean `softmax`?"), ("quantize", None), ("exp", "did you mean `exp`?")]
)
def test_the_nearest_name_is_hinted_only_if_it_is_near(name: str, hint: str | None) -> None:
    assert nearest(name, iter(["softmax", "exp"])) == hint


def test_importing_the_errors_imports_nothing_else_of_rlx() -> None:
    code = "import sys, rlx_core.errors; print([m for m in ('numpy', 'attrs', 'rlx_core.ir') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
