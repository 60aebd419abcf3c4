/* CPython 3.11: the caller of the evaluation function clears and pops the frame. */
#ifndef FLAMBEAU_PY311_H
#define FLAMBEAU_PY311_H

#include "until_312.h"
#include "until_313.h"

static inline PyFunctionObject *
frame_func(const struct _PyInterpreterFrame *frame)
{
    return frame->f_func;
}

static inline PyObject *
class_dict(PyTypeObject *type)
{
    return Py_XNewRef(type->tp_dict);
}

static inline void
frame_discard(PyThreadState *Py_UNUSED(tstate), struct _PyInterpreterFrame *Py_UNUSED(frame))
{
}

/* Calls are counted once, against sys.getrecursionlimit(): there is nothing to hand back. */
static inline int
recursion_refund(PyThreadState *Py_UNUSED(tstate), int Py_UNUSED(units))
{
    return 0;
}

#endif
