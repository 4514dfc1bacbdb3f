"""Checks of `rlx check` and `rlx doctor`."""
