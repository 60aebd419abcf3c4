/* Type-exact equality of constants: 1 is not True, 0.0 is not -0.0, NaN is NaN.
   The Python reference is guards/equality.py. */
#include "flambeau.h"

static int
same_double(double left, double right)
{
    if (left != left || right != right) {
        return left != left && right != right;
    }
    return left == right && copysign(1.0, left) == copysign(1.0, right);
}

static int
same_items(PyObject *left, PyObject *right)
{
    Py_ssize_t count = PyTuple_GET_SIZE(left);
    if (count != PyTuple_GET_SIZE(right)) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!same_constant(PyTuple_GET_ITEM(left, i), PyTuple_GET_ITEM(right, i))) {
            return 0;
        }
    }
    return 1;
}

/* Every element of one is the same as some element of the other. */
static int
same_frozenset(PyObject *left, PyObject *right)
{
    if (PySet_GET_SIZE(left) != PySet_GET_SIZE(right)) {
        return 0;
    }
    PyObject *lefts = PySequence_Tuple(left), *rights = PySequence_Tuple(right);
    int same = lefts != NULL && rights != NULL;
    for (Py_ssize_t i = 0; same && i < PyTuple_GET_SIZE(lefts); i++) {
        int found = 0;
        for (Py_ssize_t j = 0; !found && j < PyTuple_GET_SIZE(rights); j++) {
            found = same_constant(PyTuple_GET_ITEM(lefts, i), PyTuple_GET_ITEM(rights, j));
        }
        same = found;
    }
    Py_XDECREF(lefts);
    Py_XDECREF(rights);
    PyErr_Clear();
    return same;
}

static int
same_by_attributes(PyObject *left, PyObject *right, const char *const *names)
{
    int same = 1;
    for (; same && *names != NULL; names++) {
        PyObject *a = PyObject_GetAttrString(left, *names);
        PyObject *b = PyObject_GetAttrString(right, *names);
        same = a != NULL && b != NULL && same_constant(a, b);
        Py_XDECREF(a);
        Py_XDECREF(b);
    }
    PyErr_Clear();
    return same;
}

static int
same_nested(PyObject *left, PyObject *right)
{
    static const char *const bounds[] = {"start", "stop", "step", NULL};
    if (PyTuple_Check(left)) {
        return same_items(left, right);
    }
    if (PyFrozenSet_CheckExact(left)) {
        return same_frozenset(left, right);
    }
    if (PySlice_Check(left) || PyRange_Check(left)) {
        return same_by_attributes(left, right, bounds);
    }
    int equal = PyObject_RichCompareBool(left, right, Py_EQ);
    if (equal < 0) {
        PyErr_Clear();
        return 0;
    }
    return equal;
}

int
same_constant(PyObject *left, PyObject *right)
{
    if (left == right) {
        return 1;
    }
    if (Py_TYPE(left) != Py_TYPE(right)) {
        return 0;
    }
    if (PyFloat_CheckExact(left)) {
        return same_double(PyFloat_AS_DOUBLE(left), PyFloat_AS_DOUBLE(right));
    }
    if (PyComplex_CheckExact(left)) {
        Py_complex a = PyComplex_AsCComplex(left), b = PyComplex_AsCComplex(right);
        return same_double(a.real, b.real) && same_double(a.imag, b.imag);
    }
    if (Py_EnterRecursiveCall(" while comparing constants")) {
        PyErr_Clear();
        return 0;
    }
    int same = same_nested(left, right);
    Py_LeaveRecursiveCall();
    return same;
}
