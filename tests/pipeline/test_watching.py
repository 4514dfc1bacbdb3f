"""What is seen of a compilation while it runs: log records, a line at a terminal, files of every level."""

import io
import logging
import os
import subprocess
import sys
import threading
import time

import pytest

from rlx_core.errors import FileError
from rlx_core.ir.graph import Builder, building
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp
from rlx_core.ops.blocks import linear
from rlx_core.pipeline.compile import compile_graph
from rlx_core.system import progress as progress_module
from rlx_core.system.logs import LOGGED
from rlx_core.system.progress import Phase, progress

FRESH = {"cache": {"disk": False}}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def program(name="small"):
    b = Builder(name)
    x, w = b.input("x", spec("f32[2, 3]")), b.param("w", spec("f32[3, 4]"))
    with building(b):
        y = exp(linear(x, w))
    return b.finish([y])


def test_a_compilation_is_logged_under_rlx_and_each_pass_at_debug(caplog):
    with caplog.at_level(logging.DEBUG, "rlx"):
        compile_graph(program(), target="cpu", config=FRESH)
    said = [(r.name, r.levelname, r.getMessage()) for r in caplog.records if r.name.startswith("rlx.")]
    (end,) = [message for name, level, message in said if (name, level) == ("rlx.compile", "INFO")]
    assert end.startswith("small for cpu: compiled, ")
    assert any(name == "rlx.passes" and "rlx.lower-hir" in message for name, _, message in said)


def test_every_message_is_in_the_words_of_its_events_facts():
    facts = dict.fromkeys(
        ("program", "target", "key", "source", "name", "counts", "sizes", "code", "device", "reason"), "x"
    )
    for _, level, words in LOGGED.values():
        assert words % {**facts, "nodes": 1, "seconds": 1.0}
        assert level in ("DEBUG", "INFO"), "nothing is seen where no handler is installed"


@pytest.mark.medium
def test_nothing_is_installed_and_nothing_is_seen_unless_a_program_asks():
    code = (
        "import logging, rlx_core as rlx, numpy as np\n"
        "rlx.jit(lambda x: x + 1)(np.ones(3))\n"
        "assert not logging.getLogger('rlx').handlers and not logging.getLogger().handlers"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("", "")


def test_what_takes_long_is_said_at_a_terminal_with_its_phase_and_erased(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")  # nothing is shown on a dumb terminal
    monkeypatch.setattr(progress_module, "_EVERY", 0.01)
    phase = Phase()
    with progress("compiling it", phase, patience=0.01):
        phase.now = "rlx.legalize"
        time.sleep(0.2)
    shown = sys.stderr.getvalue()
    assert "compiling it: 0 s, rlx.legalize" in shown
    assert shown.endswith("\r\x1b[2K")


def test_what_is_quick_says_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    compile_graph(program(), target="cpu", config=FRESH)
    with progress("quick"):
        pass
    assert "quick" not in sys.stderr.getvalue()


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_no_thread_is_started_where_there_is_no_terminal(monkeypatch, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(threading.Thread, "start", lambda self: pytest.fail("a thread"))
    with progress("nothing", patience=0.0):
        pass


def test_of_several_at_one_time_one_has_the_line(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")  # nothing is shown on a dumb terminal
    monkeypatch.setattr(progress_module, "_EVERY", 0.01)
    with progress("first", patience=0.01):
        time.sleep(0.1)
        with progress("second", patience=0.01):
            time.sleep(0.1)
    assert "second" not in sys.stderr.getvalue()
    assert not progress_module._owner.locked()


def test_the_dump_has_every_level_of_the_program(tmp_path):
    compile_graph(program("a/b"), target="cpu", config={**FRESH, "printing": {"ir-dump": str(tmp_path / "dump")}})
    found = {path.name: path.read_text() for path in (tmp_path / "dump").iterdir()}
    assert set(found) == {"a_b.hir.txt", "a_b.mir-before.txt", "a_b.mir.txt", "a_b.lir.txt"}
    assert "linear_block" in found["a_b.hir.txt"]
    assert "linear_block" not in found["a_b.mir-before.txt"]
    assert "matmul" in found["a_b.mir-before.txt"]
    assert "step" in found["a_b.lir.txt"]


def test_a_dump_that_cannot_be_written_is_a_typed_error(tmp_path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(FileError, match="ir-dump"):
        compile_graph(program(), target="cpu", config={**FRESH, "printing": {"ir-dump": str(tmp_path / "taken")}})


def test_a_dump_replaces_links_and_follows_none(tmp_path):
    """Anybody who may write to the directory may have put them there."""
    precious, dump = tmp_path / "precious", tmp_path / "dump"
    precious.write_text("mine")
    dump.mkdir()
    for level in ("hir", "mir-before", "mir", "lir"):
        (dump / f"a_b.{level}.txt").symlink_to(precious)
    for _ in range(2):
        compile_graph(program("a/b"), target="cpu", config={**FRESH, "printing": {"ir-dump": str(dump)}})
    assert precious.read_text() == "mine"
    assert not any(path.is_symlink() for path in dump.iterdir())
    assert "step" in (dump / "a_b.lir.txt").read_text()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives links away; run as root for it")
def test_a_dump_is_not_written_through_another_users_link(tmp_path):
    (tmp_path / "aim").mkdir()
    (tmp_path / "dump").symlink_to("aim")
    os.chown(tmp_path / "dump", 12345, 12345, follow_symlinks=False)
    with pytest.raises(FileError, match="is a link that belongs to user 12345"):
        compile_graph(program(), target="cpu", config={**FRESH, "printing": {"ir-dump": str(tmp_path / "dump")}})
    assert not list((tmp_path / "aim").iterdir())


@pytest.mark.medium
def test_importing_kernels_is_not_charged_to_a_pass():
    code = (
        "import rlx_core as rlx\n"
        "report = rlx.compile(lambda x: rlx.softmax(x), rlx.spec('f32[8, 8]'), config={'cache': {'disk': False}}).report\n"
        "slowest = max(report.passes, key=lambda run: run.seconds)\n"
        "assert slowest.seconds < report.seconds['kernels'], (slowest, report.seconds)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
