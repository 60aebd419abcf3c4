/* CPython 3.12: the evaluation function clears and pops the frame, also one it did not run. */
#ifndef FLAMBEAU_PY312_H
#define FLAMBEAU_PY312_H

#include "until_312.h"
#include "until_313.h"
#include "since_312.h"
#include "py312_313.h"

#endif
