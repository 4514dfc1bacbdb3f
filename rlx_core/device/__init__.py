"""Devices with memory of their own: what a driver is to rlx, the memory that programs share, and the arrays that lie in it.

A plug-in brings a `Driver` for one device, a few calls each; everything that is the same for all devices is here (`pool`,
`device`, `array`) and in `rlx_core.emit`, which makes programs of them. The core imports nothing of a driver's library.
"""
