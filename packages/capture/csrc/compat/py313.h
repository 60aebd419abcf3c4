/* CPython 3.13: the evaluation function clears and pops the frame, also one it did not run. */
#ifndef FLAMBEAU_PY313_H
#define FLAMBEAU_PY313_H

static inline PyCodeObject *
frame_code(const struct _PyInterpreterFrame *frame)
{
    return (PyCodeObject *)frame->f_executable;
}

#include "since_313.h"
#include "until_313.h"
#include "since_312.h"
#include "py312_313.h"

#endif
