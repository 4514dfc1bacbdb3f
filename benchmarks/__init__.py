"""Programs timed beside what a user would pick instead. `rlx bench` runs them; `README.md` says how to read the numbers.

A *case* is one program on one set of data, written with rlx in `cases/`; `peers/` has the same program for other systems. This
package is no part of rlx: it lives in a checkout, and peers are used where they are installed.
"""
