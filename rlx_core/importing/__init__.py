"""Shared parts of importers: a table of handlers, a walk over nodes, dtypes, symbolic sizes, reports, and host steps.

An importer reads a program of another system and returns an `rlx.Model`, whose function walks that program and calls rlx's
functions. Each importer provides the format: its nodes, the names of its operations, and its handlers. This package provides the
rest and names no system; the modules are imported by the importers that use them, and by nothing else in the core.
"""
