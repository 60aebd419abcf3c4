/* CPython 3.13 and 3.14. */
#ifndef FLAMBEAU_SINCE_313_H
#define FLAMBEAU_SINCE_313_H

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

/* A store to an attribute that lies in the object itself does not count as one to its dict. */
static inline int
dict_is_of_object(PyObject *dict)
{
    PyDictValues *values = ((PyDictObject *)dict)->ma_values;
    return values != NULL && values->embedded;
}

#endif
