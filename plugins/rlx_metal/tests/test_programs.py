"""Programs in the Metal Shading Language, on the processor in place of a GPU: the numbers, faults, the cache of binaries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import DtypeError, RlxError
from rlx_core.plugins import PluginHost

X = np.linspace(-2, 2, 48, dtype=np.float32).reshape(6, 8)


def on(host: PluginHost, function: Any, **options: Any) -> Any:
    return rlx.jit(function, target="metal", host=host, **options)


def test_numbers_that_the_device_has_not_are_refused_by_name(host: PluginHost) -> None:
    with pytest.raises(DtypeError, match="the device has no f64"):
        rlx.device_put(X.astype(np.float64), "metal:0", host=host)
    with pytest.raises(RlxError, match="f64"):
        on(host, lambda x: x + x)(X.astype(np.float64))


@pytest.mark.medium
def test_more_operands_than_a_kernel_may_have_are_several_kernels(host: PluginHost) -> None:
    """Metal passes at most 31 arguments."""
    many = [np.full(4, i, np.float32) for i in range(40)]
    f = on(host, lambda *xs: sum(xs[1:], xs[0]))
    assert f(*many).tolist() == [780.0] * 4
    assert len(f.executables[0].lir.steps) > 1


SECOND = """
import json, time
import numpy as np, rlx_core as rlx
from rlx_core.plugins import PluginHost, default_host
from rlx_core.plugins.entry import given_entry
import rlx_metal.plugin
known = default_host()
host = known if any(e.name == "metal" for e in known.entries) else PluginHost([*known.entries, given_entry(rlx_metal.plugin)])
f = rlx.jit(lambda x: rlx.sum(rlx.exp(x) * rlx.tanh(x), axis=1) / 7, target="metal", host=host)
f(np.ones((6, 40), np.float32))
print(json.dumps(f.executables[0].report.code))
"""


@pytest.mark.slow
def test_a_second_process_builds_nothing(host: PluginHost, tmp_path: Path) -> None:
    own = {**os.environ, "RLX_CACHE_DIR": str(tmp_path)}
    found = [
        json.loads(
            subprocess.run([sys.executable, "-c", SECOND], capture_output=True, text=True, check=True, env=own).stdout
        )
        for _ in range(2)
    ]
    assert found == ["compiled", "cached"]
