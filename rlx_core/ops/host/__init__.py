"""Ops that call Python functions while a program runs."""
