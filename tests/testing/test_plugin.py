"""The laws as a third party runs them: what the options choose, what is tried of it, and what is said in the end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from seeded.seeds import Blend, Square

from rlx_core.ops import standard_ops
from rlx_core.ops.families import Family
from rlx_core.ops.samples import Sample
from rlx_core.testing.about import about, runs
from rlx_core.testing.cases import OpProgram, programs
from rlx_core.testing.choice import tried
from rlx_core.testing.laws import EveryOp
from rlx_core.testing.subjects import Subjects, select
from rlx_core.testing.targets import TargetRun
from rlx_core.testing.variants import accepted, bases, variants

ROOT = Path(__file__).parents[2]

OPS = '''
import numpy as np
from rlx_core.ir.op import Op, define_op
from rlx_core.ops.samples import Sample
from rlx_core.ops.arithmetic import multiply

@define_op(domain="acme")
class Cube(Op):
    """x³."""

    def decompose(self, x):
        return multiply(x, multiply(x, x))

    @classmethod
    def samples(cls):
        yield Sample("f32[3]")

OPS = (Cube,)

def run(graph, arrays):
    return [np.asarray(a, graph.outputs[0].dtype.numpy) ** 3 for a in arrays]
'''

RULER = """
from rlx_core.contributions import KernelSpec, RuleSpec
from rlx_core.hooks import hookimpl
from rlx_core.ops import exp, where

def half(op, g, x, *, y):
    return (where(x > 0, g, g * exp(x / op.alpha)) * 0.5,)

@hookimpl
def rlx_rules():
    return [RuleSpec("rlx.celu", "vjp", half)]
