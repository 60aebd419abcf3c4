/* The hash table of a set: its slots, those of removed keys too, decide in which order it iterates,
   what `pop` takes, and where the next key goes. */
#include "flambeau.h"

/* A slot whose key was removed has a marker for a key, and the hash that no key has. */
static int
is_removed(const setentry *slot)
{
    return slot->key != NULL && slot->hash == -1;
}

/* same_set_table(a, b): whether the tables are alike, slot by slot. */
PyObject *
same_set_table(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *one, *other;
    if (!PyArg_ParseTuple(args, "OO:same_set_table", &one, &other)) {
        return NULL;
    }
    if (!PyAnySet_Check(one) || !PyAnySet_Check(other)) {
        Py_RETURN_FALSE;
    }
    PySetObject *a = (PySetObject *)one, *b = (PySetObject *)other;
    if (a->fill != b->fill || a->used != b->used || a->mask != b->mask || a->finger != b->finger) {
        Py_RETURN_FALSE;
    }
    for (Py_ssize_t i = 0; i <= a->mask; i++) {
        const setentry *x = &a->table[i], *y = &b->table[i];
        int alike = x->hash == y->hash && (x->key == NULL) == (y->key == NULL);
        if (!alike || (x->key != NULL && !is_removed(x) && !same_constant(x->key, y->key))) {
            Py_RETURN_FALSE;
        }
    }
    Py_RETURN_TRUE;
}

/* fill_like(target, model, items): give a set without items the table of another; items: a tuple of
   what stands for its keys, in the order in which it iterates, or None for themselves. */
static int
copy_table(PySetObject *target, PySetObject *model, PyObject *items)
{
    if (items != Py_None && PyTuple_GET_SIZE(items) != model->used) {
        PyErr_SetString(PyExc_ValueError, "another number of items");
        return -1;
    }
    setentry *table = target->smalltable;
    if (model->mask >= PySet_MINSIZE) {
        table = PyMem_New(setentry, model->mask + 1);
        if (table == NULL) {
            PyErr_NoMemory();
            return -1;
        }
    }
    if (target->table != target->smalltable) {
        PyMem_Free(target->table);
    }
    memcpy(table, model->table, sizeof(setentry) * (model->mask + 1));
    for (Py_ssize_t i = 0, found = 0; i <= model->mask; i++) {
        if (table[i].key != NULL && !is_removed(&table[i])) {
            if (items != Py_None) {
                table[i].key = PyTuple_GET_ITEM(items, found++);
            }
            Py_INCREF(table[i].key);
        }
    }
    target->table = table;
    target->fill = model->fill;
    target->used = model->used;
    target->mask = model->mask;
    target->finger = model->finger;
    return 0;
}

PyObject *
fill_like(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *target, *model, *items = Py_None;
    if (!PyArg_ParseTuple(args, "OO|O:fill_like", &target, &model, &items)) {
        return NULL;
    }
    int fit = PySet_Check(target) && PySet_GET_SIZE(target) == 0 && PyAnySet_Check(model);
    if (!fit || (items != Py_None && !PyTuple_CheckExact(items))) {
        PyErr_SetString(PyExc_TypeError, "a set without items, a set, a tuple are expected");
        return NULL;
    }
    if (copy_table((PySetObject *)target, (PySetObject *)model, items) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* set_like(frozen, model, items): a new set or frozenset with the table of another. */
PyObject *
set_like(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *model, *items = Py_None;
    int frozen;
    if (!PyArg_ParseTuple(args, "pO|O:set_like", &frozen, &model, &items)) {
        return NULL;
    }
    if (!PyAnySet_Check(model) || (items != Py_None && !PyTuple_CheckExact(items))) {
        PyErr_SetString(PyExc_TypeError, "a set, a tuple are expected");
        return NULL;
    }
    PyObject *made = frozen ? PyFrozenSet_New(NULL) : PySet_New(NULL);
    if (made != NULL && copy_table((PySetObject *)made, (PySetObject *)model, items) < 0) {
        Py_CLEAR(made);
    }
    return made;
}
