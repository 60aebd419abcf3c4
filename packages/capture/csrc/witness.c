/* Naming witnesses: the traversal of a region that writes down what each answer depended on.

   Soundness of a witness: the memory it lies in belongs to an object that the region keeps, and no
   answer it stands for can change without it. Version tags of dicts and classes are never given
   twice (PEP 509; Include/cpython/object.h); pointers are compared only with objects that the
   region keeps, so that an address is not used again. */
#include "recorder.h"

#include "structmember.h"

/* --- attributes ------------------------------------------------------------------------------------------ */

enum found { FOUND, ABSENT, UNNAMED }; /* the last: it depends on what has no witness */

static enum found
instance_dict_of(Recorder *r, PyObject *value, PyObject **dict)
{
    PyObject **place = PyType_Check(value) ? NULL : _PyObject_GetDictPtr(value);
    *dict = place == NULL ? NULL : *place;
    if (*dict == NULL || !PyDict_Check(*dict)) {
        return UNNAMED;
    }
    note_pointer(r, place);
    note_kept(r, *dict);
    return FOUND;
}

static enum found
type_attribute(Recorder *r, PyTypeObject *type, PyObject *name, PyObject **found)
{
    *found = type_attr_stable(type, name);
    if (*found == NULL) {
        return UNNAMED;
    }
    note_class_of(r, (PyObject *)type);
    note_raw_of_type(r, Py_TYPE(type), name);
    note_type_fact(r, type, FACT_TYPE_ATTR, name, *found);
    return FOUND;
}

/* What a class answers for a special name, and what `object` does, both borrowed. */
static PyObject *
special_of_type(Recorder *r, PyTypeObject *type, const char *name, PyObject **of_object)
{
    PyObject *key = PyUnicode_InternFromString(name);
    PyObject *found = key == NULL ? NULL : note_raw_of_type(r, type, key);
    *of_object = key == NULL ? NULL : _PyType_Lookup(&PyBaseObject_Type, key);
    note_kept(r, key);
    Py_XDECREF(key);
    return found;
}

/* Whether reading an attribute that is there is object.__getattribute__'s work. */
static int
reads_generically(Recorder *r, PyTypeObject *type)
{
    if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) {
        return type->tp_getattro == PyObject_GenericGetAttr || type == &PyModule_Type;
    }
    PyObject *of_object;
    PyObject *found = special_of_type(r, type, "__getattribute__", &of_object);
    return found != NULL && found == of_object;
}

static enum found
slot_attribute(Recorder *r, PyObject *value, PyObject *raw, PyObject **found)
{
    PyMemberDef *member = ((PyMemberDescrObject *)raw)->d_member;
    if (member->type != T_OBJECT_EX && member->type != T_OBJECT) {
        return UNNAMED;
    }
    PyObject **place = (PyObject **)((char *)value + member->offset);
    *found = *place;
    if (*found == NULL) {
        return UNNAMED;
    }
    note_pointer(r, place);
    return FOUND;
}

static enum found
instance_attribute(Recorder *r, PyObject *value, PyObject *name, PyObject **found)
{
    PyTypeObject *type = Py_TYPE(value);
    if (!PyUnicode_CheckExact(name) || !reads_generically(r, type)) {
        return UNNAMED;
    }
    note_class_of(r, value);
    PyObject *raw = note_raw_of_type(r, type, name);
    PyTypeObject *kind = raw == NULL ? NULL : Py_TYPE(raw);
    if (kind == &PyMemberDescr_Type) {
        return slot_attribute(r, value, raw, found);
    }
    if (kind != NULL &&
        (kind->tp_descr_set != NULL || PyType_HasFeature(kind, Py_TPFLAGS_HEAPTYPE))) {
        return UNNAMED;
    }
    PyObject *dict = NULL;
    *found = NULL;
    if (_PyObject_GetDictPtr(value) != NULL) {
        if (instance_dict_of(r, value, &dict) == UNNAMED) {
            return UNNAMED;
        }
        *found = note_item(r, dict, name);
    }
    if (*found == NULL && kind != NULL && kind->tp_descr_get == NULL) {
        *found = raw;
    }
    if (*found != NULL) {
        return FOUND;
    }
    /* a `__getattr__` may answer what is not there */
    PyObject *of_object;
    int answers = type->tp_getattro != PyObject_GenericGetAttr ||
                  special_of_type(r, type, "__getattr__", &of_object) != NULL;
    return raw == NULL && !answers ? ABSENT : UNNAMED;
}

