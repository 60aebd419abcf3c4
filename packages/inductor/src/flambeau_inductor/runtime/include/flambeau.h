// What every unit includes first, which is precompiled by FL_W (kernels/generate.py).
#include "flambeau/vec.h"
#include "flambeau/python.h"
#ifdef FL_W
#include "flambeau/lanes.h"
#endif
