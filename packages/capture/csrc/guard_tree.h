/* The parts of a guard tree: what an access and a check are, and how a tree is laid out. */
#ifndef FLAMBEAU_GUARD_TREE_H
#define FLAMBEAU_GUARD_TREE_H

#include "flambeau.h"

/* name, number of the integer argument or 0 when the argument is an object */
#define ACCESSES(X)                                                                               \
    X(ROOT, 0) X(LOCAL, 1) X(FREE, 1) X(GLOBAL, 0) X(BUILTIN, 0) X(HELD, 0) X(ATTR, 0)            \
    X(INSTANCE_ATTR, 0) X(CLASS_OF, 0) X(LIST_ITEM, 1) X(TUPLE_ITEM, 1) X(DICT_ITEM, 0)           \
    X(ANY_ITEM, 0) X(DICT_KEY, 1)
#define CHECKS(X)                                                                                 \
    X(IS, 0) X(TYPE_IS, 0) X(SAME, 0) X(LENGTH, 1) X(LIST_LENGTH, 1) X(TUPLE_LENGTH, 1)           \
    X(DICT_KEYS, 0) X(DICT_HAS, 0) X(DICT_LACKS, 0) X(HAS_ATTR, 0) X(LACKS_ATTR, 0)               \
    X(INSTANCE_LACKS, 0) X(WEAK_IS, 0) X(TENSOR, 0) X(STATE, 0) X(PREDICATE, 0) X(PIN, 1)

#define ACCESS_NAME(name, number) ACCESS_##name,
#define CHECK_NAME(name, number) CHECK_##name,
enum access { ACCESSES(ACCESS_NAME) ACCESS_COUNT };
enum check { CHECKS(CHECK_NAME) CHECK_COUNT };
typedef struct {
    int kind;
    Py_ssize_t number;
    PyObject *object; /* strong, or NULL where the argument is a number */
} Step;

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
    Py_ssize_t first_static; /* child of the root from which on the frame's arguments are not read */
} GuardTreeObject;

/* 1 all guards of the subtree hold on the value, 0 one does not; an error may be left set. */
int walk(const GuardTreeObject *tree, Py_ssize_t index, PyObject *value, const GuardScope *scope,
         PyObject **slots);

/* A new reference to what the access finds, or NULL with or without an error set. */
PyObject *take_access(const Step *step, const GuardScope *scope, PyObject *value);

/* 1 the check holds, 0 it does not; an error may be left set, for the walk to clear. */
int ask(const Step *step, PyObject *value, PyObject **slots);

#endif
