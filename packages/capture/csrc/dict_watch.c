/* Numbers that change with what a dict holds, on a CPython whose dicts have no version tag.

   A dict that a guard has read is watched (PyDict_Watch): CPython calls back before each change is
   made, and its number goes up. A number outlives its dict, because a region may still look at it:
   another dict takes it over, and it never goes back to what it was. */
#include "flambeau.h"

#if PY_VERSION_HEX >= 0x030E0000
#include "internal/pycore_hashtable.h"

typedef struct spare {
    uint64_t tag; /* first: what a region looks at is the address of the whole */
    struct spare *next;
} Numbered;

static _Py_hashtable_t *numbers; /* Numbered by the address of a dict that lives */
static Numbered *spares;
static int watcher = -1;

static int
changed(PyDict_WatchEvent event, PyObject *dict, PyObject *Py_UNUSED(key),
        PyObject *Py_UNUSED(value))
{
    Numbered *number = _Py_hashtable_get(numbers, dict);
    if (number != NULL) {
        number->tag++;
    }
    if (number != NULL && event == PyDict_EVENT_DEALLOCATED) {
        _Py_hashtable_steal(numbers, dict);
        number->next = spares;
        spares = number;
    }
    return 0;
}

/* All eight watchers of the process may be taken: then there is no number, and guards look again. */
static int
is_watching(void)
{
    if (numbers == NULL) {
        numbers = _Py_hashtable_new(_Py_hashtable_hash_ptr, _Py_hashtable_compare_direct);
        watcher = numbers == NULL ? -1 : PyDict_AddWatcher(changed);
        PyErr_Clear();
    }
    return watcher >= 0;
}

const uint64_t *
dict_tag(PyObject *dict)
{
    if (dict_is_of_object(dict) || !is_watching()) {
        return NULL;
    }
    Numbered *number = _Py_hashtable_get(numbers, dict);
    if (number != NULL) {
        return &number->tag;
    }
    number = spares != NULL ? spares : PyMem_RawCalloc(1, sizeof(*number));
    if (number == NULL || PyDict_Watch(watcher, dict) < 0) {
        PyErr_Clear();
        return NULL;
    }
    spares = number == spares ? number->next : spares;
    if (_Py_hashtable_set(numbers, dict, number) < 0) {
        return NULL; /* a number less, and a dict that is watched for nothing */
    }
    return &number->tag;
}
#endif
