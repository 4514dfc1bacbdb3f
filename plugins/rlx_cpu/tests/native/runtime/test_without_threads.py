"""A process that may have no more threads compiles, runs, saves and loads on the one that it has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of threads are Linux's")

# Limits do not hold for root: the process becomes another user's, which may read and write what root may and nothing else.
LIMITED = """
import ctypes, os, platform, resource, struct, threading
if os.getuid() == 0:
    libc, owns, reads = ctypes.CDLL(None, use_errno=True), 1 << 1, 1 << 2
    libc.prctl(8, 1, 0, 0, 0)  # PR_SET_KEEPCAPS
    os.setgid(65534)
    os.setuid(65534)
    number = {"x86_64": 126, "aarch64": 91}[platform.machine()]  # capset
    kept = owns | reads
    header, data = struct.pack("<Ii", 0x20080522, 0), struct.pack("<6I", kept, kept, 0, 0, 0, 0)
    if libc.syscall(number, header, data) != 0:
        raise SystemExit(77)
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
try:
    threading.Thread(target=int).start()
except RuntimeError:
    pass
else:
    raise SystemExit(77)
"""

PATCHED = """
import _thread, threading
def refused(*args):
    raise RuntimeError("can't start new thread")
_thread.start_new_thread = threading._start_new_thread = refused
"""

PROGRAM = """
import sys
import numpy as np
import rlx_core as rlx

x = np.linspace(-1, 1, 512 * 512, dtype=np.float32).reshape(512, 512)
expected = np.tanh(x @ x) + x
for _ in range(3):
    np.testing.assert_allclose(rlx.jit(lambda a: rlx.tanh(a @ a) + a)(x), expected, rtol=1e-4, atol=1e-4)
large = np.ones((4000, 1000), np.float32)
np.testing.assert_allclose(rlx.jit(lambda a: rlx.sum(a * a))(large), 4_000_000)
assert rlx.jit(rlx.grad(lambda a: rlx.sum(rlx.tanh(a @ a))))(x).shape == x.shape
product = rlx.compile(lambda w, a: w["w"] @ a, {"w": np.ones((1500, 1500), np.float32)}, rlx.spec("f32[1500, 5]"))
rlx.package(product, "m.rlxpack")
rlx.save("m.rlx", product)
for name in ("m.rlxpack", "m.rlx"):
    np.testing.assert_allclose(rlx.load(name)(np.ones((1500, 5), np.float32)), 1500)
"""


@pytest.mark.medium
@pytest.mark.parametrize("way", [LIMITED, PATCHED], ids=["limited", "refused"])
def test_everything_runs_on_one_thread(way: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    tmp_path.chmod(0o777)
    if os.getuid() == 0 and way is LIMITED:
        os.chown(cache, 65534, 65534)
    # OpenBLAS interrupts a process that cannot have its threads when NumPy is imported: it is told to use none.
    found = subprocess.run(
        [sys.executable, "-c", way + PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "RLX_CACHE_DIR": str(cache), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if found.returncode == 77:
        pytest.skip("RLIMIT_NPROC has no effect in this container; the same program runs with threads refused")
    assert found.returncode == 0, found.stderr[-2000:]
