"""Devices driven by CuPy, on CUDA or HIP: memory from its pool, its current stream as the queue, launch arguments packed once.

Nothing here imports CuPy. A plugin does and passes the module in, together with the compiler of its kernel language and the
differences between platforms (`rlx_gpu.cupy.driver`).
"""
