"""Devices with separate memory: the driver interface, the memory pool that programs share, and arrays in device memory.

A plugin implements a `Driver` with a few methods for one device; everything that is the same for all devices is here (`pool`,
`device`, `array`) and in `rlx_core.emit`, which makes programs of them. The core imports nothing of a driver's library.
"""
