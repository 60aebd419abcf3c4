/* TensorLayout and TensorPattern: the check of a tensor's metadata by reading its fields.

   Nothing of torch is included: where the fields lie is found out at run time by
   guards/_tensor_layout.py, from tensors whose metadata are known, and handed in as offsets.
   A pattern reads fields only of objects whose class is exactly the one it was made from (a class
   that the layout was verified on); for any other tensor it calls a Python predicate. */
#include "flambeau.h"

#define OFFSETS(X)                                                                                \
    X(impl) X(key_set) X(dtype) X(device) X(ndim) X(dims) X(autograd_meta) X(requires_grad)       \
    X(grad_fn)
#define INLINE_DIMS 5 /* more dimensions than this are stored out of line */

typedef struct {
    PyObject_HEAD
#define FIELD(name) Py_ssize_t name;
    OFFSETS(FIELD)
} TensorLayout;

typedef struct {
    PyObject_HEAD
    PyTypeObject *cls;
    PyObject *predicate;   /* called when there is no layout */
    TensorLayout *layout;  /* or NULL */
    uint64_t key_set;
    uint16_t dtype;
    uint16_t device; /* type and index, a byte each */
    char requires_grad;
    Py_ssize_t ndim;
    int64_t *dims; /* sizes, then strides */
    char *fixed;   /* for each of them, whether it is compared */
} TensorPattern;

#define AT(type, base, offset) (*(const type *)((const char *)(base) + (offset)))

static const int64_t *
dims_of(const TensorLayout *layout, const char *impl, Py_ssize_t ndim)
{
    return ndim <= INLINE_DIMS ? &AT(int64_t, impl, layout->dims)
                               : AT(const int64_t *, impl, layout->dims);
}

static Py_ssize_t
stride_start(Py_ssize_t ndim)
{
    return ndim <= INLINE_DIMS ? INLINE_DIMS : ndim;
}

/* A view that was made while derivatives were off requires grad if its base does. Where that is
   kept is not among the offsets: a tensor that has an autograd part, and neither the flag nor a
   function in it, is queried by its attribute. */
static int
reads_requires_grad(const TensorLayout *layout, PyObject *tensor)
{
    const char *impl = AT(const char *, tensor, layout->impl);
    const char *meta = AT(const char *, impl, layout->autograd_meta);
    if (meta == NULL) {
        return 0;
    }
    if (AT(unsigned char, meta, layout->requires_grad) != 0 ||
        AT(const void *, meta, layout->grad_fn) != NULL) {
        return 1;
    }
    PyObject *answer = PyObject_GetAttrString(tensor, "requires_grad");
    int found = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    if (found < 0) {
        PyErr_Clear();
    }
    return found;
}

static int
fields_match(const TensorPattern *pattern, PyObject *tensor)
{
    const TensorLayout *layout = pattern->layout;
    const char *impl = AT(const char *, tensor, layout->impl);
    if (impl == NULL || AT(uint64_t, impl, layout->key_set) != pattern->key_set ||
        AT(uint16_t, impl, layout->dtype) != pattern->dtype ||
        AT(uint16_t, impl, layout->device) != pattern->device ||
        AT(Py_ssize_t, impl, layout->ndim) != pattern->ndim) {
        return 0;
    }
    Py_ssize_t ndim = pattern->ndim;
    const int64_t *sizes = dims_of(layout, impl, ndim);
    const int64_t *strides = sizes + stride_start(ndim);
    for (Py_ssize_t i = 0; i < ndim; i++) {
        if ((pattern->fixed[i] && sizes[i] != pattern->dims[i]) ||
            (pattern->fixed[ndim + i] && strides[i] != pattern->dims[ndim + i])) {
            return 0;
        }
    }
    return reads_requires_grad(layout, tensor) == pattern->requires_grad;
}

int
tensor_pattern_check(PyObject *self, PyObject *value)
{
    TensorPattern *pattern = (TensorPattern *)self;
    if (Py_TYPE(value) != pattern->cls) {
        return 0;
    }
    if (pattern->layout != NULL) {
        return fields_match(pattern, value);
    }
    PyObject *answer = PyObject_CallOneArg(pattern->predicate, value);
    int holds = answer == NULL ? 0 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return holds == 1;
}

int
tensor_pattern_is_native(PyObject *self)
{
    return ((TensorPattern *)self)->layout != NULL;
}

