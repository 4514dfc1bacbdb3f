"""Matrix products: of floats (`gemm`), with the region that follows them (`gemm_epilogue`), of integers (`gemm_integer`).

`gemm_tiles` and `gemm_plan` cut a product up before any code is made; `gemm_driver`, `gemm_item` and `gemm_rows` write the loops
around the inner one (`microkernel`), `packing` what it reads, and `epilogue` what happens to its sums.
"""
