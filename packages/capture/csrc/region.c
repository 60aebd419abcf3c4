/* The life of a region: asking its witnesses, what changed where a version tag did, and the end. */
#include "region.h"

#define PATIENCE_MAX 1024

int
vector_room(void *vector, size_t item_size)
{
    VECTOR(char) *any = vector;
    if (any->count < any->room) {
        return 0;
    }
    Py_ssize_t room = any->room == 0 ? 16 : any->room * 2;
    char *at = PyMem_Realloc(any->at, (size_t)room * item_size);
    if (at == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    any->at = at;
    any->room = room;
    return 0;
}

/* --- what a region holds -------------------------------------------------------------------------- */

static void
end_dealloc(PyObject *self)
{
    Py_TYPE(self)->tp_free(self);
}

PyTypeObject RegionEnd_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau_capture._C.RegionEnd",
    .tp_basicsize = sizeof(RegionEndObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = end_dealloc,
};

static PyObject *
ended(PyObject *self, PyObject *Py_UNUSED(reference))
{
    Region *region = ((RegionEndObject *)self)->region;
    if (region != NULL && region->busy) {
        region->over = 1;
    }
    else if (region != NULL) {
        region_drop(region);
    }
    Py_RETURN_NONE;
}

static PyMethodDef ended_method = {"ended", ended, METH_O, NULL};

static PyTypeObject *followed_class; /* as containers are: tensors, which must not be watched */

PyObject *
follow(PyObject *Py_UNUSED(module), PyObject *python_class)
{
    if (!PyType_Check(python_class)) {
        PyErr_SetString(PyExc_TypeError, "follow takes a class");
        return NULL;
    }
    Py_XSETREF(followed_class, (PyTypeObject *)Py_NewRef(python_class));
    Py_RETURN_NONE;
}

/* Whether a weak reference to the object may have a callback. A threading.local clears its weak
   references while the collector still sees it: a collection in a callback would end it twice. */
static int
callback_is_borne(PyObject *object)
{
    const PyTypeObject *base = Py_TYPE(object);
    while (base != NULL && strcmp(base->tp_name, "_thread._local") != 0) {
        base = base->tp_base;
    }
    return base == NULL;
}

PyObject *
bears_callback(PyObject *Py_UNUSED(module), PyObject *object)
{
    return PyBool_FromLong(callback_is_borne(object));
}

enum holding
holding_of(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    if (followed_class != NULL && PyObject_TypeCheck(object, followed_class)) {
        return FOLLOWED;
    }
    int of_interpreter = PyType_Check(object) &&
                         PyType_HasFeature((PyTypeObject *)object, Py_TPFLAGS_IMMUTABLETYPE);
    if (type->tp_weaklistoffset != 0) { /* negative where the interpreter manages it */
        return of_interpreter ? KEPT : callback_is_borne(object) ? WATCHED : UNHELD;
    }
    int container = PyDict_Check(object) || PyList_Check(object) || PyTuple_Check(object) ||
                    PyCell_Check(object);
    return container ? FOLLOWED : KEPT;
}

PyObject *
region_hold(Region *region, PyObject *object)
{
    if (holding_of(object) == KEPT) {
        return Py_NewRef(object);
    }
    if (region->end == NULL) {
        region->end = PyObject_New(RegionEndObject, &RegionEnd_Type);
        if (region->end == NULL) {
            return NULL;
        }
        region->end->region = region;
        region->on_end = PyCFunction_New(&ended_method, (PyObject *)region->end);
    }
    return region->on_end == NULL ? NULL : PyWeakref_NewRef(object, region->on_end);
}

static inline uint64_t
word_at(const void *address)
{
    uint64_t word;
    memcpy(&word, address, sizeof(word));
    return word;
}

/* --- version tags: NEVER where there is none that can be relied on ------------------------------- */

uint64_t
dict_version(PyObject *dict)
{
    const uint64_t *tag = dict_tag(dict);
    return tag != NULL ? *tag : NEVER;
}

/* The tag with the padding after it. */
uint64_t
type_version(PyTypeObject *type)
{
    return type_has_tag(type) ? word_at(&type->tp_version_tag) : NEVER;
}

PyObject *
type_attr_stable(PyTypeObject *type, PyObject *name)
{
    PyTypeObject *meta = Py_TYPE(type);
    if (meta->tp_getattro != PyType_Type.tp_getattro || !PyUnicode_CheckExact(name)) {
        return NULL;
    }
    PyObject *of_meta = _PyType_Lookup(meta, name);
    if (of_meta != NULL && Py_TYPE(of_meta)->tp_descr_set != NULL) {
        return NULL;
    }
    PyObject *raw = _PyType_Lookup(type, name);
    if (raw == NULL) {
        return NULL;
    }
    PyTypeObject *kind = Py_TYPE(raw);
    int answers_itself = kind->tp_descr_get == NULL || kind == &PyFunction_Type ||
                         kind == &PyProperty_Type || kind == &PyMethodDescr_Type ||
                         kind == &PyWrapperDescr_Type || kind == &PyMemberDescr_Type ||
                         kind == &PyGetSetDescr_Type;
    return answers_itself && !PyType_HasFeature(kind, Py_TPFLAGS_HEAPTYPE) ? raw : NULL;
}

/* --- asking ------------------------------------------------------------------------------------------ */

static int
fact_holds_of(const Fact *fact)
{
    PyObject *found;
    switch (fact->kind) {
    case FACT_ITEM:
    case FACT_ABSENT:
        found = PyDict_GetItemWithError(fact->owner, fact->key);
        break;
    case FACT_CHECK:
        return check_holds(fact->step, fact->owner, NULL);
    case FACT_TYPE_RAW:
        found = _PyType_Lookup((PyTypeObject *)fact->owner, fact->key);
        break;
    case FACT_TYPE_ATTR:
        found = type_attr_stable((PyTypeObject *)fact->owner, fact->key);
        break;
    default:
        return 0;
    }
    /* one that is not kept may have gone, and another object may lie where it lay */
    return !PyErr_Occurred() && found == fact->found &&
           (fact->followed == NULL || Py_TYPE(found) == fact->followed);
}

static int
fact_holds(const Fact *fact)
{
    PyObject *owner = Py_NewRef(fact->owner); /* comparing keys may run Python, which may end it */
    int holds = fact_holds_of(fact);
    Py_DECREF(owner);
    return holds;
}

/* A word changed: 1 nothing that was read has, 0 something did or may have. */
static int
word_is_explained(Region *region, Py_ssize_t i)
{
    int first = region->facts_of.at[i];
    if (first < 0) {
        return 0;
    }
    for (int at = first; at >= 0; at = region->facts.at[at].next) {
        if (!fact_holds(&region->facts.at[at]) || region->over) {
            return 0;
        }
    }
    PyObject *owner = region->facts.at[first].owner;
    region->words.at[i].expected =
        PyType_Check(owner) ? type_version((PyTypeObject *)owner) : dict_version(owner);
    return 1;
}

static int
words_hold(Region *region)
{
    const Word *words = region->words.at;
    for (Py_ssize_t i = 0; i < region->words.count; i++) {
        if (word_at(words[i].address) != words[i].expected && !word_is_explained(region, i)) {
            return 0;
        }
    }
    return 1;
}

static int
residue_holds(const GuardTreeObject *tree, const Residue *residue, const GuardScope *scope,
              PyObject **slots)
{
    if (residue->check != NULL) {
        return check_holds(residue->check, residue->value, slots);
    }
    PyObject *next = take_access(&tree->nodes[residue->child].access, scope, residue->value);
    int holds = next != NULL && subtree_holds(tree, residue->child, next, scope, slots);
    Py_XDECREF(next);
    return holds;
}

static int
rest_holds(const GuardTreeObject *tree, Region *region, const GuardScope *scope, PyObject **slots)
{
    for (Py_ssize_t i = 0; i < region->tensors.count; i++) {
        if (!tensor_pattern_check(region->tensors.at[i].pattern, region->tensors.at[i].tensor)) {
            return 0;
        }
    }
    for (Py_ssize_t i = 0; i < region->pins.count; i++) {
        Py_XSETREF(slots[region->pins.at[i].slot], Py_NewRef(region->pins.at[i].value));
    }
    /* they may run Python, after which a later one's value need not be there any more */
    for (Py_ssize_t i = 0; i < region->residues.count; i++) {
        Py_INCREF(region->residues.at[i].value);
    }
    int holds = 1;
    for (Py_ssize_t i = 0; i < region->residues.count; i++) {
        const Residue *residue = &region->residues.at[i];
        holds = holds && residue_holds(tree, residue, scope, slots);
        Py_DECREF(residue->value);
    }
    return holds;
}

enum verdict
region_check(const GuardTreeObject *tree, Region *region, const GuardScope *scope,
             PyObject **slots)
{
    /* a question may run Python, which may come here again */
    if (!region->armed || region->busy) {
        return REGION_UNKNOWN;
    }
    if (region->globals != NULL &&
        (region->globals != scope->globals || region->builtins != scope->builtins)) {
        return REGION_UNKNOWN;
    }
    region->busy = 1;
    enum verdict verdict = REGION_UNKNOWN;
    if (words_hold(region)) {
        verdict = rest_holds(tree, region, scope, slots) ? REGION_HOLDS : REGION_FAILS;
    }
    region->busy = 0;
    if (region->over) {
        verdict = REGION_UNKNOWN;
    }
    if (PyErr_Occurred()) {
        PyErr_Clear();
    }
    if (verdict == REGION_UNKNOWN) {
        region_drop(region);
        region->patience = region->patience < PATIENCE_MAX ? 2 * region->patience + 1
                                                           : PATIENCE_MAX;
    }
    return verdict;
}

int
region_is_due(Region *region)
{
    return !region->armed && !region->busy && region->calm++ >= region->patience;
}

/* --- the end ------------------------------------------------------------------------------------------- */

#define FREE(vector) (PyMem_Free((vector).at), memset(&(vector), 0, sizeof(vector)))

void
region_drop(Region *region)
{
    VECTOR(PyObject *) kept;
    memcpy(&kept, &region->kept, sizeof(kept));
    PyObject *end = (PyObject *)region->end, *on_end = region->on_end;
    if (region->end != NULL) {
        region->end->region = NULL; /* references that are being cleared may still call it */
    }
    region->end = NULL;
    region->on_end = NULL;
    region->armed = region->over = 0;
    region->calm = 0;
    region->globals = region->builtins = NULL;
    FREE(region->words);
    FREE(region->facts_of);
    FREE(region->facts);
    FREE(region->tensors);
    FREE(region->residues);
    FREE(region->pins);
    memset(&region->kept, 0, sizeof(region->kept));
    for (Py_ssize_t i = 0; i < kept.count; i++) { /* may run Python */
        Py_DECREF(kept.at[i]);
    }
    PyMem_Free(kept.at);
    Py_XDECREF(on_end);
    Py_XDECREF(end);
}

int
region_traverse(const Region *region, visitproc visit, void *arg)
{
    for (Py_ssize_t i = 0; i < region->kept.count; i++) {
        Py_VISIT(region->kept.at[i]);
    }
    return 0;
}
