/* StatePattern: the thread's and the process's state, compared with what it was at capture.

   Four sources, in order of cost: words of thread-local variables (the dispatcher's key sets),
   functions without side effects that return a small integer, items of dicts (the variables of a
   Python module), and Python callables. Which these are
   is decided and verified by guards/_state_probes.py; nothing of torch is named here. */
#define _GNU_SOURCE
#include "flambeau.h"

#include <dlfcn.h>

typedef uint64_t (*ProbeFunction)(uint64_t);

typedef struct {
    ProbeFunction function;
    uint64_t argument, mask, expected;
} Probe;

typedef struct {
    PyObject_HEAD
    Py_ssize_t probe_count, call_count, word_count;
    Probe *probes;
    void *library;         /* handle of the library of the thread-local variable */
    PyObject *symbol;      /* its name: bytes, or NULL */
    uint64_t *words;       /* its expected content */
    PyObject *items;       /* tuple of (dict, key, expected) */
    PyObject *calls;       /* tuple of (callable, expected) */
} StatePattern;

/* A thread-local variable has an address per thread; looking it up by name is slow, so the last
   answer is kept, with the name it is the answer for. */
static _Thread_local struct {
    PyObject *symbol; /* strong: its address is compared */
    const uint64_t *address;
} last_lookup;

static const uint64_t *
thread_words(const StatePattern *pattern)
{
    if (last_lookup.symbol != pattern->symbol) {
        last_lookup.address = dlsym(pattern->library, PyBytes_AS_STRING(pattern->symbol));
        Py_XSETREF(last_lookup.symbol, Py_NewRef(pattern->symbol));
    }
    return last_lookup.address;
}

int
state_pattern_check(PyObject *self)
{
    const StatePattern *pattern = (StatePattern *)self;
    if (pattern->word_count > 0) {
        const uint64_t *words = thread_words(pattern);
        if (words == NULL ||
            memcmp(words, pattern->words, (size_t)pattern->word_count * sizeof(uint64_t)) != 0) {
            return 0;
        }
    }
    for (Py_ssize_t i = 0; i < pattern->probe_count; i++) {
        const Probe *probe = &pattern->probes[i];
        if ((probe->function(probe->argument) & probe->mask) != probe->expected) {
            return 0;
        }
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pattern->items); i++) {
        PyObject *row = PyTuple_GET_ITEM(pattern->items, i);
        PyObject *value =
            PyDict_GetItemWithError(PyTuple_GET_ITEM(row, 0), PyTuple_GET_ITEM(row, 1));
        if (value == NULL || !same_constant(PyTuple_GET_ITEM(row, 2), value)) {
            return 0;
        }
    }
    for (Py_ssize_t i = 0; i < pattern->call_count; i++) {
        PyObject *pair = PyTuple_GET_ITEM(pattern->calls, i);
        PyObject *answer = PyObject_CallNoArgs(PyTuple_GET_ITEM(pair, 0));
        int same = answer != NULL && same_constant(PyTuple_GET_ITEM(pair, 1), answer);
        Py_XDECREF(answer);
        if (!same) {
            return 0;
        }
    }
    return 1;
}

/* state_probe_call(address, argument) -> int: what the function at the address returns. */
PyObject *
state_probe_call(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long address, argument;
    if (!PyArg_ParseTuple(args, "KK:state_probe_call", &address, &argument)) {
        return NULL;
    }
    ProbeFunction function = (ProbeFunction)(uintptr_t)address;
    return PyLong_FromUnsignedLongLong(function(argument));
}

/* state_symbol(library_path, name) -> address for the calling thread, or None. The library must be
   loaded already. */
PyObject *
state_symbol(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *path, *name;
    if (!PyArg_ParseTuple(args, "ss:state_symbol", &path, &name)) {
        return NULL;
    }
    void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    void *address = library == NULL ? NULL : dlsym(library, name);
    if (library != NULL) {
        dlclose(library);
    }
    if (address == NULL) {
        Py_RETURN_NONE;
    }
    return PyLong_FromVoidPtr(address);
}

