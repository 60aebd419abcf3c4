/* The parts of a guard tree: what an access and a check are, and how a tree is laid out. */
#ifndef FLAMBEAU_GUARD_TREE_H
#define FLAMBEAU_GUARD_TREE_H

#include "flambeau.h"

/* name, number of the integer argument or 0 when the argument is an object */
#define ACCESSES(X)                                                                               \
    X(ROOT, 0) X(LOCAL, 1) X(FREE, 1) X(FREE_CELL, 1) X(GLOBAL, 0) X(BUILTIN, 0) X(CONSTANT, 0)   \
    X(ATTR, 0) X(INSTANCE_ATTR, 0) X(LIST_ITEM, 1) X(TUPLE_ITEM, 1) X(DICT_ITEM, 0)               \
    X(ANY_ITEM, 0) X(DICT_KEY, 1) X(KNOWN_KEY, 0) X(CALLED, 0) X(CLASS_ENTRY, 0)
#define CHECKS(X)                                                                                 \
    X(IS, 0) X(TYPE_IS, 0) X(SAME, 0) X(LENGTH, 1) X(LIST_LENGTH, 1) X(TUPLE_LENGTH, 1)           \
    X(DICT_KEYS, 0) X(DICT_HAS, 0) X(DICT_LACKS, 0) X(HAS_ATTR, 0) X(LACKS_ATTR, 0)               \
    X(INSTANCE_LACKS, 0) X(WEAK_IS, 0) X(TENSOR, 0) X(STATE, 0) X(PREDICATE, 0) X(PIN, 1)         \
    X(TYPE_METHODS, 0) X(CLASS_HAS, 0) X(CLASS_LACKS, 0)

#define ACCESS_NAME(name, number) ACCESS_##name,
#define CHECK_NAME(name, number) CHECK_##name,
enum access { ACCESSES(ACCESS_NAME) ACCESS_COUNT };
enum check { CHECKS(CHECK_NAME) CHECK_COUNT };
typedef struct {
    int kind;
    Py_ssize_t number;
    PyObject *object; /* strong, or NULL where the argument is a number */
} Step;

#define SIZE_OPS(X)                                                                               \
    X(CONST, 1) X(SIZE, 2) X(STRIDE, 2) X(VALUE, 1) X(ADD, 0) X(MUL, 0) X(FLOORDIV, 0) X(MOD, 0)  \
    X(REM, 0)                                                                                     \
    X(MAX, 0) X(MIN, 0) X(EQ, 0) X(NE, 0) X(LT, 0) X(LE, 0) X(AND, 0) X(OR, 0) X(NOT, 0)          \
    X(FLOAT, 1) X(TOF, 0) X(FADD, 0) X(FSUB, 0) X(FMUL, 0) X(FDIV, 0)                             \
    X(FEQ, 0) X(FNE, 0) X(FLT, 0) X(FLE, 0) X(SQRT, 0) X(FLOOR, 0) X(CEIL, 0) X(TRUNC, 0)    \
    X(ROUND, 0) X(CALL1, 1) X(CALL2, 1)
#define OP_NAME(name, operands) OP_##name,
enum size_op { SIZE_OPS(OP_NAME) OP_COUNT };

static inline int
size_op_operands(int64_t op)
{
    switch (op) {
    case OP_CONST:
    case OP_VALUE:
    case OP_FLOAT:
    case OP_CALL1:
    case OP_CALL2:
        return 1;
    case OP_SIZE:
    case OP_STRIDE:
        return 2;
    default:
        return 0;
    }
}

static inline int
size_op_pushes(enum size_op op)
{
    return size_op_operands(op) > 0 && op != OP_CALL1 && op != OP_CALL2;
}

typedef struct {
    Py_ssize_t count;
    int64_t *code;
} SizeProgram;

typedef struct Region Region; /* see witness.h */

typedef struct {
    Step access;
    Py_ssize_t end; /* index after the last node of this subtree */
    Py_ssize_t first_check, check_count;
    Region *region; /* where the object here is known to be the one of capture */
} Node;

typedef struct {
    PyObject_HEAD
    Py_ssize_t node_count, check_count, slot_count, same_count, distinct_count;
    Node *nodes;
    Step *checks;
    Py_ssize_t *same;     /* pairs */
    Py_ssize_t *distinct;
    Py_ssize_t program_count;
    SizeProgram *programs;
    PyObject *layout; /* TensorLayout or None: how programs read tensors */
    Py_ssize_t first_static; /* child of the root from which on the frame's arguments are not read */
} GuardTreeObject;

/* 1 all guards of the subtree hold on the value, 0 one does not; an error may be left set. */
int subtree_holds(const GuardTreeObject *tree, Py_ssize_t index, PyObject *value,
                  const GuardScope *scope, PyObject **slots);

/* Fills a tree whose tables have been allocated; -1 with an error set. `programs` may be NULL. */
int guard_tree_fill(GuardTreeObject *tree, PyObject *nodes, PyObject *checks, PyObject *same,
                    PyObject *distinct, PyObject *programs);

int size_program_holds(const SizeProgram *program, PyObject *layout, PyObject **slots);
int size_program_fill(SizeProgram *program, PyObject *numbers, Py_ssize_t slot_count);

/* A new reference to what the access finds, or NULL with or without an error set. */
PyObject *take_access(const Step *step, const GuardScope *scope, PyObject *value);

/* 1 the check holds, 0 it does not; an error may be left set, for the caller to clear. */
int check_holds(const Step *step, PyObject *value, PyObject **slots);

#endif
