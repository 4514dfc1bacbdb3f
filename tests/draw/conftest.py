"""Pictures and pages are drawn of the graphs that the tests of the IR share."""

from ..ir.conftest import hir, make_everything, rich

__all__ = ["hir", "make_everything", "rich"]
