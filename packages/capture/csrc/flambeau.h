/* Declarations shared by the files of flambeau_capture._C. */
#ifndef FLAMBEAU_H
#define FLAMBEAU_H

#include "compat/compat.h"
#include "structmember.h"

/* --- guards ------------------------------------------------------------------------------- */

/* What a guard tree reads: borrowed references, valid while the frame is entered. */
typedef struct {
    PyObject *const *fast;   /* arguments, by index of co_varnames */
    Py_ssize_t fast_count;
    PyObject *closure;       /* tuple of cells, or NULL */
    PyObject *globals;
    PyObject *builtins;
} GuardScope;

extern PyTypeObject GuardTree_Type;
extern PyTypeObject TensorLayout_Type;
extern PyTypeObject TensorPattern_Type;
extern PyTypeObject StatePattern_Type;

/* 1 all guards hold, 0 one does not. Errors of the accesses are failures; none is left set. */
int guard_tree_check(PyObject *tree, const GuardScope *scope);
int guard_tree_add_names(PyObject *module);

/* Type-exact equality of constants. 1 same, 0 not; errors count as 0 and are cleared. */
int same_constant(PyObject *left, PyObject *right);

int tensor_pattern_check(PyObject *pattern, PyObject *value);
int tensor_pattern_is_native(PyObject *pattern);

/* A size or a stride, read by the layout or, where it is None, queried from the tensor; -1: none. */
int tensor_dimension(PyObject *layout, PyObject *tensor, int stride, Py_ssize_t dim, int64_t *out);
int state_pattern_check(PyObject *pattern);

/* functions of the module */
PyObject *state_probe_call(PyObject *module, PyObject *args);
PyObject *state_symbol(PyObject *module, PyObject *args);
PyObject *cached_answer(PyObject *module, PyObject *link);
PyObject *call_cached(PyObject *module, PyObject *given);
PyObject *read_bytes(PyObject *module, PyObject *args);
PyObject *set_functions(PyObject *module, PyObject *given);
PyObject *same_set_table(PyObject *module, PyObject *args);
PyObject *fill_like(PyObject *module, PyObject *args);
PyObject *set_like(PyObject *module, PyObject *args);
PyObject *set_metaclass(PyObject *module, PyObject *args);

/* --- entries and caches ---------------------------------------------------------------------- */

/* Calls in a row of one form of an entry, and the shortest: a call's own seconds, which those of
   choosing the entry are part of where it runs, and the seconds from its beginning to that of the
   next, in which its backward pass may lie. */
typedef struct {
    int calls_left;
    char plain, busy, disturbed;
    PyThreadState *of;
    long long conversions;
    double before, shortest, period;
} TrialTurn;

typedef struct {
    PyObject_HEAD
    PyObject *code;          /* as given: the original's signature */
    PyObject *twin;          /* the same with every argument positional: what runs */
    PyFunctionObject *shadow; /* made of the twin, for the globals it was last run with */
    PyObject *guards;        /* GuardTree or None */
    PyObject *keepalive;
    PyObject *info;
    PyObject *trial;         /* decides which form the next calls take; NULL */
    PyObject *verdict;       /* of Python's, what a trial has found; NULL */
    TrialTurn turn;
    char plain;              /* the frame it fits runs as it is, with all that it calls */
    Py_ssize_t nargs;
    long long hits;
} EntryObject;

extern PyTypeObject Entry_Type;

/* SKIP: the frame runs as it is, what it calls is looked at. PLAIN: neither is. */
enum code_kind { CODE_UNSEEN, CODE_ACTIVE, CODE_SKIP, CODE_PLAIN };

typedef struct {
    PyObject *code; /* strong: the pointer is the key */
    enum code_kind kind;
    int limit_reported;
    Py_ssize_t ended; /* entries that went with an object and count against the limit */
    PyObject *trial; /* decides which form the frame runs in, and measures how long it takes; NULL */
    Py_ssize_t count;
    EntryObject *entries[]; /* the last hit first; room for the cache's limit */
} CodeState;

enum cache_mode { MODE_DEFAULT, MODE_RUN_ONLY, MODE_OFF, MODE_FAIL };
#define LIMIT_MAX 64

typedef struct {
    long long hits, misses, guard_failures, conversions, skipped_frames, stillborn, limit_reached,
        traced_frames, plain_frames, calls, lookups, timed_lookups;
    double guard_seconds; /* an estimate, of the lookups up to the last one that was timed */
} CacheCounters;

typedef struct {
    PyObject_HEAD
    PyObject *convert;
    PyObject *on_limit;
    PyObject *on_stillborn; /* called with a frame that the guards made from it do not fit */
    PyObject *prefixes; /* tuple of str */
    PyObject *weakrefs;
    Py_ssize_t limit;
    enum cache_mode mode;
    char guards_always; /* no call goes by what the ones before it have come to */
    long long epoch; /* of what was decided: another one after `clear` */
    CodeState **slots; /* open addressing, a power of two */
    Py_ssize_t slot_count, used;
    Py_ssize_t running; /* calls of `compiled` under way, on any thread */
    CacheCounters counters;
} FrameCacheObject;

extern PyTypeObject FrameCache_Type;

PyObject *mode_name(enum cache_mode mode);
int mode_of(PyObject *name, enum cache_mode *mode); /* -1 with an error set: no mode's name */

CodeState *cache_find(const FrameCacheObject *cache, PyObject *code);
CodeState *cache_state(FrameCacheObject *cache, PyObject *code); /* makes it; NULL on error */
int cache_insert(FrameCacheObject *cache, CodeState *state, EntryObject *entry);
int code_can_be_converted(const PyCodeObject *code);
Py_ssize_t code_argument_count(const PyCodeObject *code);

/* --- the frame hook ---------------------------------------------------------------------------- */

extern PyObject *Skip_Singleton;
extern PyTypeObject Compiled_Type;
extern PyTypeObject Disabled_Type;

/* Makes `cache` (or NULL) the active one of this thread. Takes the reference it is given and hands
   over the one before. */
FrameCacheObject *swap_active(FrameCacheObject *cache);
FrameCacheObject *active_cache(void);

/* Torch's own compiler, which a call of ours may be within, looks at no frame of this thread until
   `restore_foreign` is given the answer: a frame has one compiler, and neither looks into the
   other's code. NULL, with no error set: it looks at none anyway. */
PyObject *silence_foreign(void);
void restore_foreign(PyObject *before);
void set_foreign_callback(PyObject *setter);

PyObject *set_continue(PyObject *module, PyObject *type);
PyObject *drive(PyObject *module, PyObject *going);
PyObject *set_tracing(PyObject *module, PyObject *question);

/* The mode that holds for every cache while it is not the default. */
extern enum cache_mode stance;

#endif
