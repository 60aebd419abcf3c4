/* The PEP 523 evaluation function.

   Installed interpreter-wide while at least one thread has an active cache; what is active is the
   thread's own. A frame of an unseen code goes to the cache's `convert`; a frame whose code has
   entries runs the first entry whose guards hold. An entry runs through a function object made of
   its code, called with the frame's arguments, so that the new frame is an ordinary one: its
   exceptions, tracebacks and sys._getframe are the interpreter's own doing. */
#define _GNU_SOURCE
#include "flambeau.h"

#include <pthread.h>
#ifndef _WIN32
#include <dlfcn.h>
#endif

typedef struct {
    FrameCacheObject *active;             /* strong */
    PyObject *direct;                     /* twin about to be entered: it is not looked up */
    int trying;                           /* a frame's trial is under way: no other begins */
    struct _PyInterpreterFrame *deferred; /* handed to the previous hook: guards against a loop */
    const char *stack_base;               /* lowest address of the C stack */
    size_t stack_size;
    int stack_known;
} ThreadState;

static _Thread_local ThreadState thread_state;

/* What is the process's: the count of threads, what was installed before, and the stance. */
static long active_threads;
static _PyFrameEvalFunction previous_eval;
enum cache_mode stance = MODE_DEFAULT;

static inline enum cache_mode
mode_in_force(const FrameCacheObject *cache)
{
    return stance == MODE_DEFAULT ? cache->mode : stance;
}

static PyObject *evaluate(PyThreadState *, struct _PyInterpreterFrame *, int);

static void
install(void)
{
    PyInterpreterState *interp = PyInterpreterState_Get();
    _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interp);
    if (current != evaluate) {
        previous_eval = current;
        _PyInterpreterState_SetEvalFrameFunc(interp, evaluate);
    }
}

static void
uninstall(void)
{
    PyInterpreterState *interp = PyInterpreterState_Get();
    /* another hook installed over ours keeps calling it: with nothing active it only passes on */
    if (_PyInterpreterState_GetEvalFrameFunc(interp) == evaluate) {
        _PyInterpreterState_SetEvalFrameFunc(interp, previous_eval);
    }
}

FrameCacheObject *
swap_active(FrameCacheObject *cache)
{
    ThreadState *thread = &thread_state;
    FrameCacheObject *before = thread->active;
    thread->active = cache;
    if (before == NULL && cache != NULL) {
        if (active_threads++ == 0) {
            install();
        }
    }
    else if (before != NULL && cache == NULL) {
        if (--active_threads == 0) {
            uninstall();
        }
    }
    return before;
}

/* Whether a hook is of torch's own compiler: told by the library that it lies in. */
static int
is_of_torch(_PyFrameEvalFunction hook)
{
    static _PyFrameEvalFunction asked;
    static int answer;
    if (hook == NULL || hook == _PyEval_EvalFrameDefault) {
        return 0;
    }
#ifndef _WIN32
    if (hook != asked) {
        Dl_info found;
        int known = dladdr((void *)(uintptr_t)hook, &found) != 0 && found.dli_fname != NULL;
        answer = known && strstr(found.dli_fname, "torch_python") != NULL;
        asked = hook;
    }
#endif
    return answer;
}

/* What sets torch's own callback for this thread, and answers the one before. */
static PyObject *foreign_callback;

void
set_foreign_callback(PyObject *setter)
{
    Py_XSETREF(foreign_callback, Py_NewRef(setter));
}

PyObject *
silence_foreign(void)
{
    _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get());
    if (foreign_callback == NULL || !is_of_torch(current == evaluate ? previous_eval : current)) {
        return NULL;
    }
    PyObject *before = PyObject_CallOneArg(foreign_callback, Py_None);
    if (before == NULL) {
        PyErr_WriteUnraisable(foreign_callback);
    }
    return before;
}

void
restore_foreign(PyObject *before)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *answer = PyObject_CallOneArg(foreign_callback, before);
    if (answer == NULL) {
        PyErr_WriteUnraisable(foreign_callback);
    }
    Py_XDECREF(answer);
    Py_DECREF(before);
    PyErr_Restore(type, value, traceback);
}

FrameCacheObject *
active_cache(void)
{
    return thread_state.active;
}

/* What one call costs of the interpreter's fixed number of nested C calls, from 3.12 on. */
#define UNITS_PER_CALL 2