static int
ask_dimension(PyObject *tensor, int stride, Py_ssize_t dim, int64_t *out)
{
    PyObject *answer = PyObject_CallMethod(tensor, stride ? "stride" : "size", "n", dim);
    *out = answer == NULL ? -1 : PyLong_AsLongLong(answer);
    Py_XDECREF(answer);
    return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

int
tensor_dimension(PyObject *layout, PyObject *tensor, int stride, Py_ssize_t dim, int64_t *out)
{
    if (layout == Py_None) {
        return ask_dimension(tensor, stride, dim, out);
    }
    const TensorLayout *offsets = (TensorLayout *)layout;
    const char *impl = AT(const char *, tensor, offsets->impl);
    Py_ssize_t ndim = impl == NULL ? 0 : AT(Py_ssize_t, impl, offsets->ndim);
    if (dim < 0 || dim >= ndim) {
        return -1;
    }
    *out = dims_of(offsets, impl, ndim)[(stride ? stride_start(ndim) : 0) + dim];
    return 0;
}

/* --- TensorLayout ------------------------------------------------------------------------------------ */

static PyObject *
layout_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
#define NAME(name) #name,
#define ADDRESS(name) , &offsets.name
    static char *names[] = {OFFSETS(NAME) NULL};
    TensorLayout offsets;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "nnnnnnnnn:TensorLayout",
                                     names OFFSETS(ADDRESS))) {
        return NULL;
    }
    TensorLayout *layout = (TensorLayout *)type->tp_alloc(type, 0);
    if (layout != NULL) {
#define COPY(name) layout->name = offsets.name;
        OFFSETS(COPY)
    }
    return (PyObject *)layout;
}

static PyObject *
int_tuple(const int64_t *values, Py_ssize_t count)
{
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) {
        PyObject *item = PyLong_FromLongLong(values[i]);
        if (item == NULL) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, i, item);
    }
    return tuple;
}

/* What the fields say of a tensor, for the caller to compare with what torch says. */
static PyObject *
layout_read(TensorLayout *layout, PyObject *tensor)
{
    const char *impl = AT(const char *, tensor, layout->impl);
    if (impl == NULL) {
        PyErr_SetString(PyExc_ValueError, "the tensor has no implementation");
        return NULL;
    }
    Py_ssize_t ndim = AT(Py_ssize_t, impl, layout->ndim);
    if (ndim < 0 || ndim > 64) {
        PyErr_Format(PyExc_ValueError, "%zd is no number of dimensions", ndim);
        return NULL;
    }
    const int64_t *sizes = dims_of(layout, impl, ndim);
    PyObject *size_tuple = int_tuple(sizes, ndim);
    PyObject *stride_tuple = int_tuple(sizes + stride_start(ndim), ndim);
    if (size_tuple == NULL || stride_tuple == NULL) {
        Py_XDECREF(size_tuple);
        Py_XDECREF(stride_tuple);
        return NULL;
    }
    return Py_BuildValue("{sKsHsHsNsNsN}", "key_set",
                         (unsigned long long)AT(uint64_t, impl, layout->key_set), "dtype",
                         AT(uint16_t, impl, layout->dtype), "device",
                         AT(uint16_t, impl, layout->device), "sizes", size_tuple, "strides",
                         stride_tuple, "requires_grad",
                         PyBool_FromLong(reads_requires_grad(layout, tensor) == 1));
}

