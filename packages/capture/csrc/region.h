/* What a region of a guard tree keeps of its witnesses. */
#ifndef FLAMBEAU_REGION_H
#define FLAMBEAU_REGION_H

#include "witness.h"

#define VECTOR(type)                                                                              \
    struct {                                                                                      \
        type *at;                                                                                 \
        Py_ssize_t count, room;                                                                   \
    }

typedef struct {
    const void *address;
    uint64_t expected;
} Word;

/* What is checked of the owner of a version tag when the tag has changed. */
enum fact { FACT_ITEM, FACT_ABSENT, FACT_CHECK, FACT_TYPE_RAW, FACT_TYPE_ATTR };
typedef struct {
    enum fact kind;
    int next; /* the next fact of the same word, or -1 */
    PyObject *owner, *key, *found;
    PyTypeObject *followed; /* the class of what was found, where the region does not hold it */
    const Step *step;
} Fact;

typedef struct {
    PyObject *tensor, *pattern;
} TensorFact;

/* Checked at every call, of an object that is known. */
typedef struct {
    PyObject *value;
    const Step *check; /* or NULL: the child is reached and traversed */
    Py_ssize_t child;
} Residue;

typedef struct {
    Py_ssize_t slot;
    PyObject *value;
} Pinned;

/* What ends a region when an object that it watches is gone. */
typedef struct {
    PyObject_HEAD
    Region *region; /* NULL once the region has ended by itself */
} RegionEndObject;

/* How a region makes sure that what it points to is what it was:
   KEPT     a strong reference: it cannot be referred to weakly, or it is part of the interpreter
   WATCHED  referred to weakly: the region ends with it
   FOLLOWED a container, or a tensor (torch swaps none that is referred to weakly), that lives as
            long as the words before its own say that it is where it was; none of its words is
            read otherwise
   UNHELD   none of these: what depends on it is checked at every call */
enum holding { KEPT, WATCHED, FOLLOWED, UNHELD };
enum holding holding_of(PyObject *object);
PyObject *follow(PyObject *module, PyObject *python_class);
PyObject *bears_callback(PyObject *module, PyObject *object);

struct Region {
    int armed, busy, over; /* over: something watched has gone while the region was checked */
    RegionEndObject *end;
    PyObject *on_end; /* the callback of the weak references */
    unsigned calm, patience;
    PyObject *globals, *builtins; /* of the frame, for the region of the root */
    VECTOR(Word) words;
    VECTOR(int) facts_of; /* for each word its first fact, or -1 */
    VECTOR(Fact) facts;
    VECTOR(TensorFact) tensors;
    VECTOR(Residue) residues;
    VECTOR(Pinned) pins;
    VECTOR(PyObject *) kept; /* strong: objects, and weak references to others */
};

extern PyTypeObject RegionEnd_Type;
/* A new reference to what holds or watches the object; NULL with an error set. */
PyObject *region_hold(Region *region, PyObject *object);

int vector_room(void *vector, size_t item_size);
#define PUSH(vector, ...)                                                                         \
    (vector_room(&(vector), sizeof(*(vector).at)) < 0                                             \
         ? -1                                                                                     \
         : ((vector).at[(vector).count++] = (__VA_ARGS__), 0))

/* The attribute of a class as `getattr` finds it, borrowed, where it depends on nothing but the
   version tags of the class and its metaclass; else NULL. */
PyObject *type_attr_stable(PyTypeObject *type, PyObject *name);

#define NEVER UINT64_MAX /* what no version tag is */
uint64_t dict_version(PyObject *dict);
uint64_t type_version(PyTypeObject *type);

#endif
