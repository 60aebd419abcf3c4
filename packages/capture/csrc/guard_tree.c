/* GuardTree: a prefix tree of accesses with checks on its nodes, evaluated in one traversal.

   Built from two tables that guards/tree.py makes:
     nodes   (parent, access, argument)  in preorder; node 0 is the frame itself
     checks  (node, check, argument)     in the order of evaluation
   plus, for questions about several nodes, `slots` in which checks leave their value:
     same     (slot, slot) pairs that must hold one object
     distinct groups of slots that must hold different objects: a count, then the slots
   Every access and every check that raises counts as a guard that does not hold. */
#include "region.h"

/* --- the traversal ----------------------------------------------------------------------------------- */

/* A node's children from `child` on. */
static int
children_hold(const GuardTreeObject *tree, Py_ssize_t child, Py_ssize_t end, PyObject *value,
              const GuardScope *scope, PyObject **slots)
{
    for (; child < end; child = tree->nodes[child].end) {
        PyObject *next = take_access(&tree->nodes[child].access, scope, value);
        if (next == NULL) {
            return 0;
        }
        int holds = subtree_holds(tree, child, next, scope, slots);
        Py_DECREF(next);
        if (!holds) {
            return 0;
        }
    }
    return 1;
}

static int
checks_hold(const GuardTreeObject *tree, const Node *node, PyObject *value, PyObject **slots)
{
    const Step *check = &tree->checks[node->first_check];
    for (Py_ssize_t i = 0; i < node->check_count; i++) {
        if (!check_holds(&check[i], value, slots)) {
            return 0;
        }
    }
    return 1;
}

int
subtree_holds(const GuardTreeObject *tree, Py_ssize_t index, PyObject *value,
              const GuardScope *scope, PyObject **slots)
{
    const Node *node = &tree->nodes[index];
    if (node->region != NULL) {
        /* its first check is the identity of the object */
        if (!check_holds(&tree->checks[node->first_check], value, slots)) {
            return 0;
        }
        enum verdict verdict = region_check(tree, node->region, scope, slots);
        if (verdict != REGION_UNKNOWN) {
            return verdict == REGION_HOLDS;
        }
        if (region_is_due(node->region)) {
            return region_record(tree, node->region, index, index + 1, value, scope, slots);
        }
    }
    return checks_hold(tree, node, value, slots) &&
           children_hold(tree, index + 1, node->end, value, scope, slots);
}

/* The frame: its arguments and cells first, then what does not depend on them. */
static int
frame_holds(const GuardTreeObject *tree, const GuardScope *scope, PyObject **slots)
{
    const Node *root = &tree->nodes[0];
    if (tree->node_count == 0 || !checks_hold(tree, root, Py_None, slots) ||
        !children_hold(tree, 1, tree->first_static, Py_None, scope, slots)) {
        return 0;
    }
    if (root->region != NULL) {
        enum verdict verdict = region_check(tree, root->region, scope, slots);
        if (verdict != REGION_UNKNOWN) {
            return verdict == REGION_HOLDS;
        }
        if (region_is_due(root->region)) {
            return region_record(tree, root->region, 0, tree->first_static, Py_None, scope, slots);
        }
    }
    return children_hold(tree, tree->first_static, root->end, Py_None, scope, slots);
}

static int
by_address(const void *left, const void *right)
{
    uintptr_t a = (uintptr_t)*(PyObject *const *)left, b = (uintptr_t)*(PyObject *const *)right;
    return (a > b) - (a < b);
}

#define FEW 16

/* Whether the objects in these slots are all different. */
static int
all_different(const Py_ssize_t *numbers, Py_ssize_t count, PyObject **slots)
{
    PyObject *few[FEW];
    PyObject **objects = count <= FEW ? few : PyMem_Malloc((size_t)count * sizeof(PyObject *));
    if (objects == NULL) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        objects[i] = slots[numbers[i]];
    }
    int different = 1;
    if (count <= FEW) {
        for (Py_ssize_t i = 0; i < count; i++) {
            for (Py_ssize_t j = 0; j < i; j++) {
                different &= objects[i] != objects[j];
            }
        }
        return different;
    }
    qsort(objects, (size_t)count, sizeof(PyObject *), by_address);
    for (Py_ssize_t i = 1; i < count; i++) {
        different &= objects[i] != objects[i - 1];
    }
    PyMem_Free(objects);
    return different;
}

