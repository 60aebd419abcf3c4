"""HTML pages of traces and explanations, in one file each, offline."""

from flambeau.page.reading import kernel_report
from flambeau.page.render import explanation_page, report_page, write_report

__all__ = ["explanation_page", "kernel_report", "report_page", "write_report"]