static enum found
function_attribute(Recorder *r, PyObject *value, PyObject *name, PyObject **found)
{
    static const struct {
        const char *name;
        size_t offset;
    } fields[] = {
        {"__code__", offsetof(PyFunctionObject, func_code)},
        {"__defaults__", offsetof(PyFunctionObject, func_defaults)},
        {"__kwdefaults__", offsetof(PyFunctionObject, func_kwdefaults)},
        {"__closure__", offsetof(PyFunctionObject, func_closure)},
        {"__globals__", offsetof(PyFunctionObject, func_globals)},
    };
    for (size_t i = 0; i < Py_ARRAY_LENGTH(fields); i++) {
        if (PyUnicode_CompareWithASCIIString(name, fields[i].name) == 0) {
            PyObject **place = (PyObject **)((char *)value + fields[i].offset);
            note_pointer(r, place);
            *found = *place == NULL ? Py_None : *place;
            return FOUND;
        }
    }
    return UNNAMED;
}

static enum found
method_attribute(PyObject *value, PyObject *name, PyObject **found)
{
    if (PyUnicode_CompareWithASCIIString(name, "__self__") == 0) {
        *found = PyMethod_GET_SELF(value);
        return FOUND;
    }
    if (PyUnicode_CompareWithASCIIString(name, "__func__") == 0) {
        *found = PyMethod_GET_FUNCTION(value);
        return FOUND;
    }
    return UNNAMED;
}

static enum found
cell_attribute(Recorder *r, PyObject *value, PyObject *name, PyObject **found)
{
    *found = PyCell_GET(value);
    if (*found == NULL || PyUnicode_CompareWithASCIIString(name, "cell_contents") != 0) {
        return UNNAMED;
    }
    note_pointer(r, &((PyCellObject *)value)->ob_ref);
    return FOUND;
}

static enum found
attribute(Recorder *r, PyObject *value, PyObject *name, PyObject **found)
{
    if (PyType_Check(value)) {
        return type_attribute(r, (PyTypeObject *)value, name, found);
    }
    if (Py_IS_TYPE(value, &PyFunction_Type)) {
        return function_attribute(r, value, name, found);
    }
    if (Py_IS_TYPE(value, &PyMethod_Type)) {
        return method_attribute(value, name, found);
    }
    if (Py_IS_TYPE(value, &PyCell_Type)) {
        return cell_attribute(r, value, name, found);
    }
    return instance_attribute(r, value, name, found);
}

/* --- accesses and checks --------------------------------------------------------------------------------- */

static enum found
list_item(Recorder *r, PyObject *value, Py_ssize_t n, PyObject **found)
{
    if (!PyList_Check(value)) {
        return UNNAMED;
    }
    n += n < 0 ? PyList_GET_SIZE(value) : 0;
    if (n < 0 || n >= PyList_GET_SIZE(value)) {
        return UNNAMED;
    }
    /* checked in this order: the items are looked at only where they are still the list's */
    note_pointer(r, &((PyListObject *)value)->ob_item);
    note_pointer(r, &((PyVarObject *)value)->ob_size);
    *found = PyList_GET_ITEM(value, n);
    note_pointer(r, &((PyListObject *)value)->ob_item[n]);
    return FOUND;
}

static enum found
tuple_item(Recorder *r, PyObject *value, Py_ssize_t n, PyObject **found)
{
    if (!PyTuple_Check(value)) {
        return UNNAMED;
    }
    n += n < 0 ? PyTuple_GET_SIZE(value) : 0;
    if (n < 0 || n >= PyTuple_GET_SIZE(value)) {
        return UNNAMED;
    }
    /* a tuple does not change, but another one may lie where one lay that is not kept */
    note_pointer(r, &((PyVarObject *)value)->ob_size);
    *found = PyTuple_GET_ITEM(value, n);
    note_pointer(r, &((PyTupleObject *)value)->ob_item[n]);
    return FOUND;
}

