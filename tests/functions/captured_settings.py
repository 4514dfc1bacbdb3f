"""A user's module, whose names the tests of captured values change."""

from __future__ import annotations

import rlx_core as rlx

SCALE = 1.0


def scaled(x):
    return rlx.sum(x) * SCALE
