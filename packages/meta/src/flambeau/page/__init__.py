"""Pages: a trace, or an explanation, as one HTML file that works offline."""

from flambeau.page.kernels import kernel_report
from flambeau.page.render import explanation_page, report_page, write_report

__all__ = ["explanation_page", "kernel_report", "report_page", "write_report"]
