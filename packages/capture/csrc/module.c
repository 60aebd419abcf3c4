/* flambeau_capture._C: the frame hook and the native guards. */
#include "flambeau.h"
#include "region.h"

PyObject *Skip_Singleton;

static PyObject *
skip_repr(PyObject *Py_UNUSED(self))
{
    return PyUnicode_FromString("SKIP");
}

static PyTypeObject Skip_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau_capture._C.SkipType",
    .tp_doc = "The answer of `convert` for code that is never to be looked at again.",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_repr = skip_repr,
};

static PyObject *
module_set_active(PyObject *Py_UNUSED(module), PyObject *cache)
{
    if (cache != Py_None && !Py_IS_TYPE(cache, &FrameCache_Type)) {
        PyErr_SetString(PyExc_TypeError, "set_active takes a FrameCache or None");
        return NULL;
    }
    FrameCacheObject *next = cache == Py_None ? NULL : (FrameCacheObject *)Py_NewRef(cache);
    FrameCacheObject *before = swap_active(next);
    return before == NULL ? Py_NewRef(Py_None) : (PyObject *)before;
}

static PyObject *
module_active(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    FrameCacheObject *cache = active_cache();
    return Py_NewRef(cache == NULL ? Py_None : (PyObject *)cache);
}

static PyObject *
module_same(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *left, *right;
    if (!PyArg_ParseTuple(args, "OO:same", &left, &right)) {
        return NULL;
    }
    int same = same_constant(left, right);
    PyErr_Clear();
    return PyBool_FromLong(same);
}

static PyObject *
module_set_stance(PyObject *Py_UNUSED(module), PyObject *name)
{
    enum cache_mode before = stance;
    return mode_of(name, &stance) < 0 ? NULL : mode_name(before);
}

static PyObject *
module_stance(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    return mode_name(stance);
}

static PyObject *
module_set_foreign(PyObject *Py_UNUSED(module), PyObject *setter)
{
    if (!PyCallable_Check(setter)) {
        PyErr_Format(PyExc_TypeError, "a callable is wanted, not %.100s", Py_TYPE(setter)->tp_name);
        return NULL;
    }
    set_foreign_callback(setter);
    Py_RETURN_NONE;
}

static PyObject *
exports_buffer(PyObject *Py_UNUSED(module), PyObject *obj)
{
    if (!PyByteArray_CheckExact(obj)) {
        PyErr_SetString(PyExc_TypeError, "exports_buffer takes a bytearray");
        return NULL;
    }
    return PyBool_FromLong(((PyByteArrayObject *)obj)->ob_exports > 0);
}

static PyMethodDef module_methods[] = {
    {"set_active", module_set_active, METH_O,
     "set_active(cache or None): what is active on this thread; returns what was before."},
    {"active", module_active, METH_NOARGS, "active(): the cache active on this thread, or None."},
    {"set_stance", module_set_stance, METH_O,
     "set_stance(mode): a mode for every cache, unless it is the default; returns the last one."},
    {"stance", module_stance, METH_NOARGS, "stance(): the mode that is set for every cache."},
    {"follow", follow, METH_O, "follow(cls): guards neither hold nor watch its instances."},
    {"bears_callback", bears_callback, METH_O,
     "bears_callback(obj): whether a weak reference to it may have a callback."},
    {"exports_buffer", exports_buffer, METH_O,
     "exports_buffer(data): whether something shares the memory of a bytearray."},
    {"set_foreign", module_set_foreign, METH_O,
     "set_foreign(setter): what sets the callback of torch's own hook on this thread; it answers "
     "the one before."},
    {"set_tracing", set_tracing, METH_O,
     "set_tracing(question): whether the program is traced symbolically at this moment."},
    {"set_functions", set_functions, METH_O,
     "set_functions(functions): what CALL1 and CALL2 of size programs call, by place."},
    {"set_continue", set_continue, METH_O,
     "set_continue(cls): the class of what a resume function returns that goes on in another one."},
    {"drive", drive, METH_O,
     "drive(going): calls the resume function of a `Continue` with what that is given, which it "
     "takes over, and the ones it goes on in."},
    {"same", module_same, METH_VARARGS, "same(a, b): type-exact equality of constants."},
    {"state_probe_call", state_probe_call, METH_VARARGS, NULL},
    {"state_symbol", state_symbol, METH_VARARGS, NULL},
    {"cached_answer", cached_answer, METH_O,
     "cached_answer(link): what a link of a bounded functools cache holds; no hit is counted."},
    {"call_cached", call_cached, METH_VARARGS,
     "call_cached(cached, answer, raised, args, kwargs): a call that computes a given answer."},
    {"read_bytes", read_bytes, METH_VARARGS, NULL},
    {"same_set_table", same_set_table, METH_VARARGS,
     "same_set_table(a, b): whether the hash tables of two sets are alike, slot by slot."},
    {"set_metaclass", set_metaclass, METH_VARARGS,
     "set_metaclass(cls, meta): let a class be an instance of a base of its metaclass."},
    {"fill_like", fill_like, METH_VARARGS,
     "fill_like(target, model, items=None): give a set without items the table of another."},
    {"set_like", set_like, METH_VARARGS,
     "set_like(frozen, model, items=None): a new set with the table of another."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "flambeau_capture._C",
    .m_doc = "The frame hook (PEP 523) and the native guards of flambeau_capture.",
    .m_size = -1,
    .m_methods = module_methods,
};

PyMODINIT_FUNC
PyInit__C(void)
{
    PyTypeObject *types[] = {&FrameCache_Type,    &Entry_Type,        &Compiled_Type,
                             &Disabled_Type,      &GuardTree_Type,    &TensorLayout_Type,
                             &TensorPattern_Type, &StatePattern_Type};
    PyObject *module = PyModule_Create(&module_def);
    if (module == NULL || PyType_Ready(&Skip_Type) < 0 || PyType_Ready(&RegionEnd_Type) < 0) {
        goto fail;
    }
    for (size_t i = 0; i < Py_ARRAY_LENGTH(types); i++) {
        if (PyModule_AddType(module, types[i]) < 0) {
            goto fail;
        }
    }
    Skip_Singleton = PyObject_New(PyObject, &Skip_Type);
    if (PyModule_AddType(module, &Skip_Type) < 0 || Skip_Singleton == NULL ||
        PyModule_AddObjectRef(module, "SKIP", Skip_Singleton) < 0 || guard_tree_add_names(module) < 0) {
        goto fail;
    }
    return module;
fail:
    Py_XDECREF(module);
    return NULL;
}
