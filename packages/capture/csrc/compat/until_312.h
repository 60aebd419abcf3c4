/* CPython 3.11 and 3.12. */
#ifndef FLAMBEAU_UNTIL_312_H
#define FLAMBEAU_UNTIL_312_H

static inline PyCodeObject *
frame_code(const struct _PyInterpreterFrame *frame)
{
    return frame->f_code;
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
dict_is_of_object(PyObject *Py_UNUSED(dict))
{
    return 0;
}

#endif
