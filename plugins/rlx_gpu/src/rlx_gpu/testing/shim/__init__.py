"""GPU languages executed on this machine's processor: CUDA C, HIP and the Metal Shading Language compiled as C++.

The very sources that a GPU gets run here: threads of a group are fibers, so barriers, shared memory and exchanges in
subgroups are real, and the order of threads between them is drawn from a seed. A race shows as other bits; a barrier that not
all threads reach, an access that is not aligned, an overflow of a stack, bytes written beyond a buffer, and a factor that
a tensor core is given before it is ready or changed before it was read are errors.

    dialects    the C++ form of a language: its header, and the functions of its prelude that C++ does not have
    compiler    the available C++ compiler, and its shared objects
    memory      memory between guards
    driver      a device: `rlx_core.device.driver.Driver`
    programs    whole programs on such a device
    *.h         the headers of the sources

It is slow compared with a GPU and as exact as a software GPU; it gives no information on registers, speed, or real compilers.
"""
