"""Fusion of several ops into one for targets that have a kernel for it; and its inverse for targets without one."""
