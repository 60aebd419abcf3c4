/* Building a guard tree from the tables that guards/tree.py makes; what does not fit is refused. */
#include "region.h"

#define IS_NUMBER(name, number) number,
static const char access_takes_number[] = {ACCESSES(IS_NUMBER)};
static const char check_takes_number[] = {CHECKS(IS_NUMBER)};

static int
fill_step(Step *step, int kind, int takes_number, PyObject *argument)
{
    step->kind = kind;
    if (takes_number) {
        step->number = PyNumber_AsSsize_t(argument, PyExc_OverflowError);
        return step->number == -1 && PyErr_Occurred() ? -1 : 0;
    }
    step->object = Py_NewRef(argument);
    return 0;
}

static int
are_entries(PyObject *rows)
{
    for (Py_ssize_t i = 0; PyTuple_CheckExact(rows) && i < PyTuple_GET_SIZE(rows); i++) {
        PyObject *row = PyTuple_GET_ITEM(rows, i);
        if (!PyTuple_CheckExact(row) || (PyTuple_GET_SIZE(row) != 1 && PyTuple_GET_SIZE(row) != 2) ||
            !PyUnicode_CheckExact(PyTuple_GET_ITEM(row, 0))) {
            return 0;
        }
    }
    return PyTuple_CheckExact(rows);
}

static int
argument_fits(int kind, PyObject *argument)
{
    switch (kind) {
    case CHECK_TENSOR:
        return Py_IS_TYPE(argument, &TensorPattern_Type);
    case CHECK_STATE:
        return Py_IS_TYPE(argument, &StatePattern_Type);
    case CHECK_WEAK_IS:
        return PyWeakref_CheckRef(argument);
    case CHECK_DICT_KEYS:
        return PyTuple_CheckExact(argument);
    case CHECK_TYPE_METHODS:
        return are_entries(argument);
    default:
        return 1;
    }
}

static int
build_nodes(GuardTreeObject *tree, PyObject *nodes)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(nodes); i++) {
        Py_ssize_t parent;
        int kind;
        PyObject *argument;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(nodes, i), "niO:node", &parent, &kind, &argument)) {
            return -1;
        }
        int is_root = i == 0 && parent == -1 && kind == ACCESS_ROOT;
        int in_preorder = i > 0 && parent >= 0 && parent < i && tree->nodes[parent].end == i;
        if (!(is_root || in_preorder) || kind < 0 || kind >= ACCESS_COUNT) {
            PyErr_Format(PyExc_ValueError, "node %zd is no node of a tree in preorder", i);
            return -1;
        }
        if (fill_step(&tree->nodes[i].access, kind, access_takes_number[kind], argument) < 0) {
            return -1;
        }
        tree->nodes[i].end = i + 1;
        tree->node_count = i + 1;
        for (Py_ssize_t up = parent; up >= 0;) {
            tree->nodes[up].end = i + 1;
            Py_ssize_t above = -1;
            if (up > 0) {
                PyObject *row = PyTuple_GET_ITEM(nodes, up);
                above = PyLong_AsSsize_t(PyTuple_GET_ITEM(row, 0));
            }
            up = above;
        }
    }
    return 0;
}

static int
build_checks(GuardTreeObject *tree, PyObject *checks)
{
    Py_ssize_t before = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(checks); i++) {
        Py_ssize_t node;
        int kind;
        PyObject *argument;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(checks, i), "niO:check", &node, &kind, &argument)) {
            return -1;
        }
        if (node < before || node >= tree->node_count || kind < 0 || kind >= CHECK_COUNT ||
            !argument_fits(kind, argument)) {
            PyErr_Format(PyExc_ValueError, "check %zd does not fit the tree", i);
            return -1;
        }
        if (fill_step(&tree->checks[i], kind, check_takes_number[kind], argument) < 0) {
            return -1;
        }
        tree->check_count = i + 1;
        if (kind == CHECK_PIN &&
            (tree->checks[i].number < 0 || tree->checks[i].number >= tree->slot_count)) {
            PyErr_SetString(PyExc_ValueError, "a pin names no slot");
            return -1;
        }
        if (tree->nodes[node].check_count++ == 0) {
            tree->nodes[node].first_check = i;
        }
        before = node;
    }
    return 0;
}

