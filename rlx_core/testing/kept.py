"""Programs in files: the text of a graph, and the arrays that it failed on as comments below it.

The whole file is read by the parser of graphs like any other; lines that begin with `# fed` or `# donated` are the arrays, as
base64 of their little-endian elements, and the inputs that were given away.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path

import numpy as np

from rlx_core.ir.graph import Graph
from rlx_core.ir.parse import parse_graph
from rlx_core.ir.text import print_graph
from rlx_core.ir.types import spec
from rlx_core.ops import standard_ops
from rlx_core.testing.generate import Generated

_FED = re.compile(r"# fed (\S+) (\S+\[.*?\]) (\S*)")
_DONATED = re.compile(r"# donated (\S+) -> (\S+)")


def text_of(program: Generated, why: str) -> str:
    """A program with its arrays, as a text that `read_case` reads."""
    types = {**program.graph.input_types, **program.graph.param_types}
    lines = [f"# {line}" for line in why.splitlines()]
    lines.append(print_graph(program.graph).rstrip("\n"))
    for name, array in program.fed.items():
        if name in types:
            little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
            lines.append(f"# fed {name} {types[name]} {base64.b64encode(little.tobytes()).decode()}")
    lines += [f"# donated {name} -> {index}" for name, index in program.donations.items()]
    return "\n".join(lines) + "\n"


def write_case(directory: Path, name: str, program: Generated, why: str) -> Path:
    """Keep a program; the tests run whatever lies in `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.rlx.txt"
    path.write_text(text_of(program, why))
    return path


def read_case(path: Path) -> Generated:
    """A program that was kept."""
    text = path.read_text()
    graph: Graph = parse_graph(text, {op.name: op for op in standard_ops()})
    fed = {}
    for name, kind, data in _FED.findall(text):
        type = spec(kind)
        raw = np.frombuffer(base64.b64decode(data), np.uint8)
        fed[name] = raw.view(type.dtype.numpy.newbyteorder("<")).astype(type.dtype.numpy).reshape(type.static_shape)
    donations = {name: None if index == "None" else int(index) for name, index in _DONATED.findall(text)}
    return Generated(graph, fed, donations)
