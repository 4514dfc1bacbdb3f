"""What tests of executables are made with."""

from __future__ import annotations

import numpy as np

import rlx_core as rlx
from rlx_core.builder import GraphBuilder
from rlx_core.runtime.executable import Executable


def executable_of(build, donations=None, **config) -> Executable:
    g = GraphBuilder("model")
    outputs = build(g)
    g.set_outputs(*(outputs if isinstance(outputs, tuple) else (outputs,)))
    return rlx.Session(config=config).compile(g.build(), donations=donations)


def address(array):
    """Where the elements of an array begin, without a view of them that lives on."""
    return np.asarray(array).ctypes.data


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array
