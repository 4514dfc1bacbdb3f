"""GPU languages executed on this machine's processor: CUDA C, HIP and the Metal Shading Language compiled as C++.

The very sources that a GPU gets run here: threads of a group are fibers, so barriers, shared memory and exchanges in
subgroups are real, and the order of threads between them is drawn from a seed. A race shows as other bits; a barrier that not
all threads reach, an access that is not aligned, an overflow of a stack, bytes written beyond a buffer, and a factor that
a tensor core is given before it is ready or changed before it was read are errors.

    dialects    what stands for a language: which header, which functions of its prelude C++ has not
    compiler    the C++ compiler that there is, and what it makes
    memory      memory between guards
    driver      a device: `rlx_core.device.driver.Driver`
    programs    whole programs on such a device
    *.h         what the sources are compiled with

It is slow beside a GPU and exact beside one in software; it says nothing of registers, speed, or what a real compiler does.
"""
