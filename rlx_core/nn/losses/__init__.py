"""Losses, by what the targets are; `rlx_core.nn` offers them all."""
