/* The entry that a frame runs: the first whose guards hold, or a new one of `convert`. */
#include "hook.h"

/* --- guards --------------------------------------------------------------------------------- */

static int
entry_holds(ThreadState *thread, EntryObject *entry, struct _PyInterpreterFrame *frame)
{
    if (entry->guards == Py_None) {
        return 1;
    }
    PyFunctionObject *func = frame_func(frame);
    PyObject *room[frame_room(entry->nargs)];
    GuardScope scope = {frame_values(frame, entry->nargs, room), entry->nargs, func->func_closure,
                        func->func_globals, func->func_builtins};
    /* a property read by a guard may run Python: it is not to be captured */
    FrameCacheObject *active = thread->active;
    thread->active = NULL;
    int holds = guard_tree_check(entry->guards, &scope);
    thread->active = active;
    return holds;
}

/* A new reference to the first entry whose guards hold, moved to the front; NULL: none. */
static EntryObject *
matching_entry(ThreadState *thread, FrameCacheObject *cache, CodeState *state, PyObject *code,
               struct _PyInterpreterFrame *frame)
{
    /* guards may run Python, which may change the cache: what is tried is a copy of the list */
    EntryObject *entries[LIMIT_MAX];
    Py_ssize_t count = state->count;
    for (Py_ssize_t i = 0; i < count; i++) {
        entries[i] = state->entries[i];
        Py_INCREF(entries[i]);
    }
    EntryObject *match = NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (match == NULL) {
            if (entry_holds(thread, entries[i], frame)) {
                match = entries[i];
                Py_INCREF(match);
            }
            else {
                cache->counters.guard_failures++;
            }
        }
    }
    if (match != NULL && count > 1 && match != entries[0]) {
        state = cache_find(cache, code);
        for (Py_ssize_t i = 1; state != NULL && i < state->count; i++) {
            if (state->entries[i] == match) {
                memmove(&state->entries[1], &state->entries[0], (size_t)i * sizeof(match));
                state->entries[0] = match;
                break;
            }
        }
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_DECREF(entries[i]);
    }
    return match;
}

/* --- conversion ------------------------------------------------------------------------------- */

static int
fill_names(PyObject *dict, PyObject *names, Py_ssize_t index, PyObject *value)
{
    return PyDict_SetItem(dict, PyTuple_GET_ITEM(names, index), value);
}

/* The arguments by name, and the contents of the closure's cells by name. */
static int
frame_variables(struct _PyInterpreterFrame *frame, PyObject **locals, PyObject **free)
{
    PyCodeObject *code = frame_code(frame);
    PyObject *closure = frame_func(frame)->func_closure;
    PyObject *names = PyCode_GetVarnames(code);
    PyObject *free_names = PyCode_GetFreevars(code);
    Py_ssize_t count = code_argument_count(code);
    PyObject *room[frame_room(count)];
    PyObject **values = frame_values(frame, count, room);
    int done = -1;
    *locals = PyDict_New();
    *free = PyDict_New();
    if (names == NULL || free_names == NULL || *locals == NULL || *free == NULL) {
        goto end;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (values[i] != NULL && fill_names(*locals, names, i, values[i]) < 0) {
            goto end;
        }
    }
    for (Py_ssize_t i = 0; closure != NULL && i < PyTuple_GET_SIZE(free_names); i++) {
        PyObject *content = PyCell_GET(PyTuple_GET_ITEM(closure, i));
        if (content != NULL && fill_names(*free, free_names, i, content) < 0) {
            goto end;
        }
    }
    done = 0;
end:
    Py_XDECREF(names);
    Py_XDECREF(free_names);
    return done;
}

/* Calls `function(code, func, locals, free[, cache])` with the hook off. */
static PyObject *
call_with_frame(PyObject *function, struct _PyInterpreterFrame *frame, PyObject *cache)
{
    PyObject *locals = NULL, *free = NULL, *result = NULL;
    if (frame_variables(frame, &locals, &free) == 0) {
        PyObject *arguments[] = {(PyObject *)frame_code(frame), (PyObject *)frame_func(frame),
                                 locals, free, cache};
        FrameCacheObject *active = swap_active(NULL);
        result = PyObject_Vectorcall(function, arguments, cache == NULL ? 4 : 5, NULL);
        Py_XDECREF(swap_active(active));
    }
    Py_XDECREF(locals);
    Py_XDECREF(free);
    return result;
}

/* What `convert` answers for this frame: 1 and a new entry, 0 run the original, -1 error.
   An entry that does not hold at once is made a second time: what it was made from may have been
   changed by another thread in between. */
