"""Ops that control how a part of a program is differentiated: by a custom rule, or by recomputation."""
