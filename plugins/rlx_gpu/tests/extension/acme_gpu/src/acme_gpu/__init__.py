"""A GPU language and its target, added to rlx by a package that uses only public names of `rlx_core` and `rlx_gpu`."""
