"""Problems as source of GPU languages, and how the functions are launched; no driver, no device, no op by name.

    languages, registers, c_family, opencl, cuda, metal, wgsl    what a language is, as data; CUDA C is HIP but for intrinsics
    writer, assembler, remainder, scalars                        scalar code as text: the assembler of `codegen.scalars`
    memory, values                                               elements and whole words; the values of a loop kernel at a run
    walks, stages, keeping, reductions, printer, kernels         a loop kernel: who computes which points, then its text
    units                                                        products and attention by matrix units, of NVIDIA and of Apple
    tiles, products, scatter, movement                           what has no loop kernel, or a better cut than one
    attention                                                    attention in tiles of scores
    lines                                                        order and running reductions along lines
    functions, sources, faults                                   launches, modules, and what kernels say of a bad index

Start at `kernels.print_loops`. Decision 0026 says why it is one printer.
"""
