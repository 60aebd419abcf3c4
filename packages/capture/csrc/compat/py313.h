/* CPython 3.13: the evaluation function clears and pops the frame, also one it did not run. */
#ifndef FLAMBEAU_PY313_H
#define FLAMBEAU_PY313_H

static inline PyCodeObject *
frame_code(const struct _PyInterpreterFrame *frame)
{
    return (PyCodeObject *)frame->f_executable;
}

static inline PyObject *
weak_target(PyObject *reference)
{
    PyObject *target = NULL;
    return PyWeakref_GetRef(reference, &target) == 1 ? target : NULL;
}

static inline int
lookup_attr(PyObject *object, PyObject *name, PyObject **value)
{
    return PyObject_GetOptionalAttr(object, name, value);
}

/* A store to an attribute that lies in the object itself leaves the tag of its dict as it was. */
static inline int
dict_tag_is_kept(PyObject *dict)
{
    PyDictValues *values = ((PyDictObject *)dict)->ma_values;
    return values == NULL || !values->embedded;
}

#include "since_312.h"

#endif