/* Where an access leads, borrowed, with its witnesses. */
static enum found
access_named(Recorder *r, const Step *step, PyObject *value, PyObject **found)
{
    PyObject *dict;
    switch (step->kind) {
    case ACCESS_CONSTANT:
        *found = step->object;
        return FOUND;
    case ACCESS_GLOBAL:
    case ACCESS_BUILTIN:
        dict = step->kind == ACCESS_GLOBAL ? r->scope->globals : r->scope->builtins;
        *found = note_item(r, dict, step->object);
        return *found == NULL ? UNNAMED : FOUND;
    case ACCESS_ATTR:
        return attribute(r, value, step->object, found);
    case ACCESS_INSTANCE_ATTR:
        if (instance_dict_of(r, value, &dict) == UNNAMED) {
            return UNNAMED;
        }
        *found = note_item(r, dict, step->object);
        return *found == NULL ? UNNAMED : FOUND;
    case ACCESS_LIST_ITEM:
        return list_item(r, value, step->number, found);
    case ACCESS_TUPLE_ITEM:
        return tuple_item(r, value, step->number, found);
    case ACCESS_DICT_ITEM:
        *found = PyDict_Check(value) ? note_item(r, value, step->object) : NULL;
        return *found == NULL ? UNNAMED : FOUND;
    default:
        return UNNAMED;
    }
}

/* Whether comparing with it depends on nothing that may change. */
static int
is_atom(PyObject *value)
{
    return PyLong_CheckExact(value) || PyFloat_CheckExact(value) || PyUnicode_CheckExact(value) ||
           PyBytes_CheckExact(value) || PyBool_Check(value) || PyComplex_CheckExact(value) ||
           value == Py_None || value == Py_Ellipsis;
}

static int
atoms_only(PyObject *keys)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++) {
        if (!is_atom(PyTuple_GET_ITEM(keys, i))) {
            return 0;
        }
    }
    return 1;
}

static int
length_named(Recorder *r, const Step *step, PyObject *value)
{
    if (PyTuple_CheckExact(value) || PyList_CheckExact(value)) {
        note_pointer(r, &((PyVarObject *)value)->ob_size);
        return 1;
    }
    if (PyDict_CheckExact(value) || PyODict_CheckExact(value)) {
        note_dict_fact(r, value, (Fact){.kind = FACT_CHECK, .step = step});
        return 1;
    }
    return 0;
}

static int
attribute_check_named(Recorder *r, const Step *step, PyObject *value)
{
    PyObject *found;
    PyObject *name = step->object;
    if (step->kind == CHECK_LACKS_ATTR && PyType_Check(value)) {
        PyTypeObject *meta = Py_TYPE(value);
        if (meta->tp_getattro != PyType_Type.tp_getattro || !PyUnicode_CheckExact(name)) {
            return 0;
        }
        note_class_of(r, value);
        PyObject *of_meta = note_raw_of_type(r, meta, name);
        return note_raw_of_type(r, (PyTypeObject *)value, name) == NULL && of_meta == NULL;
    }
    if (step->kind == CHECK_LACKS_ATTR) {
        return attribute(r, value, name, &found) == ABSENT;
    }
    if (attribute(r, value, name, &found) != FOUND) {
        return 0;
    }
    note_kept(r, found);
    return 1;
}

/* A check that holds: whether its witnesses say all that it depends on. */
static int
check_named(Recorder *r, const Step *step, PyObject *value)
{
    PyObject *dict;
    switch (step->kind) {
    case CHECK_IS:
    case CHECK_WEAK_IS: /* that the object lives is what the region ends with */
        return 1;
    case CHECK_TYPE_IS:
        note_class_of(r, value);
        return 1;
    case CHECK_SAME:
        return value == step->object || is_atom(value);
    case CHECK_LENGTH:
    case CHECK_LIST_LENGTH:
    case CHECK_TUPLE_LENGTH:
        return length_named(r, step, value);
    case CHECK_DICT_KEYS:
        if (!PyDict_CheckExact(value) || !atoms_only(step->object)) {
            return 0;
        }
        note_dict_fact(r, value, (Fact){.kind = FACT_CHECK, .step = step});
        return 1;
    case CHECK_DICT_HAS:
    case CHECK_DICT_LACKS:
        if (!is_atom(step->object)) {
            return 0;
        }
        note_dict_fact(r, value, (Fact){.kind = FACT_CHECK, .step = step});
        return 1;
    case CHECK_HAS_ATTR:
    case CHECK_LACKS_ATTR:
        return attribute_check_named(r, step, value);
    case CHECK_INSTANCE_LACKS:
        if (_PyObject_GetDictPtr(value) == NULL && !PyType_Check(value)) {
            return 1;
        }
        if (instance_dict_of(r, value, &dict) == UNNAMED) {
            return 0;
        }
        return note_item(r, dict, step->object) == NULL && !PyErr_Occurred();
    case CHECK_TYPE_METHODS:
    case CHECK_CLASS_HAS:
    case CHECK_CLASS_LACKS:
        if (PyType_HasFeature((PyTypeObject *)value, Py_TPFLAGS_IMMUTABLETYPE)) {
            return 1;
        }
        if (type_version((PyTypeObject *)value) == NEVER) {
            return 0;
        }
        note_fact(r,
             note_word(r, &((PyTypeObject *)value)->tp_version_tag,
                  type_version((PyTypeObject *)value)),
             (Fact){.kind = FACT_CHECK, .owner = value, .step = step});
        return 1;
    case CHECK_TENSOR:
        if (!tensor_pattern_is_native(step->object)) {
            return 0;
        }
        r->failed |= PUSH(r->region->tensors, ((TensorFact){value, step->object})) < 0;
        return 1;
    case CHECK_PIN:
        r->failed |= PUSH(r->region->pins, ((Pinned){step->number, value})) < 0;
        return 1;
    default:
        return 0;
    }
}

