"""The former name of `rlx_gpu.backend`: importing it, or a module of it, is an error with the new name."""

from rlx_core.system.deprecated import moved_module

raise moved_module(__name__, "rlx_gpu.backend", "rlx-gpu")
