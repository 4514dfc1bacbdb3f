"""Rules checked against the reference interpreter, for authors who try theirs. (`engine/rule_checks.py`)"""

from __future__ import annotations

from rlx_core.passes.engine.rule_checks import Checked, check_rule

__all__ = ["Checked", "check_rule"]
