/* compiled(fn, cache) and disabled(fn): callables that set what is active for their extent. */
#include "flambeau.h"

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *fn;
    FrameCacheObject *cache; /* NULL for `disabled` */
    int plain_calls;         /* in a row that the hook has found to run as they are, up to CALM */
    int unwatched;           /* calls to come that run so with no guard checked */
    long long epoch;         /* of the cache, when that was decided */
    uint32_t random;
    PyObject *dict;
    PyObject *weakrefs;
} ScopedCall;

/* After so many calls that ran as they are, and nothing else, guards are checked in one of some only:
   to run as it is is right for any call, and what the guards would say is a matter of speed. How many
   are not checked varies, so that no rhythm of the program's own hides from the guards. */
enum { CALM = 32, UNWATCHED = 32 };

static void
note_forms(ScopedCall *scoped, const CacheCounters *before)
{
    const FrameCacheObject *cache = scoped->cache;
    const CacheCounters *now = &cache->counters;
    if (now->plain_frames == before->plain_frames || now->hits != before->hits ||
        now->misses != before->misses || scoped->epoch != cache->epoch) {
        scoped->plain_calls = 0;
        scoped->epoch = cache->epoch;
    }
    else if (scoped->plain_calls < CALM) {
        scoped->plain_calls++;
    }
    else if (!cache->guards_always) {
        scoped->random = scoped->random * 1664525u + 1013904223u; /* Knuth's and Lewis' */
        scoped->unwatched = UNWATCHED / 2 + (int)((scoped->random >> 16) % UNWATCHED);
    }
}

static int
runs_unwatched(ScopedCall *scoped)
{
    FrameCacheObject *cache = scoped->cache;
    if (scoped->unwatched == 0) {
        return 0;
    }
    if (scoped->epoch != cache->epoch || cache->mode != MODE_DEFAULT || stance != MODE_DEFAULT) {
        scoped->unwatched = scoped->plain_calls = 0;
        return 0;
    }
    scoped->unwatched--;
    cache->counters.calls++;
    cache->counters.plain_frames++;
    return 1;
}

static PyObject *
scoped_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    ScopedCall *scoped = (ScopedCall *)self;
    FrameCacheObject *cache = scoped->cache;
    CacheCounters known;
    if (cache != NULL && runs_unwatched(scoped)) {
        if (active_cache() == NULL) {
            return PyObject_Vectorcall(scoped->fn, args, nargsf, kwnames);
        }
        FrameCacheObject *active = swap_active(NULL);
        PyObject *plain = PyObject_Vectorcall(scoped->fn, args, nargsf, kwnames);
        Py_XDECREF(swap_active(active));
        return plain;
    }
    PyObject *foreign = cache == NULL ? NULL : silence_foreign();
    Py_XINCREF(cache);
    if (cache != NULL) {
        cache->running++;
        cache->counters.calls++;
        known = cache->counters;
    }
    FrameCacheObject *before = swap_active(cache);
    PyObject *result = PyObject_Vectorcall(scoped->fn, args, nargsf, kwnames);
    FrameCacheObject *after = swap_active(before);
    if (cache != NULL) { /* `after` is another one where code under way has set it */
        cache->running--;
        note_forms(scoped, &known);
    }
    Py_XDECREF(after);
    if (foreign != NULL) {
        restore_foreign(foreign);
    }
    return result;
}

static PyObject *
scoped_make(PyTypeObject *type, PyObject *fn, PyObject *cache)
{
    if (!PyCallable_Check(fn)) {
        PyErr_Format(PyExc_TypeError, "a callable is wanted, not %.100s", Py_TYPE(fn)->tp_name);
        return NULL;
    }
    ScopedCall *self = (ScopedCall *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = scoped_vectorcall;
        self->fn = Py_NewRef(fn);
        self->cache = (FrameCacheObject *)Py_XNewRef(cache);
    }
    return (PyObject *)self;
}

static PyObject *
compiled_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fn", "cache", NULL};
    PyObject *fn, *cache;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!:compiled", names, &fn, &FrameCache_Type,
                                     &cache)) {
        return NULL;
    }
    return scoped_make(type, fn, cache);
}

static PyObject *
disabled_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fn", NULL};
    PyObject *fn;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:disabled", names, &fn)) {
        return NULL;
    }
    return scoped_make(type, fn, NULL);
}

static PyObject *
scoped_get(PyObject *self, PyObject *object, PyObject *Py_UNUSED(type))
{
    if (object == NULL || object == Py_None) {
        return Py_NewRef(self);
    }
    return PyMethod_New(self, object);
}

static int
scoped_traverse(ScopedCall *self, visitproc visit, void *arg)
{
    Py_VISIT(self->fn);
    Py_VISIT(self->cache);
    Py_VISIT(self->dict);
    return 0;
}

static int
scoped_clear(ScopedCall *self)
{
    Py_CLEAR(self->fn);
    Py_CLEAR(self->cache);
    Py_CLEAR(self->dict);
    return 0;
}

