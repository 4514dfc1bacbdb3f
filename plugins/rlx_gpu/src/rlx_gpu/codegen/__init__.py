"""Problems as source of GPU languages, and the launches of their functions; no drivers, devices or individual ops.

    languages, registers, c_family, opencl, cuda, metal, wgsl    descriptions of languages, as data; HIP is a variant of CUDA C
    writer, assembler, remainder, scalars                        scalar code as text: the assembler of `codegen.scalars`
    memory, values                                               elements and vectors; the values of a loop kernel at a point
    walks, stages, keeping, reductions, printer, kernels         a loop kernel: mapping of points to threads, then its text
    units                                                        products and attention by matrix units, of NVIDIA and of Apple
    tiles, products, scatter, linear_systems                     problems without loop kernels, or with better blocking
    attention                                                    attention in tiles of scores
    lines                                                        order and running reductions along lines
    functions, sources                                           launches, and modules

Start at `kernels.print_loops`. Decision 0026 explains why there is one printer.
"""
