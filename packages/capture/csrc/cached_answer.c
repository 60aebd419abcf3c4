/* What a bounded functools.lru_cache keeps of a call: it is in a link of a list, which Python code
   cannot look into. */
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
