"""Files of arrays and programs: readers and writers that believe nothing a file says before it is held against the file.

This layer knows bytes and names. Which reader a file gets is decided by its suffix, through the plugin hooks
`rlx_importers` and `rlx_exporters` (see `rlx_core/files/load_save.py`).
"""