static PyMethodDef layout_methods[] = {
    {"read", (PyCFunction)layout_read, METH_O, "read(tensor) -> dict of its fields"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef layout_members[] = {
#define MEMBER(name) {#name, T_PYSSIZET, offsetof(TensorLayout, name), READONLY, NULL},
    OFFSETS(MEMBER){NULL, 0, 0, 0, NULL},
};

PyTypeObject TensorLayout_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau_capture._C.TensorLayout",
    .tp_doc = "TensorLayout(impl, key_set, ...): where the fields of a tensor lie, in bytes.",
    .tp_basicsize = sizeof(TensorLayout),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = layout_new,
    .tp_methods = layout_methods,
    .tp_members = layout_members,
};

/* --- TensorPattern ------------------------------------------------------------------------------------- */

static int
fill_dims(TensorPattern *pattern, Py_ssize_t start, PyObject *dims)
{
    for (Py_ssize_t i = 0; i < pattern->ndim; i++) {
        PyObject *dim = PyTuple_GET_ITEM(dims, i);
        if (dim == Py_None) {
            continue;
        }
        pattern->fixed[start + i] = 1;
        pattern->dims[start + i] = PyLong_AsLongLong(dim);
        if (pattern->dims[start + i] == -1 && PyErr_Occurred()) {
            return -1;
        }
    }
    return 0;
}

static PyObject *
pattern_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"cls", "predicate", "layout", "key_set", "dtype", "device",
                            "requires_grad", "sizes", "strides", NULL};
    PyObject *cls, *predicate, *layout = Py_None, *sizes = NULL, *strides = NULL;
    unsigned long long key_set = 0;
    unsigned short dtype = 0, device = 0;
    int requires_grad = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O|OKHHpO!O!:TensorPattern", names,
                                     &PyType_Type, &cls, &predicate, &layout, &key_set, &dtype,
                                     &device, &requires_grad, &PyTuple_Type, &sizes, &PyTuple_Type,
                                     &strides)) {
        return NULL;
    }
    if (layout != Py_None &&
        (!Py_IS_TYPE(layout, &TensorLayout_Type) || sizes == NULL || strides == NULL ||
         PyTuple_GET_SIZE(sizes) != PyTuple_GET_SIZE(strides))) {
        PyErr_SetString(PyExc_TypeError, "a pattern with a layout takes sizes and strides");
        return NULL;
    }
    TensorPattern *pattern = (TensorPattern *)type->tp_alloc(type, 0);
    if (pattern == NULL) {
        return NULL;
    }
    pattern->cls = (PyTypeObject *)Py_NewRef(cls);
    pattern->predicate = Py_NewRef(predicate);
    if (layout == Py_None) {
        return (PyObject *)pattern;
    }
    pattern->layout = (TensorLayout *)Py_NewRef(layout);
    pattern->key_set = key_set;
    pattern->dtype = dtype;
    pattern->device = device;
    pattern->requires_grad = (char)requires_grad;
    pattern->ndim = PyTuple_GET_SIZE(sizes);
    size_t count = 2 * (size_t)pattern->ndim + 1;
    pattern->dims = PyMem_Calloc(count, sizeof(int64_t));
    pattern->fixed = PyMem_Calloc(count, 1);
    if (pattern->dims == NULL || pattern->fixed == NULL) {
        PyErr_NoMemory();
    }
    else if (fill_dims(pattern, 0, sizes) == 0 && fill_dims(pattern, pattern->ndim, strides) == 0) {
        return (PyObject *)pattern;
    }
    Py_DECREF(pattern);
    return NULL;
}

static void
pattern_dealloc(TensorPattern *pattern)
{
    Py_XDECREF(pattern->cls);
    Py_XDECREF(pattern->predicate);
    Py_XDECREF(pattern->layout);
    PyMem_Free(pattern->dims);
    PyMem_Free(pattern->fixed);
    Py_TYPE(pattern)->tp_free((PyObject *)pattern);
}

static PyObject *
pattern_check(PyObject *self, PyObject *value)
{
    int holds = tensor_pattern_check(self, value);
    PyErr_Clear();
    return PyBool_FromLong(holds);
}

static PyObject *
pattern_is_native(TensorPattern *pattern, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(pattern->layout != NULL);
}

static PyMethodDef pattern_methods[] = {
    {"check", pattern_check, METH_O, "check(value) -> bool"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef pattern_getset[] = {
    {"native", (getter)pattern_is_native, NULL, "whether fields are read directly", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject TensorPattern_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau_capture._C.TensorPattern",
    .tp_doc = "TensorPattern(cls, predicate, layout=None, ...): what a tensor must look like.",
    .tp_basicsize = sizeof(TensorPattern),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = pattern_new,
    .tp_dealloc = (destructor)pattern_dealloc,
    .tp_methods = pattern_methods,
    .tp_getset = pattern_getset,
};

/* read_bytes(address, count): for the search for the fields; the caller vouches for the range. */
PyObject *
read_bytes(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long address;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "Kn:read_bytes", &address, &count)) {
        return NULL;
    }
    return PyBytes_FromStringAndSize((const char *)(uintptr_t)address, count);
}
