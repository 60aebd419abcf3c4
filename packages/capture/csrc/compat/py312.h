/* CPython 3.12: the evaluation function clears and pops the frame, also one it did not run. */
#ifndef FLAMBEAU_PY312_H
#define FLAMBEAU_PY312_H

static inline PyCodeObject *
frame_code(const struct _PyInterpreterFrame *frame)
{
    return frame->f_code;
}

static inline PyFunctionObject *
frame_func(const struct _PyInterpreterFrame *frame)
{
    return (PyFunctionObject *)frame->f_funcobj;
}

static inline int
frame_is_on_thread(const struct _PyInterpreterFrame *frame)
{
    return frame->owner == FRAME_OWNED_BY_THREAD;
}

static inline int
thread_is_traced(PyThreadState *tstate)
{
    return tstate->c_tracefunc != NULL || tstate->c_profilefunc != NULL;
}

static inline PyObject *
weak_target(PyObject *reference)
{
    PyObject *target = PyWeakref_GET_OBJECT(reference);
    return target == Py_None ? NULL : Py_NewRef(target);
}

static inline int
lookup_attr(PyObject *object, PyObject *name, PyObject **value)
{
    return _PyObject_LookupAttr(object, name, value);
}

static inline int
dict_tag_is_kept(PyObject *Py_UNUSED(dict))
{
    return 1;
}

#include "discard.h"

#endif