static Py_ssize_t *
numbers_of(PyObject *tuple)
{
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    Py_ssize_t *array = PyMem_Calloc((size_t)count + 1, sizeof(Py_ssize_t));
    if (array == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        array[i] = PyNumber_AsSsize_t(PyTuple_GET_ITEM(tuple, i), PyExc_OverflowError);
        if (array[i] == -1 && PyErr_Occurred()) {
            PyMem_Free(array);
            return NULL;
        }
    }
    return array;
}

static int
slots_exist(const GuardTreeObject *tree, const Py_ssize_t *numbers, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        if (numbers[i] < 0 || numbers[i] >= tree->slot_count) {
            PyErr_Format(PyExc_ValueError, "there is no slot %zd", numbers[i]);
            return 0;
        }
    }
    return 1;
}

/* The pairs and the groups; -1 with an error set if they do not fit the slots. */
static int
build_relations(GuardTreeObject *tree, PyObject *same, PyObject *distinct)
{
    Py_ssize_t pairs = PyTuple_GET_SIZE(same), total = PyTuple_GET_SIZE(distinct);
    if ((tree->same = numbers_of(same)) == NULL ||
        (tree->distinct = numbers_of(distinct)) == NULL ||
        !slots_exist(tree, tree->same, pairs)) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < total;) {
        Py_ssize_t count = tree->distinct[i];
        if (count < 0 || count > total - i - 1) {
            PyErr_SetString(PyExc_ValueError, "a group of slots is cut short");
            return -1;
        }
        if (!slots_exist(tree, &tree->distinct[i + 1], count)) {
            return -1;
        }
        i += count + 1;
    }
    tree->same_count = pairs / 2;
    tree->distinct_count = total;
    return 0;
}

/* Programs read slots: every one of them is filled by a pin. */
static int
build_programs(GuardTreeObject *tree, PyObject *programs)
{
    Py_ssize_t count = PyTuple_GET_SIZE(programs);
    if (tree->layout != Py_None && !Py_IS_TYPE(tree->layout, &TensorLayout_Type)) {
        PyErr_SetString(PyExc_TypeError, "layout is a TensorLayout or None");
        return -1;
    }
    tree->programs = PyMem_Calloc((size_t)count + 1, sizeof(SizeProgram));
    if (tree->programs == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *numbers = PyTuple_GET_ITEM(programs, i);
        tree->program_count = i + 1;
        if (!PyTuple_CheckExact(numbers)) {
            PyErr_SetString(PyExc_TypeError, "a size program is a tuple of numbers");
            return -1;
        }
        if (size_program_fill(&tree->programs[i], numbers, tree->slot_count) < 0) {
            return -1;
        }
    }
    return 0;
}

static int
reads_arguments(const Node *node)
{
    return node->access.kind == ACCESS_LOCAL || node->access.kind == ACCESS_FREE ||
           node->access.kind == ACCESS_FREE_CELL;
}

static int
is_identity(const Step *check)
{
    return check->kind == CHECK_IS || check->kind == CHECK_WEAK_IS;
}

/* Regions: below the root what reads no argument, and elsewhere the outermost nodes whose first
   check is the identity of an object below which there is more to check. */
static int
build_regions(GuardTreeObject *tree)
{
    Py_ssize_t first = 1;
    while (first < tree->node_count && reads_arguments(&tree->nodes[first])) {
        first = tree->nodes[first].end;
    }
    tree->first_static = first;
    for (Py_ssize_t i = first; i < tree->node_count; i = tree->nodes[i].end) {
        if (reads_arguments(&tree->nodes[i])) {
            PyErr_SetString(PyExc_ValueError, "arguments and cells come first below the root");
            return -1;
        }
    }
    for (Py_ssize_t i = 0; i < first;) {
        Node *node = &tree->nodes[i];
        int wanted = i == 0 ? first < tree->node_count
                            : node->check_count > 0 && node->end > i + 1 &&
                                  is_identity(&tree->checks[node->first_check]);
        if (wanted && (node->region = PyMem_Calloc(1, sizeof(Region))) == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        if (wanted) {
            node->region->patience = 1;
        }
        i = wanted && i > 0 ? node->end : i + 1;
    }
    return 0;
}

int
guard_tree_fill(GuardTreeObject *tree, PyObject *nodes, PyObject *checks, PyObject *same,
                PyObject *distinct, PyObject *programs)
{
    if (build_nodes(tree, nodes) < 0 || build_checks(tree, checks) < 0 ||
        build_relations(tree, same, distinct) < 0 || build_regions(tree) < 0) {
        return -1;
    }
    return programs == NULL ? 0 : build_programs(tree, programs);
}
