"""Running a plan natively: its steps linked and called (`steps`, `program`), by several threads (`pool`), from Python (`entry`).

`work` estimates how long steps take, `interpreter` is what native code may count on in this Python, and `result_memory` is the
allocator of large results.
"""
