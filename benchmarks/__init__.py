"""Programs timed against their alternatives. `rlx bench` runs them; `README.md` explains how to read the numbers.

A *case* is one program on one set of data, written with rlx in `cases/`; `peers/` has the same program for other systems. This
package is no part of rlx: it lives in a checkout, and peers are used where they are installed.
"""
