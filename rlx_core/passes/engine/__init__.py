"""How passes are written, ordered, run and explained; no pass is here, and no op is known by name.

`base.py` and `rules.py` say what a pass and a rule are, `apply_rules.py` and `runner.py` run them, and the rest is what several
passes share: graphs while they change (`splice`, `regroup`, `contraction`, `sweep`), and what a target must have before anything
is fused for it (`fusion`). Authors import from `rlx_core.passes.engine.base` and its neighbours, which stay where they are.
"""