enum stack_room { STACK_ROOM, STACK_RESERVE, STACK_FULL, STACK_UNKNOWN };

/* How much of the C stack Python calls have used. A plain Python call takes none of it, one through
   an evaluation function does: without a look at it deep recursion would fail early (3.12, 3.13,
   which count nested C calls) or end the process (3.11, which does not). */
static enum stack_room
stack_room(ThreadState *thread)
{
#ifdef __linux__
    if (!thread->stack_known) {
        pthread_attr_t attributes;
        void *base = NULL;
        size_t size = 0;
        thread->stack_known = 1;
        if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
            if (pthread_attr_getstack(&attributes, &base, &size) == 0) {
                thread->stack_base = (const char *)base;
                thread->stack_size = size;
            }
            pthread_attr_destroy(&attributes);
        }
    }
    if (thread->stack_base != NULL) {
        size_t left = (size_t)((const char *)__builtin_frame_address(0) - thread->stack_base);
        return left > thread->stack_size / 4   ? STACK_ROOM
               : left > thread->stack_size / 8 ? STACK_RESERVE
                                               : STACK_FULL;
    }
#endif
    (void)thread;
    return STACK_UNKNOWN;
}

static PyObject *
evaluate_default(ThreadState *thread, PyThreadState *tstate, struct _PyInterpreterFrame *frame,
                 int throwflag)
{
    enum stack_room room = stack_room(thread);
    if (room == STACK_FULL && frame_is_on_thread(frame)) {
        PyErr_SetString(PyExc_RecursionError,
                        "maximum recursion depth exceeded: the C stack is used up");
        frame_discard(tstate, frame);
        return NULL;
    }
    int units = room == STACK_ROOM ? recursion_refund(tstate, UNITS_PER_CALL) : 0;
    PyObject *result = _PyEval_EvalFrameDefault(tstate, frame, throwflag);
    recursion_refund(tstate, -units);
    return result;
}

static PyObject *
evaluate_original(ThreadState *thread, PyThreadState *tstate, struct _PyInterpreterFrame *frame,
                  int throwflag)
{
    _PyFrameEvalFunction previous = previous_eval;
    if (previous == NULL || previous == _PyEval_EvalFrameDefault ||
        thread->deferred == frame) {
        return evaluate_default(thread, tstate, frame, throwflag);
    }
    struct _PyInterpreterFrame *outer = thread->deferred;
    thread->deferred = frame;
    PyObject *result = previous(tstate, frame, throwflag);
    thread->deferred = outer;
    return result;
}

/* --- running an entry ------------------------------------------------------------------------ */

/* A new reference to a function made of the entry's code, with the globals and the closure of the
   frame's own. The last one is kept: most functions are called again and again as they are. */
static PyFunctionObject *
shadow_function(EntryObject *entry, PyFunctionObject *func)
{
    PyFunctionObject *shadow = entry->shadow;
    if (shadow != NULL && shadow->func_closure == func->func_closure &&
        shadow->func_globals == func->func_globals &&
        shadow->func_builtins == func->func_builtins) {
        Py_INCREF(shadow);
        return shadow;
    }
    shadow = (PyFunctionObject *)PyFunction_New(entry->twin, func->func_globals);
    if (shadow == NULL) {
        return NULL;
    }
    shadow->func_closure = Py_XNewRef(func->func_closure);
    Py_SETREF(shadow->func_builtins, Py_NewRef(func->func_builtins));
    Py_INCREF(shadow);
    Py_XSETREF(entry->shadow, shadow);
    return shadow;
}

/* Consumes the frame. */
static PyObject *
run_entry(ThreadState *thread, PyThreadState *tstate, struct _PyInterpreterFrame *frame,
          EntryObject *entry)
{
    PyObject *result = NULL;
    PyFunctionObject *shadow = shadow_function(entry, frame_func(frame));
    if (shadow != NULL) {
        thread->direct = entry->twin;
        result = PyObject_Vectorcall((PyObject *)shadow, frame->localsplus, (size_t)entry->nargs,
                                     NULL);
        thread->direct = NULL;
        Py_DECREF(shadow);
    }
    frame_discard(tstate, frame);
    return result;
}

/* --- guards ------------------------------------------------------------------------------------- */

