"""Packages, `.rlxpack`: a compiled function with its code, to be run where nothing is compiled.

`container` knows bytes and digests, `manifest` what a package says of itself, `packing` writes one and `opening` runs it. What
the code is, and whether it runs here, is a backend's matter (`Backend.pack` and `unpack`).
"""
