"""What tests of executables are made with."""

from __future__ import annotations

import rlx_core as rlx
from rlx_core.builder import GraphBuilder
from rlx_core.runtime.executable import Executable


def executable_of(build, donations=None, **config) -> Executable:
    g = GraphBuilder("model")
    outputs = build(g)
    g.set_outputs(*(outputs if isinstance(outputs, tuple) else (outputs,)))
    return rlx.Session(config=config).compile(g.build(), donations=donations)


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array
