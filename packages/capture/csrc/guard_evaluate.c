/* The accesses and the checks of a guard tree, one case each. The plain-Python twins are
   `Source.read` in source/ and `Kind.holds` in guards/kinds.py. */
#include "guard_tree.h"

/* --- accesses: a new reference, or NULL with or without an error set ------------------------------ */

static PyObject *
dict_get(PyObject *dict, PyObject *key)
{
    return Py_XNewRef(PyDict_GetItemWithError(dict, key));
}

/* A new reference to the instance's own dict; a class has none in this sense. */
static PyObject *
instance_dict(PyObject *value)
{
    if (PyType_Check(value)) {
        return NULL;
    }
    PyObject *dict = PyObject_GenericGetDict(value, NULL);
    if (dict != NULL && !PyDict_Check(dict)) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
instance_attr(PyObject *value, PyObject *name)
{
    PyObject *dict = instance_dict(value);
    PyObject *result = dict == NULL ? NULL : dict_get(dict, name);
    Py_XDECREF(dict);
    return result;
}

static PyObject *
key_at(PyObject *value, Py_ssize_t index)
{
    Py_ssize_t position = 0;
    PyObject *key = NULL;
    if (!PyDict_Check(value) || index < 0 || index >= PyDict_GET_SIZE(value)) {
        return NULL;
    }
    if (PyDict_CheckExact(value)) {
        while (index-- >= 0 && PyDict_Next(value, &position, &key, NULL)) {
        }
        return Py_XNewRef(key);
    }
    PyObject *keys = PySequence_List(value); /* a subclass may keep another order */
    PyObject *result = NULL;
    if (keys != NULL && index < PyList_GET_SIZE(keys)) {
        result = Py_NewRef(PyList_GET_ITEM(keys, index));
    }
    Py_XDECREF(keys);
    return result;
}

/* 1 a class has the name of its own, 0 it has not, -1 it is no class with a dict. */
static int
class_has(PyObject *value, PyObject *name)
{
    PyObject *dict = PyType_Check(value) ? class_dict((PyTypeObject *)value) : NULL;
    int has = dict == NULL ? -1 : PyDict_Contains(dict, name);
    Py_XDECREF(dict);
    return has;
}

static PyObject *
class_entry(PyObject *value, PyObject *name)
{
    PyObject *dict = PyType_Check(value) ? class_dict((PyTypeObject *)value) : NULL;
    PyObject *found = dict == NULL ? NULL : dict_get(dict, name);
    Py_XDECREF(dict);
    return found;
}

PyObject *
take_access(const Step *step, const GuardScope *scope, PyObject *value)
{
    Py_ssize_t n = step->number;
    switch (step->kind) {
    case ACCESS_LOCAL:
        return n < scope->fast_count ? Py_XNewRef(scope->fast[n]) : NULL;
    case ACCESS_FREE:
        if (scope->closure == NULL || n >= PyTuple_GET_SIZE(scope->closure) ||
            !PyCell_Check(PyTuple_GET_ITEM(scope->closure, n))) {
            return NULL;
        }
        return Py_XNewRef(PyCell_GET(PyTuple_GET_ITEM(scope->closure, n)));
    case ACCESS_FREE_CELL:
        return scope->closure != NULL && n < PyTuple_GET_SIZE(scope->closure)
                   ? Py_NewRef(PyTuple_GET_ITEM(scope->closure, n))
                   : NULL;
    case ACCESS_GLOBAL:
        return dict_get(scope->globals, step->object);
    case ACCESS_BUILTIN:
        return dict_get(scope->builtins, step->object);
    case ACCESS_CONSTANT:
        return Py_NewRef(step->object);
    case ACCESS_ATTR:
        return PyObject_GetAttr(value, step->object);
    case ACCESS_INSTANCE_ATTR:
        return instance_attr(value, step->object);
    case ACCESS_CLASS_ENTRY:
        return class_entry(value, step->object);
    case ACCESS_LIST_ITEM:
        if (!PyList_Check(value)) {
            return NULL;
        }
        n += n < 0 ? PyList_GET_SIZE(value) : 0;
        return n >= 0 && n < PyList_GET_SIZE(value) ? Py_NewRef(PyList_GET_ITEM(value, n)) : NULL;
    case ACCESS_TUPLE_ITEM:
        if (!PyTuple_Check(value)) {
            return NULL;
        }
        n += n < 0 ? PyTuple_GET_SIZE(value) : 0;
        return n >= 0 && n < PyTuple_GET_SIZE(value) ? Py_NewRef(PyTuple_GET_ITEM(value, n))
                                                     : NULL;
    case ACCESS_DICT_ITEM:
        return PyDict_Check(value) ? dict_get(value, step->object) : NULL;
    case ACCESS_ANY_ITEM:
        return PyObject_GetItem(value, step->object);
    case ACCESS_DICT_KEY:
        return key_at(value, n);
    case ACCESS_KNOWN_KEY:
        return PyDict_Check(value) && PyDict_Contains(value, step->object) == 1
                   ? Py_NewRef(step->object)
                   : NULL;
    case ACCESS_CALLED:
        return PyObject_CallOneArg(step->object, value);
    default:
        return NULL;
    }
}

/* --- checks: 1 holds, 0 does not; errors are cleared by the traversal ---------------------------- */

static int
length_is(PyObject *value, Py_ssize_t length)
{
    /* of a subclass too: what a `__len__` of its own says is no matter of ours */
    if (PyTuple_Check(value)) {
        return PyTuple_GET_SIZE(value) == length;
    }
    if (PyList_Check(value)) {
        return PyList_GET_SIZE(value) == length;
    }
    if (PyDict_Check(value)) {
        return PyDict_GET_SIZE(value) == length;
    }
    if (PyAnySet_Check(value)) {
        return PySet_GET_SIZE(value) == length;
    }
    PyTypeObject *base = Py_TYPE(value); /* a deque's, or that of what else is built in */
    while (PyType_HasFeature(base, Py_TPFLAGS_HEAPTYPE) && base->tp_base != NULL &&
           !PyType_HasFeature(base, Py_TPFLAGS_IMMUTABLETYPE)) {
        base = base->tp_base;
    }
    lenfunc size = base->tp_as_sequence == NULL ? NULL : base->tp_as_sequence->sq_length;
    return (size == NULL ? PyObject_Size(value) : size(value)) == length;
}

static int
keys_are(PyObject *value, PyObject *keys)
{
    Py_ssize_t position = 0, i = 0;
    PyObject *key;
    if (!PyDict_Check(value) || PyDict_GET_SIZE(value) != PyTuple_GET_SIZE(keys)) {
        return 0;
    }
    if (PyODict_Check(value)) { /* it keeps an order of its own, whatever a subclass iterates over */
        PyObject *iterator = PyODict_Type.tp_iter(value);
        PyObject *actual = iterator == NULL ? NULL : PySequence_Tuple(iterator);
        Py_XDECREF(iterator);
        int same = actual != NULL && same_constant(actual, keys);
        Py_XDECREF(actual);
        return same;
    }
    while (i < PyTuple_GET_SIZE(keys) && PyDict_Next(value, &position, &key, NULL)) {
        Py_INCREF(key); /* comparing may run Python */
        int same = same_constant(key, PyTuple_GET_ITEM(keys, i++));
        Py_DECREF(key);
        if (!same) {
            return 0;
        }
    }
    return i == PyTuple_GET_SIZE(keys);
}

static int
instance_lacks(PyObject *value, PyObject *name)
{
    PyObject *dict = instance_dict(value);
    if (dict == NULL) {
        PyErr_Clear(); /* nothing to hold the name */
        return 1;
    }
    int found = PyDict_Contains(dict, name);
    Py_DECREF(dict);
    return found == 0;
}

static int
has_attr(PyObject *value, PyObject *name)
{
    PyObject *found = NULL;
    int status = lookup_attr(value, name, &found);
    Py_XDECREF(found);
    return status;
}

static int
predicate_holds(PyObject *predicate, PyObject *value)
{
    PyObject *answer = PyObject_CallOneArg(predicate, value);
    int holds = answer == NULL ? 0 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return holds == 1;
}

static int
weak_is(PyObject *reference, PyObject *value)
{
    /* a dead one refers to None; to compare, no reference is taken */
    return value != Py_None && ((PyWeakReference *)reference)->wr_object == value;
}

/* The names of a tuple of rows lead to the same objects in the class and its bases; a row of
   nothing but a name, to none. */
static int
methods_are(PyObject *value, PyObject *rows)
{
    for (Py_ssize_t i = 0; PyType_Check(value) && i < PyTuple_GET_SIZE(rows); i++) {
        PyObject *row = PyTuple_GET_ITEM(rows, i);
        PyObject *found = _PyType_Lookup((PyTypeObject *)value, PyTuple_GET_ITEM(row, 0));
        if (found != (PyTuple_GET_SIZE(row) == 2 ? PyTuple_GET_ITEM(row, 1) : NULL)) {
            return 0;
        }
    }
    return PyType_Check(value);
}

int
check_holds(const Step *step, PyObject *value, PyObject **slots)
{
    switch (step->kind) {
    case CHECK_IS:
        return value == step->object;
    case CHECK_TYPE_IS:
        return (PyObject *)Py_TYPE(value) == step->object;
    case CHECK_SAME:
        return same_constant(step->object, value);
    case CHECK_LENGTH:
        return length_is(value, step->number);
    case CHECK_LIST_LENGTH:
        return PyList_CheckExact(value) && PyList_GET_SIZE(value) == step->number;
    case CHECK_TUPLE_LENGTH:
        return PyTuple_CheckExact(value) && PyTuple_GET_SIZE(value) == step->number;
    case CHECK_DICT_KEYS:
        return keys_are(value, step->object);
    case CHECK_DICT_HAS:
        return PyDict_Check(value) && PyDict_Contains(value, step->object) == 1;
    case CHECK_DICT_LACKS:
        return PyDict_Check(value) && PyDict_Contains(value, step->object) == 0;
    case CHECK_HAS_ATTR:
        return has_attr(value, step->object) == 1;
    case CHECK_LACKS_ATTR:
        return has_attr(value, step->object) == 0;
    case CHECK_INSTANCE_LACKS:
        return instance_lacks(value, step->object);
    case CHECK_WEAK_IS:
        return weak_is(step->object, value);
    case CHECK_TENSOR:
        return tensor_pattern_check(step->object, value);
    case CHECK_STATE:
        return state_pattern_check(step->object);
    case CHECK_PREDICATE:
        return predicate_holds(step->object, value);
    case CHECK_TYPE_METHODS:
        return methods_are(value, step->object);
    case CHECK_CLASS_HAS:
        return class_has(value, step->object) == 1;
    case CHECK_CLASS_LACKS:
        return class_has(value, step->object) == 0;
    case CHECK_PIN:
        Py_XSETREF(slots[step->number], Py_NewRef(value));
        return 1;
    default:
        return 0;
    }
}