"""


def laws(folder: Path, *options: str, workers: bool = False) -> subprocess.CompletedProcess[str]:
    """A run of pytest over the laws, in a process of its own."""
    plugins = ["-p", "rlx_core.testing.plugin", "-p", "no:cacheprovider", *(["-n", "1"] if workers else [])]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, "--pyargs", "rlx_core.testing", *options],
        cwd=folder,
        env={"PYTHONPATH": f"{ROOT}:{folder}", "PATH": "", "RLX_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.medium
def test_a_third_party_runs_the_laws_over_its_own_ops_and_backend(tmp_path: Path) -> None:
    (tmp_path / "acme_ops.py").write_text(OPS)
    ran = laws(tmp_path, "--rlx-plugin=acme_ops", "--rlx-backend=acme_ops:run")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout
    assert "acme.cube: " in ran.stdout
    assert "1 sample" in ran.stdout


@pytest.mark.slow
def test_a_plugin_of_rules_alone_is_tried_and_the_summary_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "ruler.py").write_text(RULER)
    ran = laws(tmp_path, "--rlx-plugin=ruler", "--rlx-samples=one", workers=True)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    summary = ran.stdout.partition("the laws of rlx")[2]
    assert "vjp of rlx.celu: " in summary
    assert "vjp_agrees_with_finite_differences (1×): the derivative with respect to x is" in summary


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--rlx-plugin=acmee", "there is no plugin 'acmee', and no module 'acmee'"),
        ("--rlx-backend=nowhere", "nowhere: no plugin provides this target"),
        ("--rlx-backend=nowhere:run", "--rlx-backend nowhere:run: No module named 'nowhere'"),
    ],
)
@pytest.mark.slow
def test_a_misspelt_name_is_one_usage_error(tmp_path: Path, option: str, says: str) -> None:
    ran = laws(tmp_path, option)
    assert ran.returncode == pytest.ExitCode.USAGE_ERROR
    assert ran.stderr.count(says) == 1
    assert "no tests ran" in ran.stdout


def test_a_backend_that_computes_something_else_is_caught() -> None:
    def run(graph, arrays):
        return [(np.asarray(arrays[0]) ** 2 * (1 + 1e-3)).astype(np.float32)]

    (program,) = programs((Square,))
    with pytest.raises(AssertionError, match="differs from the float64 oracle"):
        EveryOp().test_backend_agrees_with_the_interpreter(program, run)


def test_a_target_whose_second_run_has_other_bits_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    class Drifting:
        """Adds a bit more in each run."""

        def __init__(self, program: object) -> None:
            self.runs = 0
            self.report = SimpleNamespace(kernels=())

        def run(self, given: dict[str, np.ndarray]) -> list[np.ndarray]:
            self.runs += 1
            return [np.square(given["x"]) * np.float32(1 + self.runs * 2.0**-23)]

    monkeypatch.setattr("rlx_core.testing.targets.compile_graph", lambda graph, target: graph)
    monkeypatch.setattr("rlx_core.testing.targets.Executable", Drifting)
    (program,) = programs((Square,))
    with pytest.raises(AssertionError, match="output 0 has other bits in a second run on acme"):
        EveryOp().test_backend_agrees_with_the_interpreter(program, TargetRun("acme"))


def test_ops_are_chosen_by_name_with_or_without_their_domain() -> None:
    subjects = Subjects(ops=tuple(Family("arithmetic")))
    assert select(subjects, ["add"]) == select(subjects, ["rlx.add"])
    with pytest.raises(KeyError, match="did you mean `add`"):
        select(subjects, ["ad"])


# ----------------------------------------------------------------------------------- what a law tries


@about(runs, variants=["dtype", "rank"])
def of_dtypes_and_ranks(program: OpProgram) -> None: ...


@about(runs, widens=True)
def of_float64(program: OpProgram) -> None: ...


def test_variants_are_what_the_op_takes_and_the_author_did_not_write() -> None:
    (program,) = programs((Blend,))
    found = {str(v.varied) for v in variants(program)}
    taken = {str(v.varied) for v in accepted(program)}
    assert {"(f16)", "(c64)", "(3 → 0)", "(rank + 1)", "(operand 1 of fewer axes)"} <= found
    assert "(f32)" not in found
    assert found - taken == {"(c64)", "(c128)", "(i32)", "(i64)", "(u8)", "(bool)"}


def test_all_is_every_sample_and_the_variants_that_matter_to_the_law() -> None:
    found = tried(programs((Blend,)), of_dtypes_and_ranks.about, "of_dtypes_and_ranks", "all")
    assert [p.variation for p in found] == [None, "dtype", "dtype", "dtype", "rank", "rank"]


def test_a_law_that_widens_tries_one_of_the_programs_that_are_then_equal() -> None:
    of_sum = programs((select(Subjects(ops=standard_ops()), ["add"]).ops[0],))
    found = tried(of_sum, of_float64.about, "of_float64", "all")
    floats = [p for p in found if p.node.types[0].dtype.is_float]
    assert len({p.widened_key for p in found}) == len(found) < len(of_sum)
    assert len(floats) < len([p for p in of_sum if p.node.types[0].dtype.is_float])


def test_one_is_another_sample_for_each_law_and_the_same_in_every_run() -> None:
    of_exp = programs((select(Subjects(ops=standard_ops()), ["exp"]).ops[0],))
    names = [f"law_{i}" for i in range(40)]
    chosen = [tried(of_exp, of_dtypes_and_ranks.about, name, "one") for name in names]
    assert all(len(each) == 1 for each in chosen)
    assert chosen == [tried(of_exp, of_dtypes_and_ranks.about, name, "one") for name in names]
    assert {each[0] for each in chosen} >= set(of_exp)


@pytest.mark.slow
def test_another_seed_is_another_sample_and_the_report_says_which(tmp_path: Path) -> None:
    def of(seed: int) -> str:
        ran = laws(tmp_path, "--rlx-op=exp", "--rlx-samples=one", f"--rlx-seed={seed}", "--collect-only")
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert f"these are the samples and cases of --rlx-seed={seed}" in ran.stdout
        return "\n".join(line for line in ran.stdout.splitlines() if "::" in line)

    assert of(7) == of(7)
    assert of(7) != of(8)


def test_every_op_is_varied_from_each_way_of_calling_it() -> None:
    class Twice(Square):
        @classmethod
        def samples(cls):
            yield Sample("f32[3]")
            yield Sample("f32[4]")

    assert [str(p) for p in bases(programs((Twice,)))] == [str(programs((Twice,))[0])]


@pytest.mark.medium
def test_files_that_are_skipped_whole_are_none_of_the_laws(tmp_path: Path) -> None:
    (tmp_path / "test_absent.py").write_text("import pytest\npytest.skip('absent', allow_module_level=True)\n")
    (tmp_path / "test_there.py").write_text("def test_it(): pass\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 1 skipped" in done.stdout
