"""From a plan to launches on a device: the functions of each step, the modules that contain them, and the runs.

Everything here applies to any device with separate memory. The differences are in a `Language`, which prints functions, and a
`Driver` (`rlx_core.device.driver`), which builds and launches them; a plug-in brings both.
"""