/* --- the traversal ---------------------------------------------------------------------------------------- */

/* Whether nothing but a pointer says what an access leads to: no version tag, no reference of the
   tree's own. A container that is not kept is then looked into only while it is of its class. */
static int
reached_by_pointer(const Step *step)
{
    return step->kind == ACCESS_ATTR || step->kind == ACCESS_LIST_ITEM ||
           step->kind == ACCESS_TUPLE_ITEM;
}

static int record(Recorder *r, Py_ssize_t index, PyObject *value, PyObject **slots);

static int
record_child(Recorder *r, Py_ssize_t child, PyObject *value, PyObject **slots)
{
    const Step *step = &r->tree->nodes[child].access;
    PyObject *next = take_access(step, r->scope, value);
    if (next == NULL) {
        return 0;
    }
    PyObject *named = NULL;
    int holds;
    if (access_named(r, step, value, &named) == FOUND && named == next) {
        if (holding_of(next) == FOLLOWED && reached_by_pointer(step)) {
            note_class_of(r, next);
        }
        holds = record(r, child, next, slots);
    }
    else {
        Residue residue = {value, NULL, child};
        r->failed |= PUSH(r->region->residues, residue) < 0;
        holds = subtree_holds(r->tree, child, next, r->scope, slots);
    }
    Py_DECREF(next);
    return holds;
}

static int
record(Recorder *r, Py_ssize_t index, PyObject *value, PyObject **slots)
{
    const Node *node = &r->tree->nodes[index];
    note_kept(r, value);
    for (Py_ssize_t i = 0; i < node->check_count; i++) {
        const Step *step = &r->tree->checks[node->first_check + i];
        if (!check_holds(step, value, slots)) {
            return 0;
        }
        if (!check_named(r, step, value)) {
            Residue residue = {value, step, 0};
            r->failed |= PUSH(r->region->residues, residue) < 0;
        }
        if (PyErr_Occurred()) {
            PyErr_Clear();
            r->failed = 1;
        }
    }
    for (Py_ssize_t child = index + 1; child < node->end; child = r->tree->nodes[child].end) {
        if (!record_child(r, child, value, slots)) {
            return 0;
        }
    }
    return 1;
}

int
region_record(const GuardTreeObject *tree, Region *region, Py_ssize_t index,
              Py_ssize_t first_child, PyObject *value, const GuardScope *scope, PyObject **slots)
{
    Recorder r = {.tree = tree, .region = region, .scope = scope};
    const Node *node = &tree->nodes[index];
    int holds = 1;
    region->busy = 1;
    if (first_child == index + 1) {
        holds = record(&r, index, value, slots);
    }
    else {
        /* the frame itself: what starts at its globals and builtins, and at kept objects */
        region->globals = scope->globals;
        region->builtins = scope->builtins;
        note_kept(&r, scope->globals);
        note_kept(&r, scope->builtins);
        for (Py_ssize_t child = first_child; holds && child < node->end;
             child = tree->nodes[child].end) {
            holds = record_child(&r, child, value, slots);
        }
    }
    PyMem_Free(r.buckets);
    PyMem_Free(r.kept_buckets);
    region->busy = 0;
    if (PyErr_Occurred()) {
        PyErr_Clear();
        r.failed = 1;
    }
    if (!holds || r.failed || region->over) {
        region_drop(region);
    }
    else {
        region->armed = 1;
    }
    return holds;
}
