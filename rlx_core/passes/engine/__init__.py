"""Infrastructure to write, order, run and explain passes; no pass is here, and no op is known by name.

`base.py` and `rules.py` define passes and rules, `apply_rules.py` and `runner.py` run them, and the rest is code that several
passes share: graphs while they change (`splice`, `regroup`, `contraction`, `sweep`), and the target's capabilities before
anything is fused for it (`fusion`). Authors import from `rlx_core.passes.engine.base` and its neighbours, which stay where they
are.
"""

from typing import TYPE_CHECKING

from rlx_core.public import lazy_modules

if TYPE_CHECKING:
    from rlx_core.passes.engine import base, fusion, fusion_report, rules, runner

__all__ = ["base", "fusion", "fusion_report", "rules", "runner"]

if not TYPE_CHECKING:  # a program from a cache runs no pass
    __getattr__, __dir__ = lazy_modules(__name__, __all__)
