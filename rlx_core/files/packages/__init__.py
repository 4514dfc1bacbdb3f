"""Packages, `.rlxpack`: a compiled function with its code, to be run where nothing is compiled.

`container` handles bytes and digests, `manifest` the description of a package, `packing` writes one and `opening` runs it. The
form of the code, and whether it runs here, is up to the backend (`Backend.pack` and `unpack`).
"""