static int
slots_agree(const GuardTreeObject *tree, PyObject **slots)
{
    for (Py_ssize_t i = 0; i < tree->same_count; i++) {
        if (slots[tree->same[2 * i]] != slots[tree->same[2 * i + 1]]) {
            return 0;
        }
    }
    for (Py_ssize_t i = 0; i < tree->distinct_count;) {
        Py_ssize_t count = tree->distinct[i];
        if (!all_different(&tree->distinct[i + 1], count, slots)) {
            return 0;
        }
        i += count + 1;
    }
    return 1;
}

static int
programs_hold(const GuardTreeObject *tree, PyObject **slots)
{
    for (Py_ssize_t i = 0; i < tree->program_count; i++) {
        if (!size_program_holds(&tree->programs[i], tree->layout, slots)) {
            return 0;
        }
    }
    return 1;
}

#define SLOTS_ON_STACK 32

int
guard_tree_check(PyObject *self, const GuardScope *scope)
{
    GuardTreeObject *tree = (GuardTreeObject *)self;
    PyObject *on_stack[SLOTS_ON_STACK];
    PyObject **slots = on_stack;
    if (tree->slot_count > SLOTS_ON_STACK) {
        slots = PyMem_Malloc((size_t)tree->slot_count * sizeof(PyObject *));
        if (slots == NULL) {
            return 0;
        }
    }
    for (Py_ssize_t i = 0; i < tree->slot_count; i++) {
        slots[i] = NULL;
    }
    Py_INCREF(tree);
    int holds = frame_holds(tree, scope, slots) && slots_agree(tree, slots) &&
                programs_hold(tree, slots);
    for (Py_ssize_t i = 0; i < tree->slot_count; i++) {
        Py_XDECREF(slots[i]);
    }
    if (slots != on_stack) {
        PyMem_Free(slots);
    }
    Py_DECREF(tree);
    if (PyErr_Occurred()) {
        PyErr_Clear();
    }
    return holds;
}

/* --- the type ------------------------------------------------------------------------------------------ */

static PyObject *
tree_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"nodes",    "checks", "slots", "same", "distinct",
                            "programs", "layout", NULL};
    PyObject *nodes, *checks, *same, *distinct, *programs = NULL, *layout = Py_None;
    Py_ssize_t slots;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!nO!O!|O!O:GuardTree", names,
                                     &PyTuple_Type, &nodes, &PyTuple_Type, &checks, &slots,
                                     &PyTuple_Type, &same, &PyTuple_Type, &distinct, &PyTuple_Type,
                                     &programs, &layout)) {
        return NULL;
    }
    if (PyTuple_GET_SIZE(nodes) == 0 || slots < 0 || PyTuple_GET_SIZE(same) % 2 != 0) {
        PyErr_SetString(PyExc_ValueError, "a guard tree has a root, and `same` holds pairs");
        return NULL;
    }
    GuardTreeObject *tree = (GuardTreeObject *)type->tp_alloc(type, 0);
    if (tree == NULL) {
        return NULL;
    }
    tree->slot_count = slots;
    tree->layout = Py_NewRef(layout);
    tree->nodes = PyMem_Calloc((size_t)PyTuple_GET_SIZE(nodes), sizeof(Node));
    tree->checks = PyMem_Calloc((size_t)PyTuple_GET_SIZE(checks) + 1, sizeof(Step));
    if (tree->nodes == NULL || tree->checks == NULL) {
        PyErr_NoMemory();
        goto fail;
    }
    if (guard_tree_fill(tree, nodes, checks, same, distinct, programs) < 0) {
        goto fail;
    }
    return (PyObject *)tree;
fail:
    Py_DECREF(tree);
    return NULL;
}

static int
tree_traverse(GuardTreeObject *tree, visitproc visit, void *arg)
{
    for (Py_ssize_t i = 0; i < tree->node_count; i++) {
        Py_VISIT(tree->nodes[i].access.object);
        if (tree->nodes[i].region != NULL) {
            int stop = region_traverse(tree->nodes[i].region, visit, arg);
            if (stop) {
                return stop;
            }
        }
    }
    for (Py_ssize_t i = 0; i < tree->check_count; i++) {
        Py_VISIT(tree->checks[i].object);
    }
    return 0;
}

static int
tree_clear(GuardTreeObject *tree)
{
    /* a tree without its steps would hold for every frame: it is left with no way to hold */
    Py_ssize_t nodes = tree->node_count, checks = tree->check_count;
    tree->node_count = 0;
    tree->check_count = 0;
    for (Py_ssize_t i = 0; i < nodes; i++) {
        tree->nodes[i].access.kind = ACCESS_ROOT;
        Py_CLEAR(tree->nodes[i].access.object);
        if (tree->nodes[i].region != NULL) {
            region_drop(tree->nodes[i].region);
            PyMem_Free(tree->nodes[i].region);
            tree->nodes[i].region = NULL;
        }
    }
    for (Py_ssize_t i = 0; i < checks; i++) {
        tree->checks[i].kind = CHECK_COUNT;
        Py_CLEAR(tree->checks[i].object);
    }
    return 0;
}

