"""From a plan to launches on a device: which function a step calls, the modules they are built in, and the runs.

Everything here holds for any device with memory of its own. What differs is a `Language`, which prints functions, and a
`Driver` (`rlx_core.device.driver`), which builds and launches them; a plug-in brings both.
"""
