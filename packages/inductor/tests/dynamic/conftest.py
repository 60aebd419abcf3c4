"""Triton kernels here run under Triton's interpreter; set before anything imports triton."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"