static void
tree_dealloc(GuardTreeObject *tree)
{
    PyObject_GC_UnTrack(tree);
    tree_clear(tree);
    PyMem_Free(tree->nodes);
    PyMem_Free(tree->checks);
    PyMem_Free(tree->same);
    PyMem_Free(tree->distinct);
    for (Py_ssize_t i = 0; i < tree->program_count; i++) {
        PyMem_Free(tree->programs[i].code);
    }
    PyMem_Free(tree->programs);
    Py_XDECREF(tree->layout);
    Py_TYPE(tree)->tp_free((PyObject *)tree);
}

static PyObject *
tree_check(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 4 || !PyTuple_Check(args[0]) || !(args[1] == Py_None || PyTuple_Check(args[1])) ||
        !PyDict_Check(args[2]) || !PyDict_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError,
                        "check takes a tuple of locals, a tuple of cells or None, and two dicts");
        return NULL;
    }
    GuardScope scope = {((PyTupleObject *)args[0])->ob_item, PyTuple_GET_SIZE(args[0]),
                        args[1] == Py_None ? NULL : args[1], args[2], args[3]};
    return PyBool_FromLong(guard_tree_check(self, &scope));
}

/* witnesses() -> dict: how much of the tree is watched and how much is checked at every call. */
static PyObject *
tree_witnesses(PyObject *self, PyObject *Py_UNUSED(none))
{
    const GuardTreeObject *tree = (GuardTreeObject *)self;
    Py_ssize_t regions = 0, armed = 0, words = 0, facts = 0, tensors = 0, residues = 0;
    for (Py_ssize_t i = 0; i < tree->node_count; i++) {
        const Region *region = tree->nodes[i].region;
        if (region != NULL) {
            regions++;
            armed += region->armed;
            words += region->words.count;
            facts += region->facts.count;
            tensors += region->tensors.count;
            residues += region->residues.count;
        }
    }
    return Py_BuildValue("{snsnsnsnsnsn}", "regions", regions, "armed", armed, "words", words,
                         "facts", facts, "tensors", tensors, "residues", residues);
}

static PyMethodDef tree_methods[] = {
    {"check", (PyCFunction)(void (*)(void))tree_check, METH_FASTCALL,
     "check(locals, closure, globals, builtins) -> bool"},
    {"witnesses", tree_witnesses, METH_NOARGS, "witnesses() -> dict of counts"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef tree_members[] = {
    {"node_count", T_PYSSIZET, offsetof(GuardTreeObject, node_count), READONLY, NULL},
    {"check_count", T_PYSSIZET, offsetof(GuardTreeObject, check_count), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject GuardTree_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau_capture._C.GuardTree",
    .tp_doc = "GuardTree(nodes, checks, slots, same, distinct, programs=(), layout=None)",
    .tp_basicsize = sizeof(GuardTreeObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = tree_new,
    .tp_dealloc = (destructor)tree_dealloc,
    .tp_traverse = (traverseproc)tree_traverse,
    .tp_clear = (inquiry)tree_clear,
    .tp_methods = tree_methods,
    .tp_members = tree_members,
};

/* The numbers of accesses, checks and operations on sizes by name, for the Python side. */
int
guard_tree_add_names(PyObject *module)
{
#define ADD_ACCESS(name, number) || PyDict_SetItemString(accesses, #name, PyLong_FromLong(ACCESS_##name)) < 0
#define ADD_CHECK(name, number) || PyDict_SetItemString(checks, #name, PyLong_FromLong(CHECK_##name)) < 0
#define ADD_SIZE_OP(name, operands) || PyDict_SetItemString(sizes, #name, PyLong_FromLong(OP_##name)) < 0
    PyObject *accesses = PyDict_New(), *checks = PyDict_New(), *sizes = PyDict_New();
    if (accesses == NULL || checks == NULL || sizes == NULL ACCESSES(ADD_ACCESS) CHECKS(ADD_CHECK)
            SIZE_OPS(ADD_SIZE_OP)) {
        return -1;
    }
    if (PyModule_AddObject(module, "ACCESS", accesses) < 0 ||
        PyModule_AddObject(module, "CHECK", checks) < 0 ||
        PyModule_AddObject(module, "SIZE_OP", sizes) < 0) {
        return -1;
    }
    return 0;
}
