/* The recorder of witnesses; every word stands once, with all the facts that hang on it. */
#include "recorder.h"

/* The low bits of an address say little: objects lie at multiples of sixteen. */
static inline size_t
address_hash(const void *address)
{
    uintptr_t bits = (uintptr_t)address;
    return (size_t)(bits >> 4 | bits << (8 * sizeof(bits) - 4));
}

static PyObject *
kept_object(const Region *region, PyObject *holder)
{
    int ours = PyWeakref_CheckRef(holder) && region->on_end != NULL &&
               ((PyWeakReference *)holder)->wr_callback == region->on_end;
    return ours ? ((PyWeakReference *)holder)->wr_object : holder;
}

/* The bucket of an object, empty or its own; NULL out of memory. */
static int *
bucket_of_kept(Recorder *r, PyObject *object)
{
    if (2 * (size_t)r->region->kept.count >= r->kept_bucket_count) {
        size_t count = r->kept_bucket_count == 0 ? 256 : 2 * r->kept_bucket_count;
        int *buckets = PyMem_Calloc(count, sizeof(int));
        if (buckets == NULL) {
            return NULL;
        }
        PyMem_Free(r->kept_buckets);
        r->kept_buckets = buckets;
        r->kept_bucket_count = count;
        for (Py_ssize_t i = 0; i < r->region->kept.count; i++) {
            *bucket_of_kept(r, kept_object(r->region, r->region->kept.at[i])) = (int)i + 1;
        }
    }
    size_t at = address_hash(object) % r->kept_bucket_count;
    for (; r->kept_buckets[at] != 0; at = (at + 1) % r->kept_bucket_count) {
        if (kept_object(r->region, r->region->kept.at[r->kept_buckets[at] - 1]) == object) {
            break;
        }
    }
    return &r->kept_buckets[at];
}

void
note_kept(Recorder *r, PyObject *object)
{
    if (object == NULL || holding_of(object) == FOLLOWED) {
        return;
    }
    if (holding_of(object) == UNHELD) {
        r->failed = 1;
        return;
    }
    int *bucket = bucket_of_kept(r, object);
    if (bucket == NULL || *bucket != 0) {
        r->failed |= bucket == NULL;
        return;
    }
    PyObject *holder = region_hold(r->region, object);
    if (holder == NULL || PUSH(r->region->kept, holder) < 0) {
        Py_XDECREF(holder);
        r->failed = 1;
        return;
    }
    *bucket = (int)r->region->kept.count;
}

static int
more_buckets(Recorder *r)
{
    size_t count = r->bucket_count == 0 ? 256 : 2 * r->bucket_count;
    int *buckets = PyMem_Calloc(count, sizeof(int));
    if (buckets == NULL) {
        return -1;
    }
    PyMem_Free(r->buckets);
    r->buckets = buckets;
    r->bucket_count = count;
    for (Py_ssize_t i = 0; i < r->region->words.count; i++) {
        size_t at = address_hash(r->region->words.at[i].address);
        while (buckets[at % count] != 0) {
            at++;
        }
        buckets[at % count] = (int)i + 1;
    }
    return 0;
}

/* The number of the word at an address, added if it is new; -1 out of memory. */
int
note_word(Recorder *r, const void *address, uint64_t expected)
{
    Region *region = r->region;
    if (2 * (size_t)region->words.count >= r->bucket_count && more_buckets(r) < 0) {
        r->failed = 1;
        return -1;
    }
    size_t at = address_hash(address);
    for (; r->buckets[at % r->bucket_count] != 0; at++) {
        int known = r->buckets[at % r->bucket_count] - 1;
        if (region->words.at[known].address == address) {
            return known;
        }
    }
    Word made = {address, expected};
    if (PUSH(region->words, made) < 0 || PUSH(region->facts_of, -1) < 0) {
        r->failed = 1;
        return -1;
    }
    r->buckets[at % r->bucket_count] = (int)region->words.count;
    return (int)region->words.count - 1;
}

void
note_pointer(Recorder *r, const void *address)
{
    uint64_t expected;
    memcpy(&expected, address, sizeof(expected));
    note_word(r, address, expected);
}

void
note_class_of(Recorder *r, PyObject *value)
{
    note_pointer(r, &value->ob_type);
    note_kept(r, (PyObject *)Py_TYPE(value));
}

void
note_fact(Recorder *r, int number, Fact made)
{
    if (number < 0) {
        return;
    }
    made.next = r->region->facts_of.at[number];
    note_kept(r, made.owner);
    note_kept(r, made.found);
    if (made.found != NULL && holding_of(made.found) == FOLLOWED) {
        made.followed = Py_TYPE(made.found);
        note_kept(r, (PyObject *)made.followed);
    }
    if (PUSH(r->region->facts, made) < 0) {
        r->failed = 1;
    }
    else {
        r->region->facts_of.at[number] = (int)r->region->facts.count - 1;
    }
}

void
note_dict_fact(Recorder *r, PyObject *dict, Fact made)
{
    made.owner = dict;
    const uint64_t *tag = dict_tag(dict);
    const void *word = tag != NULL ? (const void *)tag : &((PyDictObject *)dict)->ma_used;
    note_fact(r, note_word(r, word, dict_version(dict)), made);
}

/* What a dict holds for a key, borrowed; an error of the key's own code is the caller's. */
PyObject *
note_item(Recorder *r, PyObject *dict, PyObject *key)
{
    PyObject *found = PyDict_GetItemWithError(dict, key);
    if (!PyErr_Occurred()) {
        Fact made = {.kind = found ? FACT_ITEM : FACT_ABSENT, .key = key, .found = found};
        note_dict_fact(r, dict, made);
    }
    return found;
}

void
note_type_fact(Recorder *r, PyTypeObject *type, enum fact kind, PyObject *name, PyObject *found)
{
    if (PyType_HasFeature(type, Py_TPFLAGS_IMMUTABLETYPE)) {
        return;
    }
    Fact made = {.kind = kind, .owner = (PyObject *)type, .key = name, .found = found};
    note_fact(r, note_word(r, &type->tp_version_tag, type_version(type)), made);
}

PyObject *
note_raw_of_type(Recorder *r, PyTypeObject *type, PyObject *name)
{
    PyObject *raw = _PyType_Lookup(type, name);
    note_type_fact(r, type, FACT_TYPE_RAW, name, raw);
    return raw;
}
