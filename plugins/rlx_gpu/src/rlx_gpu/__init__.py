"""The library that GPU targets of rlx share: languages and their printers, kernel rows, drivers, and a stand-in for tests.

    codegen           problems as source of GPU languages: descriptions of languages, templates of kernels, schedules
    language          such a language as the language of a device of `rlx_core.emit`
    rows              the rows of the kernel table that every GPU language has
    backend           `GpuBackend`, the backend of a target whose devices take one of the languages
    cupy              devices driven by CuPy
    runtime_compiler  compilers with the interface of NVRTC
    testing           C-like languages executed on the CPU
    kit               the public names for packages that add a language or a target

It registers no plugin. `rlx_core` does not import it.
"""
