"""Float32 device functions and reductions for Triton kernels: what the modules here define.

Everything here runs under Triton's interpreter as well as on the device: no call of a vendor
library, and a plain form of each machine instruction. Accuracy (float32, against mpmath) is stated
at each function and tested; float64 goes through the same formulas.
"""

from flambeau_inductor.runtime.device_functions.float32.exponentials import *
from flambeau_inductor.runtime.device_functions.float32.instructions import *
from flambeau_inductor.runtime.device_functions.float32.integers import *
from flambeau_inductor.runtime.device_functions.float32.packed import *
from flambeau_inductor.runtime.device_functions.float32.reductions import *
from flambeau_inductor.runtime.device_functions.float32.rounding import *