static int
convert_frame(ThreadState *thread, FrameCacheObject *cache, struct _PyInterpreterFrame *frame,
              EntryObject **entry)
{
    PyObject *code = (PyObject *)frame_code(frame);
    int status = -1, attempts = 0;
    PyObject *answer;
convert:
    answer = call_with_frame(cache->convert, frame, (PyObject *)cache);
    attempts++;
    if (answer == NULL) {
        return -1;
    }
    cache->counters.conversions += answer != Py_None; /* that answer took no compiling */
    CodeState *state = cache_state(cache, code); /* convert may have cleared the cache */
    if (state == NULL) {
        goto end;
    }
    if (answer == Py_None) {
        status = 0;
    }
    else if (answer == Skip_Singleton) {
        state->kind = CODE_SKIP;
        status = 0;
    }
    else if (!Py_IS_TYPE(answer, &Entry_Type)) {
        PyErr_Format(PyExc_TypeError, "convert must return an Entry, SKIP or None, not %.100s",
                     Py_TYPE(answer)->tp_name);
    }
    else if (((EntryObject *)answer)->nargs != code_argument_count(frame_code(frame))) {
        PyErr_Format(PyExc_ValueError, "the code of the entry for %U takes %zd arguments, not %zd",
                     frame_code(frame)->co_qualname, ((EntryObject *)answer)->nargs,
                     code_argument_count(frame_code(frame)));
    }
    else if (!entry_holds(thread, (EntryObject *)answer, frame)) {
        if (attempts == 1) {
            Py_DECREF(answer);
            goto convert;
        }
        cache->counters.stillborn++;
        state = cache_state(cache, code); /* the guards may have run Python */
        if (state != NULL) {
            state->kind = CODE_SKIP;
            FrameCacheObject *active = swap_active(NULL); /* warnings are shown by Python code */
            status = PyErr_WarnFormat(
                PyExc_RuntimeWarning, 1,
                "guards of %U do not hold on the frame they were made from: it runs uncompiled",
                frame_code(frame)->co_qualname);
            Py_XDECREF(swap_active(active));
            if (status == 0 && cache->on_stillborn != Py_None) {
                PyObject *reported = call_with_frame(cache->on_stillborn, frame, NULL);
                status = reported == NULL ? -1 : 0;
                Py_XDECREF(reported);
                state = reported == NULL ? cache_state(cache, code) : NULL;
                if (state != NULL) { /* an error, and no word of the calls that come */
                    state->kind = state->count > 0 ? CODE_ACTIVE : CODE_UNSEEN;
                }
            }
        }
    }
    else {
        state = cache_state(cache, code);
        if (state != NULL && cache_insert(cache, state, (EntryObject *)answer) == 0) {
            *entry = (EntryObject *)answer;
            Py_INCREF(answer);
            status = 1;
        }
    }
end:
    Py_DECREF(answer);
    return status;
}

#define TIMED 1024

int
choose_entry(ThreadState *thread, FrameCacheObject *cache, CodeState *state,
             struct _PyInterpreterFrame *frame, EntryObject **entry)
{
    PyObject *code = (PyObject *)frame_code(frame);
    if (state->count > 0) {
        CacheCounters *counters = &cache->counters;
        long long number = ++counters->lookups;
        /* one in `TIMED` is timed and stands for those since the one before, of the first more */
        int timed = (number & (number - 1)) == 0 || (number & (TIMED - 1)) == 0;
        double began = timed ? seconds_now() : 0;
        *entry = matching_entry(thread, cache, state, code, frame);
        if (timed && number > counters->timed_lookups) {
            double seconds = seconds_now() - began;
            counters->guard_seconds += seconds * (double)(number - counters->timed_lookups);
            counters->timed_lookups = number;
        }
        if (*entry != NULL) {
            (*entry)->hits++;
            cache->counters.hits += !(*entry)->plain;
            return 1;
        }
    }
    cache->counters.misses++;
    enum cache_mode mode = mode_in_force(cache);
    if (mode == MODE_RUN_ONLY) {
        return 0;
    }
    state = cache_state(cache, code);
    if (state == NULL) {
        return -1;
    }
    if (state->count + state->ended >= cache->limit && mode != MODE_FAIL) {
        cache->counters.limit_reached++;
        if (!state->limit_reported) {
            state->limit_reported = 1;
            if (cache->on_limit != Py_None) {
                PyObject *answer = call_with_frame(cache->on_limit, frame, NULL);
                if (answer == NULL) {
                    state->limit_reported = 0; /* an error, which the next such call is as well */
                    return -1;
                }
                Py_DECREF(answer);
            }
        }
        return 2;
    }
    return convert_frame(thread, cache, frame, entry);
}
