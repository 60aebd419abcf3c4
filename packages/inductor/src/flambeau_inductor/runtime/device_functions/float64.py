"""Float64 device functions for Triton kernels, with eager's results.

In: Triton tensors of float64. Out: the same shape. Invariant: on the device they are the vendor
library's; under Triton's interpreter, which has no library, the formulas of `float32` and
`special`, most of which are made for float32.
"""

from __future__ import annotations

from triton.language.extra.cuda import libdevice

from flambeau_inductor.runtime.device_functions import float32 as fm
from flambeau_inductor.runtime.device_functions import special as sf

LIBRARY = fm.DEVICE.value

expm1 = libdevice.expm1 if LIBRARY else fm.expm1
log1p = libdevice.log1p if LIBRARY else fm.log1p
tan = libdevice.tan if LIBRARY else fm.tan
asin = libdevice.asin if LIBRARY else fm.asin
acos = libdevice.acos if LIBRARY else fm.acos
atan = libdevice.atan if LIBRARY else fm.atan
sinh = libdevice.sinh if LIBRARY else fm.sinh
cosh = libdevice.cosh if LIBRARY else fm.cosh
tanh = libdevice.tanh if LIBRARY else fm.tanh_double
asinh = libdevice.asinh if LIBRARY else fm.asinh
acosh = libdevice.acosh if LIBRARY else fm.acosh
atanh = libdevice.atanh if LIBRARY else fm.atanh
erfc = libdevice.erfc if LIBRARY else sf.erfc
erfinv = libdevice.erfinv if LIBRARY else sf.erfinv
lgamma = libdevice.lgamma if LIBRARY else sf.lgamma
pow = libdevice.pow if LIBRARY else fm.pow
atan2 = libdevice.atan2 if LIBRARY else fm.atan2
