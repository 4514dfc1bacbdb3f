"""Losses, grouped by the kind of targets; `rlx_core.nn` exports all of them."""
