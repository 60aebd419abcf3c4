/* What a functools.lru_cache keeps of a call: a bounded one in a link of a list, which Python code
   cannot look into. And calls of one by which it comes to keep what another computed. */
#include "flambeau.h"

/* As Modules/_functoolsmodule.c of every version here declares it. */
typedef struct lru_link {
    PyObject_HEAD
    struct lru_link *prev, *next;
    Py_hash_t hash;
    PyObject *key, *result;
} LruLink;

/* cached_answer(link): the result in a link. No hit is counted, and the link stays where it is. */
PyObject *
cached_answer(PyObject *Py_UNUSED(module), PyObject *link)
{
    PyTypeObject *type = Py_TYPE(link);
    if (strcmp(type->tp_name, "functools._lru_list_elem") != 0 ||
        type->tp_basicsize != sizeof(LruLink)) {
        PyErr_Format(PyExc_TypeError, "a link of a cache is wanted, not %.100s", type->tp_name);
        return NULL;
    }
    return Py_NewRef(((LruLink *)link)->result);
}

/* The rest of the cache itself, which begins with the list's root. */
typedef struct {
    LruLink root;
    void *call;
    int typed;
    PyObject *table;
    Py_ssize_t hits;
    PyObject *function;
    Py_ssize_t maxsize, misses;
    PyObject *mark, *link_type, *info_type, *attributes, *weak_references;
} LruCache;

/* What stands in for a cache's function during a call: it puts that back, and gives its answer.
   self: (cache, function, answer, whether it is raised). */
static PyObject *
give_answer(PyObject *self, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(named))
{
    LruCache *cache = (LruCache *)PyTuple_GET_ITEM(self, 0);
    PyObject *answer = PyTuple_GET_ITEM(self, 2);
    Py_SETREF(cache->function, Py_NewRef(PyTuple_GET_ITEM(self, 1)));
    if (Py_IsTrue(PyTuple_GET_ITEM(self, 3))) {
        PyErr_SetObject((PyObject *)Py_TYPE(answer), answer);
        return NULL;
    }
    return Py_NewRef(answer);
}

static PyMethodDef GIVE_ANSWER = {
    "give_answer", (PyCFunction)(void (*)(void))give_answer, METH_VARARGS | METH_KEYWORDS, NULL};

/* call_cached(cached, answer, raised, args, kwargs): the call of a cached function, in which its
   function, if that is called, gives an answer or raises it. Between the two runs nothing but the
   hashes and comparisons of the arguments. */
PyObject *
call_cached(PyObject *Py_UNUSED(module), PyObject *given)
{
    PyObject *cached, *answer, *raised, *args, *named;
    if (!PyArg_ParseTuple(given, "OOO!O!O!", &cached, &answer, &PyBool_Type, &raised,
                          &PyTuple_Type, &args, &PyDict_Type, &named))
        return NULL;
    PyTypeObject *type = Py_TYPE(cached);
    LruCache *cache = (LruCache *)cached;
    if (strcmp(type->tp_name, "functools._lru_cache_wrapper") != 0 ||
        type->tp_basicsize != sizeof(LruCache)) {
        PyErr_Format(PyExc_TypeError, "a cached function is wanted, not %.100s", type->tp_name);
        return NULL;
    }
    PyObject *own = Py_NewRef(cache->function);
    PyObject *self = PyTuple_Pack(4, cached, own, answer, raised);
    PyObject *instead = self == NULL ? NULL : PyCFunction_New(&GIVE_ANSWER, self);
    PyObject *found = NULL;
    if (instead != NULL) {
        Py_SETREF(cache->function, Py_NewRef(instead));
        found = PyObject_Call(cached, args, named);
        if (cache->function == instead)
            Py_SETREF(cache->function, Py_NewRef(own));
    }
    Py_XDECREF(instead);
    Py_XDECREF(self);
    Py_DECREF(own);
    return found;
}