static void
scoped_dealloc(ScopedCall *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    scoped_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* `<compiled f>` shows what was compiled, as it shows itself. */
static PyObject *
scoped_repr(ScopedCall *self)
{
    PyObject *original = self->dict == NULL ? NULL
                                            : PyDict_GetItemString(self->dict, "__wrapped__");
    return PyUnicode_FromFormat("<%s %R>", self->cache == NULL ? "disabled" : "compiled",
                                original == NULL ? self->fn : original);
}

static PyMemberDef compiled_members[] = {
    {"fn", T_OBJECT, offsetof(ScopedCall, fn), READONLY, NULL},
    {"cache", T_OBJECT, offsetof(ScopedCall, cache), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMemberDef disabled_members[] = {
    {"fn", T_OBJECT, offsetof(ScopedCall, fn), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* A callable: whether the program is being traced symbolically. Who does that looks for a
   function. */
static PyObject *tracing_question;

PyObject *
set_tracing(PyObject *Py_UNUSED(module), PyObject *question)
{
    if (!PyCallable_Check(question)) {
        PyErr_Format(PyExc_TypeError, "a callable is wanted, not %.100s",
                     Py_TYPE(question)->tp_name);
        return NULL;
    }
    Py_XSETREF(tracing_question, Py_NewRef(question));
    Py_RETURN_NONE;
}

/* Where the parts of a function are looked up: the function or the method that is compiled, and while
   the program is traced whatever this stands for; NULL for none, which is an error if one is set.
   Borrowed. */
static PyObject *
scoped_original(ScopedCall *self)
{
    PyObject *original = self->dict == NULL ? NULL
                                            : PyDict_GetItemString(self->dict, "__wrapped__");
    if (self->cache != NULL && original != NULL &&
        (PyFunction_Check(original) || PyMethod_Check(original))) {
        return original;
    }
    PyObject *answer = tracing_question == NULL ? Py_NewRef(Py_False)
                                                : PyObject_CallNoArgs(tracing_question);
    int traced = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return traced <= 0 ? NULL : original == NULL ? self->fn : original;
}

/* An attribute of a function: the original's. */
static PyObject *
scoped_function_part(ScopedCall *self, void *name)
{
    PyObject *original = scoped_original(self);
    if (original != NULL) {
        return PyObject_GetAttrString(original, name);
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (strcmp(name, "__class__") == 0) {
        return Py_NewRef(Py_TYPE(self));
    }
    PyErr_Format(PyExc_AttributeError, "'%.100s' object has no attribute '%s'",
                 Py_TYPE(self)->tp_name, name);
    return NULL;
}

static int
scoped_set_function_part(ScopedCall *self, PyObject *value, void *name)
{
    PyObject *original = scoped_original(self);
    if (original != NULL) { /* no value: it is deleted */
        return PyObject_SetAttrString(original, name, value);
    }
    if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_AttributeError, "'%.100s' object has no attribute '%s'",
                     Py_TYPE(self)->tp_name, name);
    }
    return -1;
}

#define FUNCTION_PART(name)                                                                       \
    {name, (getter)scoped_function_part, (setter)scoped_set_function_part, NULL, name}

static PyGetSetDef scoped_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {"__class__", (getter)scoped_function_part, NULL, NULL, "__class__"},
    FUNCTION_PART("__code__"),
    FUNCTION_PART("__globals__"),
    FUNCTION_PART("__builtins__"),
    FUNCTION_PART("__defaults__"),
    FUNCTION_PART("__kwdefaults__"),
    FUNCTION_PART("__closure__"),
    FUNCTION_PART("__func__"),
    FUNCTION_PART("__self__"),
    {NULL, NULL, NULL, NULL, NULL},
};

/* A type of scoped calls: what differs is how one is made and what it shows. */
#define SCOPED_TYPE(name, text, make, shown)                                                      \
    {                                                                                             \
        PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau_capture._C." name,                     \
        .tp_doc = text,                                                                           \
        .tp_basicsize = sizeof(ScopedCall),                                                       \
        .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |        \
                    Py_TPFLAGS_METHOD_DESCRIPTOR,                                                 \
        .tp_new = make,                                                                           \
        .tp_dealloc = (destructor)scoped_dealloc,                                                 \
        .tp_traverse = (traverseproc)scoped_traverse,                                             \
        .tp_clear = (inquiry)scoped_clear,                                                        \
        .tp_repr = (reprfunc)scoped_repr,                                                         \
        .tp_call = PyVectorcall_Call,                                                             \
        .tp_vectorcall_offset = offsetof(ScopedCall, vectorcall),                                 \
        .tp_descr_get = scoped_get,                                                               \
        .tp_dictoffset = offsetof(ScopedCall, dict),                                              \
        .tp_weaklistoffset = offsetof(ScopedCall, weakrefs),                                      \
        .tp_members = shown,                                                                      \
        .tp_getset = scoped_getset,                                                               \
    }

PyTypeObject Compiled_Type = SCOPED_TYPE(
    "compiled", "compiled(fn, cache): fn, with `cache` active on the calling thread while it runs.",
    compiled_new, compiled_members);

PyTypeObject Disabled_Type = SCOPED_TYPE(
    "disabled", "disabled(fn): fn, with nothing active on the calling thread while it runs.",
    disabled_new, disabled_members);
