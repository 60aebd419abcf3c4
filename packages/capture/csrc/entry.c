/* Entry: the code that runs in place of a frame, and the guards under which it may. */
#include "flambeau.h"

/* The same code with every argument positional, so that a frame's arguments can be handed over
   as they lie: *args and **kwargs are plain locals of it. */
static PyObject *
positional_twin(PyCodeObject *code, Py_ssize_t nargs)
{
    PyObject *replace = PyObject_GetAttrString((PyObject *)code, "replace");
    PyObject *none = PyTuple_New(0);
    PyObject *changes =
        Py_BuildValue("{sisisnsi}", "co_posonlyargcount", 0, "co_kwonlyargcount", 0,
                      "co_argcount", nargs, "co_flags",
                      code->co_flags & ~(CO_VARARGS | CO_VARKEYWORDS));
    PyObject *twin = NULL;
    if (replace != NULL && none != NULL && changes != NULL) {
        twin = PyObject_Call(replace, none, changes);
    }
    Py_XDECREF(replace);
    Py_XDECREF(none);
    Py_XDECREF(changes);
    return twin;
}

static PyObject *
entry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"code", "guards", "keepalive", "info", NULL};
    PyObject *code, *guards, *keepalive = Py_None, *info = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O|OO:Entry", names, &PyCode_Type, &code,
                                     &guards, &keepalive, &info)) {
        return NULL;
    }
    if (guards != Py_None && !Py_IS_TYPE(guards, &GuardTree_Type)) {
        PyErr_Format(PyExc_TypeError, "guards must be a GuardTree or None, not %.100s",
                     Py_TYPE(guards)->tp_name);
        return NULL;
    }
    if (!code_can_be_converted((PyCodeObject *)code)) {
        PyErr_SetString(PyExc_ValueError,
                        "an entry's code is a plain function's, not a generator's or a module's");
        return NULL;
    }
    Py_ssize_t nargs = code_argument_count((PyCodeObject *)code);
    PyObject *twin = positional_twin((PyCodeObject *)code, nargs);
    EntryObject *entry = twin ? (EntryObject *)type->tp_alloc(type, 0) : NULL;
    if (entry == NULL) {
        Py_XDECREF(twin);
        return NULL;
    }
    entry->code = Py_NewRef(code);
    entry->twin = twin;
    entry->guards = Py_NewRef(guards);
    entry->keepalive = Py_NewRef(keepalive);
    entry->info = Py_NewRef(info);
    entry->nargs = nargs;
    return (PyObject *)entry;
}

static int
entry_traverse(EntryObject *entry, visitproc visit, void *arg)
{
    Py_VISIT(entry->code);
    Py_VISIT(entry->twin);
    Py_VISIT(entry->shadow);
    Py_VISIT(entry->guards);
    Py_VISIT(entry->keepalive);
    Py_VISIT(entry->info);
    Py_VISIT(entry->trial);
    Py_VISIT(entry->verdict);
    return 0;
}

static int
entry_clear(EntryObject *entry)
{
    Py_CLEAR(entry->shadow);
    Py_CLEAR(entry->keepalive);
    Py_CLEAR(entry->info);
    Py_CLEAR(entry->trial);
    Py_CLEAR(entry->verdict);
    return 0;
}

static void
entry_dealloc(EntryObject *entry)
{
    PyObject_GC_UnTrack(entry);
    entry_clear(entry);
    Py_CLEAR(entry->guards);
    Py_CLEAR(entry->code);
    Py_CLEAR(entry->twin);
    Py_TYPE(entry)->tp_free((PyObject *)entry);
}

static PyMemberDef entry_members[] = {
    {"code", T_OBJECT, offsetof(EntryObject, code), READONLY, "with the original's signature"},
    {"twin", T_OBJECT, offsetof(EntryObject, twin), READONLY, "with every argument positional"},
    {"guards", T_OBJECT, offsetof(EntryObject, guards), READONLY, NULL},
    {"keepalive", T_OBJECT, offsetof(EntryObject, keepalive), READONLY, NULL},
    {"info", T_OBJECT, offsetof(EntryObject, info), 0, NULL},
    {"trial", T_OBJECT, offsetof(EntryObject, trial), 0, "says what form the next calls take; None: no more"},
    {"verdict", T_OBJECT, offsetof(EntryObject, verdict), 0, "what a trial has found; None"},
    {"plain", T_BOOL, offsetof(EntryObject, plain), 0, "whether the original runs in its place"},
    {"hits", T_LONGLONG, offsetof(EntryObject, hits), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject Entry_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau_capture._C.Entry",
    .tp_doc = "Entry(code, guards, keepalive=None, info=None)",
    .tp_basicsize = sizeof(EntryObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = entry_new,
    .tp_dealloc = (destructor)entry_dealloc,
    .tp_traverse = (traverseproc)entry_traverse,
    .tp_clear = (inquiry)entry_clear,
    .tp_members = entry_members,
};
