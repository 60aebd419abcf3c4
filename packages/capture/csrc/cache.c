/* FrameCache: what a compiled callable knows of each code object it has seen. */
#include "flambeau.h"

static const char *const mode_names[] = {"default", "run_only", "off", "fail_on_recompile"};

PyObject *
mode_name(enum cache_mode mode)
{
    return PyUnicode_FromString(mode_names[mode]);
}

int
mode_of(PyObject *name, enum cache_mode *mode)
{
    for (size_t i = 0; i < Py_ARRAY_LENGTH(mode_names); i++) {
        if (name != NULL && PyUnicode_Check(name) &&
            PyUnicode_CompareWithASCIIString(name, mode_names[i]) == 0) {
            *mode = (enum cache_mode)i;
            return 0;
        }
    }
    PyErr_SetString(PyExc_ValueError,
                    "mode is \"default\", \"run_only\", \"off\" or \"fail_on_recompile\"");
    return -1;
}

Py_ssize_t
code_argument_count(const PyCodeObject *code)
{
    return code->co_argcount + code->co_kwonlyargcount + ((code->co_flags & CO_VARARGS) != 0) +
           ((code->co_flags & CO_VARKEYWORDS) != 0);
}

int
code_can_be_converted(const PyCodeObject *code)
{
    const int function = CO_OPTIMIZED | CO_NEWLOCALS;
    const int suspends = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
    return (code->co_flags & function) == function && !(code->co_flags & suspends);
}

static size_t
slot_of(const FrameCacheObject *cache, PyObject *code)
{
    size_t mask = (size_t)cache->slot_count - 1;
    size_t i = ((size_t)(uintptr_t)code >> 4) * (size_t)0x9E3779B97F4A7C15ull;
    i = (i >> 32) & mask;
    while (cache->slots[i] != NULL && cache->slots[i]->code != code) {
        i = (i + 1) & mask;
    }
    return i;
}

CodeState *
cache_find(const FrameCacheObject *cache, PyObject *code)
{
    return cache->slot_count == 0 ? NULL : cache->slots[slot_of(cache, code)];
}

static int
grow(FrameCacheObject *cache)
{
    CodeState **old = cache->slots;
    Py_ssize_t old_count = cache->slot_count;
    Py_ssize_t count = old_count == 0 ? 64 : old_count * 2;
    CodeState **slots = PyMem_Calloc((size_t)count, sizeof(CodeState *));
    if (slots == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    cache->slots = slots;
    cache->slot_count = count;
    for (Py_ssize_t i = 0; i < old_count; i++) {
        if (old[i] != NULL) {
            slots[slot_of(cache, old[i]->code)] = old[i];
        }
    }
    PyMem_Free(old);
    return 0;
}

/* 1: the file of the code is among those that the cache is to leave alone. */
static int
file_is_skipped(const FrameCacheObject *cache, const PyCodeObject *code)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(cache->prefixes); i++) {
        Py_ssize_t match = PyUnicode_Tailmatch(
            code->co_filename, PyTuple_GET_ITEM(cache->prefixes, i), 0, PY_SSIZE_T_MAX, -1);
        if (match != 0) {
            return (int)match;
        }
    }
    return 0;
}

