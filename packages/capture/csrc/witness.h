/* Witnesses: why a part of a guard tree still holds, as words of memory that have not changed.

   Below a node whose object is known to be the one of capture, what the checks read is reached from
   that object alone. While such a part is traversed, each access and check names what it depended on:
   the version tag of a dict or a class, a pointer in an object. As long as these words are what
   they were, the part holds and is not traversed. What cannot be named is checked at every call.

   The program's objects are not kept alive by it: those that can be referred to weakly are watched,
   and the part is forgotten when one goes; dicts, lists, tuples and cells live as long as the words
   that led to them are what they were, which is why the words are checked in the order of the
   traversal. */
#ifndef FLAMBEAU_WITNESS_H
#define FLAMBEAU_WITNESS_H

#include "guard_tree.h"

enum verdict { REGION_HOLDS, REGION_FAILS, REGION_UNKNOWN };

/* Whether a region holds by its witnesses; UNKNOWN: it has none, or they say that something
   changed, and the tree has to be traversed. Fills the slots of pins inside. */
enum verdict region_check(const GuardTreeObject *tree, Region *region, const GuardScope *scope,
                          PyObject **slots);

/* Traverses the node's checks and children from `first_child` on, naming witnesses.
   1 all hold, 0 one does not. */
int region_record(const GuardTreeObject *tree, Region *region, Py_ssize_t index,
                  Py_ssize_t first_child, PyObject *value, const GuardScope *scope,
                  PyObject **slots);

/* After a traversal in which all kept_buckets: whether the next one should name witnesses. */
int region_is_due(Region *region);

/* Forgets the witnesses. */
void region_drop(Region *region);
int region_traverse(const Region *region, visitproc visit, void *arg);

#endif
