"""Ops that decide how a part of a program is differentiated: by its author's rule, or by computing it again."""