CodeState *
cache_state(FrameCacheObject *cache, PyObject *code)
{
    CodeState *state = cache_find(cache, code);
    if (state != NULL) {
        return state;
    }
    if (4 * (cache->used + 1) > 3 * cache->slot_count && grow(cache) < 0) {
        return NULL;
    }
    int skipped = file_is_skipped(cache, (PyCodeObject *)code);
    if (skipped < 0) {
        return NULL;
    }
    size_t room = (size_t)cache->limit * sizeof(EntryObject *);
    state = PyMem_Calloc(1, sizeof(CodeState) + room);
    if (state == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    Py_INCREF(code);
    state->code = code;
    if (skipped || !code_can_be_converted((PyCodeObject *)code)) {
        state->kind = CODE_SKIP;
    }
    cache->slots[slot_of(cache, code)] = state;
    cache->used++;
    return state;
}

int
cache_insert(FrameCacheObject *cache, CodeState *state, EntryObject *entry)
{
    if (state->count >= cache->limit) {
        PyErr_SetString(PyExc_RuntimeError, "the cache has no room for another entry");
        return -1;
    }
    memmove(&state->entries[1], &state->entries[0], (size_t)state->count * sizeof(entry));
    Py_INCREF(entry);
    state->entries[0] = entry;
    state->count++;
    state->kind = CODE_ACTIVE;
    return 0;
}

/* --- the type ---------------------------------------------------------------------------------- */

static PyObject *
cache_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"convert", "limit", NULL};
    PyObject *convert;
    Py_ssize_t limit = 8;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$n:FrameCache", names, &convert, &limit)) {
        return NULL;
    }
    if (!PyCallable_Check(convert)) {
        PyErr_SetString(PyExc_TypeError, "convert must be callable");
        return NULL;
    }
    if (limit < 1 || limit > LIMIT_MAX) {
        PyErr_Format(PyExc_ValueError, "limit must be from 1 to %d, not %zd", LIMIT_MAX, limit);
        return NULL;
    }
    PyObject *prefixes = PyTuple_New(0);
    FrameCacheObject *cache = prefixes ? (FrameCacheObject *)type->tp_alloc(type, 0) : NULL;
    if (cache == NULL) {
        Py_XDECREF(prefixes);
        return NULL;
    }
    cache->convert = Py_NewRef(convert);
    cache->on_limit = Py_NewRef(Py_None);
    cache->on_stillborn = Py_NewRef(Py_None);
    cache->prefixes = prefixes;
    cache->limit = limit;
    return (PyObject *)cache;
}

static int
cache_traverse(FrameCacheObject *cache, visitproc visit, void *arg)
{
    Py_VISIT(cache->convert);
    Py_VISIT(cache->on_limit);
    Py_VISIT(cache->on_stillborn);
    for (Py_ssize_t i = 0; i < cache->slot_count; i++) {
        CodeState *state = cache->slots[i];
        if (state != NULL) {
            Py_VISIT(state->code);
            Py_VISIT(state->trial);
            for (Py_ssize_t j = 0; j < state->count; j++) {
                Py_VISIT(state->entries[j]);
            }
        }
    }
    return 0;
}

static void
drop_states(FrameCacheObject *cache)
{
    CodeState **slots = cache->slots;
    Py_ssize_t count = cache->slot_count;
    cache->slots = NULL;
    cache->slot_count = 0;
    cache->used = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        CodeState *state = slots[i];
        if (state != NULL) {
            for (Py_ssize_t j = 0; j < state->count; j++) {
                Py_DECREF(state->entries[j]);
            }
            Py_DECREF(state->code);
            Py_XDECREF(state->trial);
            PyMem_Free(state);
        }
    }
    PyMem_Free(slots);
}

static int
cache_clear_refs(FrameCacheObject *cache)
{
    drop_states(cache);
    Py_CLEAR(cache->convert);
    Py_CLEAR(cache->on_limit);
    Py_CLEAR(cache->on_stillborn);
    return 0;
}

static void
cache_dealloc(FrameCacheObject *cache)
{
    PyObject_GC_UnTrack(cache);
    if (cache->weakrefs != NULL) {
        PyObject_ClearWeakRefs((PyObject *)cache);
    }
    cache_clear_refs(cache);
    Py_CLEAR(cache->prefixes);
    Py_TYPE(cache)->tp_free((PyObject *)cache);
}

