"""Matrix products: of floats (`gemm`), with the region that follows them (`gemm_epilogue`), of integers (`gemm_integer`).

`gemm_tiles` and `gemm_plan` choose the blocking before code generation; `gemm_driver`, `gemm_item` and `gemm_rows` write the
loops around the inner one (`microkernel`), `packing` its packed operands, and `epilogue` the operations on its sums.
"""
