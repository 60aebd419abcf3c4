/* Writing down what the answers of a region depended on: words of memory, facts, kept objects. */
#ifndef FLAMBEAU_RECORDER_H
#define FLAMBEAU_RECORDER_H

#include "region.h"

typedef struct {
    const GuardTreeObject *tree;
    Region *region;
    const GuardScope *scope;
    int *buckets; /* index + 1 of a word, by address */
    size_t bucket_count;
    int *kept_buckets; /* index + 1 of what is kept, by the object's address */
    size_t kept_bucket_count;
    int failed; /* out of memory, or UNHELD: the traversal goes on, the region is not armed */
} Recorder;

void note_kept(Recorder *r, PyObject *object);
/* The number of the word at an address, added if it is new; -1 out of memory. */
int note_word(Recorder *r, const void *address, uint64_t expected);
void note_pointer(Recorder *r, const void *address);
void note_class_of(Recorder *r, PyObject *value);
void note_dict_fact(Recorder *r, PyObject *dict, Fact made);
void note_fact(Recorder *r, int number, Fact made);
/* What a dict holds for a key, borrowed; an error of the key's own code is the caller's. */
PyObject *note_item(Recorder *r, PyObject *dict, PyObject *key);
void note_type_fact(Recorder *r, PyTypeObject *type, enum fact kind, PyObject *name,
                    PyObject *found);
PyObject *note_raw_of_type(Recorder *r, PyTypeObject *type, PyObject *name);

#endif