static PyObject *
cache_skip_prefixes(FrameCacheObject *cache, PyObject *prefixes)
{
    if (!PyTuple_CheckExact(prefixes)) {
        PyErr_SetString(PyExc_TypeError, "skip_prefixes takes a tuple of paths");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(prefixes); i++) {
        if (!PyUnicode_CheckExact(PyTuple_GET_ITEM(prefixes, i))) {
            PyErr_SetString(PyExc_TypeError, "skip_prefixes takes a tuple of paths");
            return NULL;
        }
    }
    Py_XSETREF(cache->prefixes, Py_NewRef(prefixes));
    Py_RETURN_NONE;
}

static int
is_code(PyObject *code)
{
    if (!PyCode_Check(code)) {
        PyErr_Format(PyExc_TypeError, "a code object is wanted, not %.100s",
                     Py_TYPE(code)->tp_name);
        return 0;
    }
    return 1;
}

static PyObject *
cache_entries(FrameCacheObject *cache, PyObject *code)
{
    if (!is_code(code)) {
        return NULL;
    }
    PyObject *list = PyList_New(0); /* may collect garbage, and entries end with what goes */
    CodeState *state = cache_find(cache, code);
    for (Py_ssize_t i = 0; list != NULL && state != NULL && i < state->count; i++) {
        if (PyList_Append(list, (PyObject *)state->entries[i]) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyObject *
cache_remove(FrameCacheObject *cache, PyObject *args)
{
    PyObject *code, *entry;
    int counts = 1;
    if (!PyArg_ParseTuple(args, "OO!|p:remove", &code, &Entry_Type, &entry, &counts)
        || !is_code(code)) {
        return NULL;
    }
    CodeState *state = cache_find(cache, code);
    for (Py_ssize_t i = 0; state != NULL && i < state->count; i++) {
        if ((PyObject *)state->entries[i] == entry) {
            state->count--;
            state->ended += counts;
            memmove(&state->entries[i], &state->entries[i + 1],
                    (size_t)(state->count - i) * sizeof(state->entries[0]));
            Py_DECREF(entry);
            break;
        }
    }
    Py_RETURN_NONE;
}

static PyObject *
set_kind(FrameCacheObject *cache, PyObject *code, enum code_kind kind)
{
    CodeState *state = is_code(code) ? cache_state(cache, code) : NULL;
    if (state == NULL) {
        return NULL;
    }
    state->kind = kind;
    Py_RETURN_NONE;
}

static PyObject *
cache_skip(FrameCacheObject *cache, PyObject *code)
{
    return set_kind(cache, code, CODE_SKIP);
}

static PyObject *
cache_is_skipped(FrameCacheObject *cache, PyObject *code)
{
    if (!is_code(code)) {
        return NULL;
    }
    CodeState *state = cache_find(cache, code);
    return PyBool_FromLong(state != NULL && state->kind == CODE_SKIP);
}

static PyObject *
cache_run_plain(FrameCacheObject *cache, PyObject *code)
{
    return set_kind(cache, code, CODE_PLAIN);
}

static PyObject *
cache_set_trial(FrameCacheObject *cache, PyObject *args)
{
    PyObject *code, *trial;
    if (!PyArg_ParseTuple(args, "O!O:set_trial", &PyCode_Type, &code, &trial)) {
        return NULL;
    }
    CodeState *state = cache_state(cache, code);
    if (state == NULL) {
        return NULL;
    }
    PyObject *before = state->trial;
    state->trial = trial == Py_None ? NULL : Py_NewRef(trial);
    Py_XDECREF(before); /* may run Python: `state` is not looked at again */
    Py_RETURN_NONE;
}

static PyObject *
cache_codes(FrameCacheObject *cache, PyObject *Py_UNUSED(none))
{
    PyObject *list = PyList_New(0);
    for (Py_ssize_t i = 0; list != NULL && i < cache->slot_count; i++) {
        if (cache->slots[i] != NULL && PyList_Append(list, cache->slots[i]->code) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyObject *
cache_clear(FrameCacheObject *cache, PyObject *Py_UNUSED(none))
{
    drop_states(cache);
    cache->epoch++;
    Py_RETURN_NONE;
}

static PyObject *
cache_counters(FrameCacheObject *cache, PyObject *Py_UNUSED(none))
{
    const CacheCounters *c = &cache->counters;
    return Py_BuildValue("{sLsLsLsLsLsLsLsLsLsLsLsd}", "hits", c->hits, "misses", c->misses,
                         "guard_failures", c->guard_failures, "conversions", c->conversions,
                         "skipped_frames", c->skipped_frames, "stillborn", c->stillborn,
                         "limit_reached", c->limit_reached, "traced_frames", c->traced_frames,
                         "plain_frames", c->plain_frames, "calls", c->calls, "timed_lookups",
                         c->timed_lookups, "guard_seconds", c->guard_seconds);
}

static PyObject *
cache_get_mode(FrameCacheObject *cache, void *Py_UNUSED(closure))
{
    return mode_name(cache->mode);
}

static int
cache_set_mode(FrameCacheObject *cache, PyObject *value, void *Py_UNUSED(closure))
{
    return mode_of(value, &cache->mode);
}

static PyMethodDef cache_methods[] = {
    {"skip_prefixes", (PyCFunction)cache_skip_prefixes, METH_O,
     "skip_prefixes(paths): code of files under these paths is left alone, decided when first seen."},
    {"entries", (PyCFunction)cache_entries, METH_O, "entries(code): the last hit first."},
    {"remove", (PyCFunction)cache_remove, METH_VARARGS,
     "remove(code, entry, counts=True): an entry that cannot hold again; whether against the limit."},
    {"skip", (PyCFunction)cache_skip, METH_O, "skip(code): run it as it is from now on."},
    {"run_plain", (PyCFunction)cache_run_plain, METH_O,
     "run_plain(code): run it as it is from now on, with all that it calls."},
    {"set_trial", (PyCFunction)cache_set_trial, METH_VARARGS,
     "set_trial(code, trial): ask `trial.begin()` before each call; None: no more."},
    {"is_skipped", (PyCFunction)cache_is_skipped, METH_O, "is_skipped(code)"},
    {"codes", (PyCFunction)cache_codes, METH_NOARGS, "codes(): the code objects met."},
    {"clear", (PyCFunction)cache_clear, METH_NOARGS, "clear(): forget all that was met."},
    {"counters", (PyCFunction)cache_counters, METH_NOARGS, "counters(): events by name."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef cache_members[] = {
    {"convert", T_OBJECT, offsetof(FrameCacheObject, convert), READONLY, NULL},
    {"on_limit", T_OBJECT, offsetof(FrameCacheObject, on_limit), 0, NULL},
    {"on_stillborn", T_OBJECT, offsetof(FrameCacheObject, on_stillborn), 0, NULL},
    {"guards_always", T_BOOL, offsetof(FrameCacheObject, guards_always), 0, NULL},
    {"limit", T_PYSSIZET, offsetof(FrameCacheObject, limit), READONLY, NULL},
    {"running", T_PYSSIZET, offsetof(FrameCacheObject, running), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef cache_getset[] = {
    {"mode", (getter)cache_get_mode, (setter)cache_set_mode, "default, run_only, off or fail_on_recompile", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject FrameCache_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau_capture._C.FrameCache",
    .tp_doc = "FrameCache(convert, *, limit=8): code objects and the entries compiled for them.",
    .tp_basicsize = sizeof(FrameCacheObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = cache_new,
    .tp_dealloc = (destructor)cache_dealloc,
    .tp_traverse = (traverseproc)cache_traverse,
    .tp_clear = (inquiry)cache_clear_refs,
    .tp_weaklistoffset = offsetof(FrameCacheObject, weakrefs),
    .tp_methods = cache_methods,
    .tp_members = cache_members,
    .tp_getset = cache_getset,
};