static int
fill_probes(StatePattern *pattern, PyObject *probes)
{
    Py_ssize_t count = PyTuple_GET_SIZE(probes);
    pattern->probes = PyMem_Calloc((size_t)count + 1, sizeof(Probe));
    if (pattern->probes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        unsigned long long address, argument, mask, expected;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(probes, i), "KKKK:probe", &address, &argument,
                              &mask, &expected)) {
            return -1;
        }
        pattern->probes[i] =
            (Probe){(ProbeFunction)(uintptr_t)address, argument, mask, expected};
    }
    pattern->probe_count = count;
    return 0;
}

static int
fill_words(StatePattern *pattern, PyObject *variable)
{
    const char *path;
    PyObject *symbol, *words;
    if (!PyArg_ParseTuple(variable, "sO!O!:variable", &path, &PyBytes_Type, &symbol, &PyTuple_Type,
                          &words)) {
        return -1;
    }
    /* the handle is never closed: a library that a tensor came from stays loaded */
    pattern->library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (pattern->library == NULL || dlsym(pattern->library, PyBytes_AS_STRING(symbol)) == NULL) {
        PyErr_Format(PyExc_ValueError, "%s has no symbol %s", path, PyBytes_AS_STRING(symbol));
        return -1;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(words);
    pattern->words = PyMem_Calloc((size_t)count + 1, sizeof(uint64_t));
    if (pattern->words == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        pattern->words[i] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(words, i));
        if (PyErr_Occurred()) {
            return -1;
        }
    }
    pattern->symbol = Py_NewRef(symbol);
    pattern->word_count = count;
    return 0;
}

static int
calls_are_pairs(PyObject *calls)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(calls); i++) {
        PyObject *pair = PyTuple_GET_ITEM(calls, i);
        if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2) {
            PyErr_SetString(PyExc_TypeError, "calls are pairs of a callable and what it returns");
            return 0;
        }
    }
    return 1;
}

static int
items_are_rows(PyObject *items)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++) {
        PyObject *row = PyTuple_GET_ITEM(items, i);
        if (!PyTuple_CheckExact(row) || PyTuple_GET_SIZE(row) != 3 ||
            !PyDict_CheckExact(PyTuple_GET_ITEM(row, 0))) {
            PyErr_SetString(PyExc_TypeError, "items are a dict, a key and its value each");
            return 0;
        }
    }
    return 1;
}

static PyObject *
pattern_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"probes", "variable", "items", "calls", NULL};
    PyObject *probes, *variable, *items, *calls;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO!O!:StatePattern", names, &PyTuple_Type,
                                     &probes, &variable, &PyTuple_Type, &items, &PyTuple_Type,
                                     &calls)) {
        return NULL;
    }
    StatePattern *pattern = (StatePattern *)type->tp_alloc(type, 0);
    if (pattern == NULL) {
        return NULL;
    }
    pattern->items = Py_NewRef(items);
    if (!items_are_rows(items) || !calls_are_pairs(calls) || fill_probes(pattern, probes) < 0 ||
        (variable != Py_None && fill_words(pattern, variable) < 0)) {
        Py_DECREF(pattern);
        return NULL;
    }
    pattern->calls = Py_NewRef(calls);
    pattern->call_count = PyTuple_GET_SIZE(calls);
    return (PyObject *)pattern;
}

static void
pattern_dealloc(StatePattern *pattern)
{
    PyMem_Free(pattern->probes);
    PyMem_Free(pattern->words);
    Py_XDECREF(pattern->symbol);
    Py_XDECREF(pattern->items);
    Py_XDECREF(pattern->calls);
    Py_TYPE(pattern)->tp_free((PyObject *)pattern);
}

static PyObject *
pattern_check(PyObject *self, PyObject *Py_UNUSED(none))
{
    int holds = state_pattern_check(self);
    PyErr_Clear();
    return PyBool_FromLong(holds);
}

static PyMethodDef pattern_methods[] = {
    {"check", pattern_check, METH_NOARGS, "check() -> bool"},
    {NULL, NULL, 0, NULL},
};

PyTypeObject StatePattern_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau_capture._C.StatePattern",
    .tp_doc = "StatePattern(probes, variable, items, calls): a state to compare the present one with.",
    .tp_basicsize = sizeof(StatePattern),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = pattern_new,
    .tp_dealloc = (destructor)pattern_dealloc,
    .tp_methods = pattern_methods,
};