static int
entry_holds(ThreadState *thread, EntryObject *entry, struct _PyInterpreterFrame *frame)
{
    if (entry->guards == Py_None) {
        return 1;
    }
    PyFunctionObject *func = frame_func(frame);
    GuardScope scope = {frame->localsplus, entry->nargs, func->func_closure, func->func_globals,
                        func->func_builtins};
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
    /* guards may run Python, which may change the cache: what is asked is a copy of the list */
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

/* --- conversion ------------------------------------------------------------------------------------ */

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
    int done = -1;
    *locals = PyDict_New();
    *free = PyDict_New();
    if (names == NULL || free_names == NULL || *locals == NULL || *free == NULL) {
        goto end;
    }
    Py_ssize_t count = code_argument_count(code);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (frame->localsplus[i] != NULL &&
            fill_names(*locals, names, i, frame->localsplus[i]) < 0) {
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

/* What `convert` answers for this frame: 1 and a new entry, 0 run the original, -1 error. */
static int
convert_frame(ThreadState *thread, FrameCacheObject *cache, struct _PyInterpreterFrame *frame,
              EntryObject **entry)
{
    PyObject *code = (PyObject *)frame_code(frame);
    PyObject *answer = call_with_frame(cache->convert, frame, (PyObject *)cache);
    int status = -1;
    if (answer == NULL) {
        return -1;
    }
    cache->counters.conversions++;
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
                PyObject *told = call_with_frame(cache->on_stillborn, frame, NULL);
                status = told == NULL ? -1 : 0;
                Py_XDECREF(told);
                state = told == NULL ? cache_state(cache, code) : NULL;
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

/* 1 and an entry to run, 0 run the original, 2 run it with all that it calls, -1 error.

   Below a frame at its limit nothing is captured on its own: every function of a deep program would
   reach a limit of its own, one after the other. */
static int
choose(ThreadState *thread, FrameCacheObject *cache, CodeState *state,
       struct _PyInterpreterFrame *frame, EntryObject **entry)
{
    PyObject *code = (PyObject *)frame_code(frame);
    if (state->count > 0) {
        *entry = matching_entry(thread, cache, state, code, frame);
        if (*entry != NULL) {
            (*entry)->hits++;
            cache->counters.hits++;
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
        if (!state->limit_told) {
            state->limit_told = 1;
            if (cache->on_limit != Py_None) {
                PyObject *told = call_with_frame(cache->on_limit, frame, NULL);
                if (told == NULL) {
                    state->limit_told = 0; /* an error, which the next such call is as well */
                    return -1;
                }
                Py_DECREF(told);
            }
        }
        return 2;
    }
    return convert_frame(thread, cache, frame, entry);
}

/* Once a process: what is compiled does not run while somebody follows the lines. */
static int
tell_traced(void)
{
    static int told = 0;
    if (told) {
        return 0;
    }
    told = 1;
    return PyErr_WarnEx(PyExc_RuntimeWarning,
                        "compiled functions run eagerly while a debugger or coverage follows their "
                        "lines (sys.settrace); coverage's sysmon core on Python 3.12 does not",
                        1);
}

/* The frame as it is, with all that it calls. */
static PyObject *
evaluate_plain(ThreadState *thread, PyThreadState *tstate, struct _PyInterpreterFrame *frame,
               FrameCacheObject *cache)
{
    cache->counters.plain_frames++;
    FrameCacheObject *active = swap_active(NULL);
    PyObject *result = evaluate_original(thread, tstate, frame, 0);
    Py_XDECREF(swap_active(active));
    return result;
}

/* A frame by what is known of its code. */
static PyObject *
evaluate_known(ThreadState *thread, PyThreadState *tstate, struct _PyInterpreterFrame *frame,
               FrameCacheObject *cache)
{
    CodeState *state = cache_state(cache, (PyObject *)frame_code(frame));
    EntryObject *entry = NULL;
    PyObject *result;
    int status = -1;
    if (state != NULL && state->kind == CODE_SKIP) {
        cache->counters.skipped_frames++;
        status = 0;
    }
    else if (state != NULL && state->kind == CODE_PLAIN) {
        status = 2;
    }
    else if (state != NULL) {
        status = choose(thread, cache, state, frame, &entry);
    }
    switch (status) {
    case 0:
        return evaluate_original(thread, tstate, frame, 0);
    case 1:
        result = run_entry(thread, tstate, frame, entry);
        Py_DECREF(entry);
        return result;
    case 2:
        return evaluate_plain(thread, tstate, frame, cache);
    default:
        frame_discard(tstate, frame);
        return NULL;
    }
}

/* Calls a method of a trial with the hook off. */
static PyObject *
call_of_trial(PyObject *object, const char *method, PyObject *argument)
{
    FrameCacheObject *active = swap_active(NULL);
    PyObject *answer = argument == NULL
                           ? PyObject_CallMethod(object, method, NULL)
                           : PyObject_CallMethod(object, method, "O", argument);
    Py_XDECREF(swap_active(active));
    return answer;
}

/* A frame whose compiled form is on trial: `trial.begin()` answers None, or a turn, whose `plain`
   says in which form the frame runs, and whose `end(finished)` is called after it. */
static PyObject *
evaluate_tried(ThreadState *thread, PyThreadState *tstate, struct _PyInterpreterFrame *frame,
               FrameCacheObject *cache, PyObject *trial)
{
    PyObject *turn = call_of_trial(trial, "begin", NULL);
    PyObject *plain = turn == NULL || turn == Py_None
                          ? NULL
                          : PyObject_GetAttrString(turn, "plain");
    PyObject *result = NULL;
    if (turn == Py_None) {
        result = evaluate_known(thread, tstate, frame, cache);
    }
    else if (plain == NULL) {
        frame_discard(tstate, frame);
    }
    else {
        PyObject *type, *value, *traceback;
        thread->trying = 1;
        result = plain == Py_True ? evaluate_plain(thread, tstate, frame, cache)
                                  : evaluate_known(thread, tstate, frame, cache);
        thread->trying = 0;
        PyErr_Fetch(&type, &value, &traceback);
        PyObject *ended = call_of_trial(turn, "end", result == NULL ? Py_False : Py_True);
        if (ended == NULL) {
            PyErr_WriteUnraisable(trial);
        }
        Py_XDECREF(ended);
        PyErr_Restore(type, value, traceback);
    }
    Py_XDECREF(plain);
    Py_XDECREF(turn);
    return result;
}

static PyObject *
evaluate(PyThreadState *tstate, struct _PyInterpreterFrame *frame, int throwflag)
{
    ThreadState *thread = &thread_state;
    PyObject *code = (PyObject *)frame_code(frame);
    FrameCacheObject *cache = thread->active;
    if (thread->deferred == frame) {
        /* the hook before ours was given this frame, and itself goes on to ours: it is decided */
        return evaluate_default(thread, tstate, frame, throwflag);
    }
    if (thread->direct == code) {
        thread->direct = NULL;
        return evaluate_original(thread, tstate, frame, throwflag);
    }
    _PyFrameEvalFunction installed = _PyInterpreterState_GetEvalFrameFunc(tstate->interp);
    if (installed != evaluate) {
        /* a hook that came over ours passes frames on: they are its own business */
        return installed == previous_eval
                   ? evaluate_default(thread, tstate, frame, throwflag)
                   : evaluate_original(thread, tstate, frame, throwflag);
    }
    if (cache == NULL || throwflag || mode_in_force(cache) == MODE_OFF ||
        !frame_is_on_thread(frame)) {
        return evaluate_original(thread, tstate, frame, throwflag);
    }
    CodeState *state = cache_find(cache, code);
    int tried = state != NULL && state->trial != NULL && !thread->trying;
    if (state != NULL && state->kind == CODE_SKIP && !tried) {
        cache->counters.skipped_frames++;
        return evaluate_original(thread, tstate, frame, throwflag);
    }
    if (tstate->tracing) {
        /* the frame is of a tracer or profiler itself */
        return evaluate_original(thread, tstate, frame, throwflag);
    }
    if (tstate->c_tracefunc != NULL) {
        /* whoever follows the lines (a debugger, coverage) is shown the user's */
        cache->counters.traced_frames++;
        if (tell_traced() < 0) {
            frame_discard(tstate, frame);
            return NULL;
        }
        return evaluate_original(thread, tstate, frame, throwflag);
    }
    PyObject *result;
    Py_INCREF(cache);
    if (tried && mode_in_force(cache) == MODE_DEFAULT) {
        PyObject *trial = Py_NewRef(state->trial);
        result = evaluate_tried(thread, tstate, frame, cache, trial);
        Py_DECREF(trial);
    }
    else {
        result = evaluate_known(thread, tstate, frame, cache);
    }
    Py_DECREF(cache);
    return result;
}
