"""Devices that CuPy drives, whatever it is built on: memory of its pool, its current stream as the queue, arguments packed once.

Nothing here imports CuPy. A plug-in does, and hands the module over; it says besides what compiles its language, and how the
platform differs from others (`rlx_core.device.cupy.driver`).
"""
