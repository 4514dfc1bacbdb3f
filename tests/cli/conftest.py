"""The command run in this process, on hosts made of plugins that are written into a directory."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from typer.testing import CliRunner

from rlx_core.cli.main import app
from rlx_core.plugins import PluginEntry, PluginHost, journal

HEADER = "from rlx_core.hooks import hookimpl\nfrom rlx_core.contributions import *\n"

OPS = '''
    from rlx_core.ops.activation import exp
    from rlx_core.ir.op import Op, define_op
    from rlx_core.ops.samples import Sample
    from rlx_core.pipeline.backend import Backend, Target
    from rlx_core.pipeline.kernels import KernelTable, condition

    @define_op(domain="acme")
    class Double(Op):
        """x + x.

        Exact in every dtype.
        """

        times: int = 1

        def decompose(self, x):
            return x + x

        @classmethod
        def samples(cls):
            yield Sample("f64[2]")
            yield Sample("f32[4, 8]")

    OPS = [Double]
    kernels = KernelTable("toy", plugin="acme")

    @condition("a last axis of 8")
    def has_eight(node):
        return node.type.shape[-1] == 8

    @kernels.register(Double, dtypes="f32", when=has_eight)
    def double_eight(op, x, *, out, workspace):
        """Eight at a time."""

    @kernels.register(Double, dtypes="f32 f64", when=has_eight)
    def double_any(op, x, *, out, workspace):
        """One at a time."""

    from rlx_core.ops.arithmetic import add

    @kernels.register(add.op)
    def sums(op, a, b, *, out, workspace):
        """a + b."""

    class ToyBackend(Backend):
        @property
        def target(self):
            return Target("toy", kernels)

        def compile(self, lir, target, options):
            raise AssertionError("nothing is compiled here")

        def devices(self):
            return ["a toy"]
'''
ACME = """
    @hookimpl
    def rlx_ops():
        return [OpFamily("acme_things:OPS", names=["acme.double"])]

    @hookimpl
    def rlx_passes():
        return [PassSpec("acme.lost", "acme_things:NoSuchPass", stage="mir")]

    @hookimpl
    def rlx_backends():
        return [BackendSpec("toy", "acme_things:ToyBackend")]
"""

# name -> (source, requirements on rlx-core, state, what the reason says)
BROKEN: dict[str, tuple[str, tuple[str, ...], str, str]] = {
    "raises": ("raise ValueError('half installed')", (), "failed", "ValueError: half installed"),
    "exits": ("import sys; sys.exit(3)", (), "failed", "SystemExit: 3"),
    "lacks": ("import a_library_nobody_has", (), "failed", "ModuleNotFoundError"),
    "unparsable": ("def f(:", (), "failed", "SyntaxError"),
    "newer": ("raise AssertionError('imported')", ("rlx-core>=99",), "incompatible", "needs rlx-core >=99"),
    "misspelt": ("@hookimpl\ndef rlx_opps(): return []", (), "failed", "`rlx_opps` is not a hook"),
    "throws": ("@hookimpl\ndef rlx_ops(): raise KeyError('gone')", (), "failed", "KeyError: 'gone'"),
    "mistyped": ("@hookimpl\ndef rlx_passes(): return 'text'", (), "failed", "returned str, not PassSpec"),
    "thief": ("@hookimpl\ndef rlx_ops(): return [OpSpec('rlx.add', 'math:exp')]", (), "failed", "rlx.add"),
    "nodriver": (
        "@hookimpl\ndef rlx_availability(): return 'no driver'\n"
        "@hookimpl\ndef rlx_backends(): return [BackendSpec('nodriver', 'math:exp')]",
        (),
        "unavailable",
        "no driver",
    ),
}


@frozen
class Ran:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Rlx:
    """The command, with the plugins that were installed and nothing else."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.entries: list[PluginEntry] = []

    def install(self, name: str, source: str, requires: tuple[str, ...] = (), distribution: str = "") -> Path:
        """Write a plugin; it is imported when it is needed, like an installed one."""
        file = self.place / f"{(distribution or name).replace('-', '_')}_plugin.py"
        file.write_text(HEADER + textwrap.dedent(source))
        dist = distribution or f"{name}-rlx"
        self.entries.append(PluginEntry(name, str(file), dist, "1.0", requires, file=str(file)))
        return file

    def __call__(self, *words: str) -> Ran:
        found = CliRunner().invoke(
            app, list(words), prog_name="rlx", obj=lambda policy: PluginHost(self.entries, policy=policy)
        )
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        return Ran(found.exit_code, found.stdout, found.stderr)


@pytest.fixture
def rlx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rlx]:
    """The command in an empty directory, at 80 columns, with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    for variable in ("RLX_PLUGINS_BLOCK", "RLX_PLUGINS_ALLOW", "RLX_TARGET"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(journal, "_known", {})  # failures that other tests of this process caused
    before = set(sys.modules)
    yield Rlx(tmp_path)
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def acme(rlx: Rlx) -> Rlx:
    """The command with one plugin that works: an op, a pass that cannot be imported, a target with kernels."""
    (rlx.place / "acme_things.py").write_text(textwrap.dedent(OPS))
    rlx.install("acme", ACME)
    return rlx


@pytest.fixture
def sound(rlx: Rlx) -> Rlx:
    """The command with a plugin that is in order, whatever is asked of it."""
    things = OPS
    (rlx.place / "acme_things.py").write_text(textwrap.dedent(things))
    rlx.install(
        "acme", ACME.replace('return [PassSpec("acme.lost", "acme_things:NoSuchPass", stage="mir")]', "return []")
    )
    return rlx


@pytest.fixture
def broken(acme: Rlx) -> Rlx:
    """The same, among plugins that are broken in every way there is."""
    for name, (source, requires, _, _) in BROKEN.items():
        acme.install(name, source, requires)
    return acme


@pytest.fixture
def kinds() -> dict[str, tuple[str, tuple[str, ...], str, str]]:
    """The ways in which a plugin can be broken; a fixture, because test modules cannot import one another."""
    return BROKEN


Command = Callable[..., Ran]
