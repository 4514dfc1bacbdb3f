"""The interface of rewrite rules, for authors: a left side, a right side, and their licence. (`engine/rules.py`)"""

from __future__ import annotations

from rlx_core.passes.engine.rules import (
    Accepts,
    Declined,
    Left,
    Match,
    Predicate,
    RewriteRule,
    RuleSet,
    predicate,
    rewrite,
    ruleset,
)

__all__ = [
    "Accepts",
    "Declined",
    "Left",
    "Match",
    "Predicate",
    "RewriteRule",
    "RuleSet",
    "predicate",
    "rewrite",
    "ruleset",
]
