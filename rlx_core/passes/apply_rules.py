"""Rule sets applied, for authors who try theirs. (`engine/apply_rules.py`)"""

from __future__ import annotations

from rlx_core.passes.engine.apply_rules import ROUNDS, apply_rules, explain, pass_of

__all__ = ["ROUNDS", "apply_rules", "explain", "pass_of"]
