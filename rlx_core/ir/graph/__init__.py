"""Graphs: nodes in topological order, values that name their results, and the builder that makes them.

HIR and MIR share this structure: a HIR graph is one in which some ops are blocks. The modules are the leaves of a graph
(`leaves`), nodes and values (`values`), the finished graph (`program`) and how one is made (`builder`).
"""

import typing

from rlx_core import public
from rlx_core.ir.graph.array_methods import *
from rlx_core.ir.graph.builder import *
from rlx_core.ir.graph.builder import is_hashable as is_hashable
from rlx_core.ir.graph.elements import leaked as leaked
from rlx_core.ir.graph.elements import refused_ufunc as refused_ufunc
from rlx_core.ir.graph.leaves import *
from rlx_core.ir.graph.program import *
from rlx_core.ir.graph.program import MOST_NESTED as MOST_NESTED
from rlx_core.ir.graph.program import keep_symbols as keep_symbols
from rlx_core.ir.graph.program import lines_of as lines_of
from rlx_core.ir.graph.values import *

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__, __getattr__ = public.reexports(__name__)
