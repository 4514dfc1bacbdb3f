"""Tests and levels of `rlx conform`."""
