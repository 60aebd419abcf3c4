/* The class of a class: Python lets no program set it to `type`, which is not mutable. */
#include "flambeau.h"

/* set_metaclass(cls, meta): let a class be an instance of one that its metaclass derives from and
   adds nothing to. */
PyObject *
set_metaclass(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *cls, *given;
    if (!PyArg_ParseTuple(args, "O!O!:set_metaclass", &PyType_Type, &cls, &PyType_Type, &given)) {
        return NULL;
    }
    PyTypeObject *before = Py_TYPE(cls), *meta = (PyTypeObject *)given;
    int alike = before->tp_basicsize == meta->tp_basicsize
        && before->tp_itemsize == meta->tp_itemsize && PyType_IsSubtype(before, meta)
        && PyType_IsSubtype(meta, &PyType_Type);
    if (!alike) {
        PyErr_SetString(PyExc_TypeError, "a class and a base of its metaclass are expected");
        return NULL;
    }
    if (PyType_HasFeature(meta, Py_TPFLAGS_HEAPTYPE)) {
        Py_INCREF(meta);
    }
    Py_SET_TYPE(cls, meta);
    if (PyType_HasFeature(before, Py_TPFLAGS_HEAPTYPE)) {
        Py_DECREF(before);
    }
    PyType_Modified((PyTypeObject *)cls);
    Py_RETURN_NONE;
}
