"""Files of arrays and programs: readers and writers that verify every header field against the file before they use it.

This layer handles bytes and names. The suffix of a file selects its reader through the plugin hooks
`rlx_importers` and `rlx_exporters` (see `rlx_core/files/load_save.py`).
"""
