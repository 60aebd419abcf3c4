/* The PEP 523 evaluation function.

   Installed interpreter-wide while at least one thread has an active cache; what is active is the
   thread's own. A frame of an unseen code goes to the cache's `convert`; a frame whose code has
   entries runs the first entry whose guards hold. An entry runs through a function object made of
   its code, called with the frame's arguments, so that the new frame is an ordinary one: its
   exceptions, tracebacks and sys._getframe are the interpreter's own doing. */
#define _GNU_SOURCE
#include "hook.h"

#include <math.h>
#include <pthread.h>
#include <time.h>

static _Thread_local ThreadState thread_state;

/* What is the process's: the count of threads, what was installed before, and the stance. */
static long active_threads;
static _PyFrameEvalFunction previous_eval;
enum cache_mode stance = MODE_DEFAULT;

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

_PyFrameEvalFunction
other_hook(void)
{
    _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get());
    return current == evaluate ? previous_eval : current;
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

/* --- handing over ----------------------------------------------------------------------------- */

/* Calls a Python function with references of the caller's, which go when its frame has its own: what
   a plain call of Python code does, and one through an evaluation function does not. `values` are
   NULL after that; those of a function that was never entered are left. */
static PyObject *
call_handing_over(ThreadState *thread, PyObject *function, PyObject *code, PyObject **values,
                  Py_ssize_t count)
{
    thread->receiver = code;
    thread->handed = values;
    thread->handed_count = count;
    PyObject *result = PyObject_Vectorcall(function, values, (size_t)count, NULL);
    thread->receiver = NULL;
    return result;
}

static void
release_handed(ThreadState *thread)
{
    PyObject **values = thread->handed;
    Py_ssize_t count = thread->handed_count;
    thread->receiver = NULL;
    for (Py_ssize_t i = 0; i < count; i++) { /* the frame has each: nothing ends here */
        Py_CLEAR(values[i]);
    }
}

static PyObject *continue_type;

PyObject *
set_continue(PyObject *Py_UNUSED(module), PyObject *type)
{
    Py_XSETREF(continue_type, Py_NewRef(type));
    Py_RETURN_NONE;
}

/* Takes what a `Continue` is given out of it: a new reference to its function, and to each argument
   in an array to be freed. */
static PyObject *
empty_continue(PyObject *going, PyObject ***values, Py_ssize_t *count)
{
    PyObject *function = PyObject_GetAttrString(going, "func");
    PyObject *arguments = PyObject_GetAttrString(going, "args");
    PyObject *emptied = NULL;
    *values = NULL;
    if (function != NULL && arguments != NULL) {
        emptied = PyObject_CallMethod(going, "__setstate__", "((O(){}O))", function, Py_None);
    }
    if (emptied != NULL) {
        *count = PyTuple_GET_SIZE(arguments);
        *values = PyMem_Malloc((size_t)(*count + 1) * sizeof(PyObject *));
        for (Py_ssize_t i = 0; *values != NULL && i < *count; i++) {
            (*values)[i] = Py_NewRef(PyTuple_GET_ITEM(arguments, i));
        }
        if (*values == NULL) {
            PyErr_NoMemory();
        }
    }
    Py_XDECREF(emptied);
    Py_XDECREF(arguments);
    if (*values == NULL) {
        Py_CLEAR(function);
    }
    return function;
}

PyObject *
drive(PyObject *Py_UNUSED(module), PyObject *going)
{
    PyObject *result = Py_NewRef(going);
    while (result != NULL && (PyObject *)Py_TYPE(result) == continue_type) {
        PyObject **values;
        Py_ssize_t count;
        PyObject *function = empty_continue(result, &values, &count);
        Py_DECREF(result);
        if (function == NULL) {
            return NULL;
        }
        PyObject *code = PyFunction_Check(function) ? PyFunction_GET_CODE(function) : NULL;
        result = call_handing_over(&thread_state, function, code, values, count);
        for (Py_ssize_t i = 0; i < count; i++) {
            Py_XDECREF(values[i]);
        }
        PyMem_Free(values);
        Py_DECREF(function);
    }
    return result;
}

/* --- running an entry ------------------------------------------------------------------------ */

/* A new reference to a function made of the entry's code, with the globals and the closure of the
   frame's own. It is kept for the next call, without the closure, whose cells it would keep alive. */
static PyFunctionObject *
shadow_function(EntryObject *entry, PyFunctionObject *func)
{
    PyFunctionObject *shadow = entry->shadow;
    if (shadow != NULL && (func->func_closure == NULL || Py_REFCNT(shadow) == 1) &&
        shadow->func_globals == func->func_globals &&
        shadow->func_builtins == func->func_builtins) {
        Py_INCREF(shadow);
        Py_XSETREF(shadow->func_closure, Py_XNewRef(func->func_closure));
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
        PyObject *room[frame_room(entry->nargs)];
        PyObject **values = frame_take(frame, entry->nargs, room);
        thread->direct = entry->twin;
        result = call_handing_over(thread, (PyObject *)shadow, entry->twin, values, entry->nargs);
        thread->direct = NULL;
        for (Py_ssize_t i = 0; i < entry->nargs; i++) {
            Py_CLEAR(values[i]); /* where the function was never entered */
        }
        Py_CLEAR(shadow->func_closure);
        Py_DECREF(shadow);
    }
    frame_discard(tstate, frame);
    return result;
}

/* Once a process: what is compiled does not run while somebody follows the lines. */
static int
warn_of_tracing(void)
{
    static int warned = 0;
    if (warned) {
        return 0;
    }
    warned = 1;
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

/* --- the trial of an entry ------------------------------------------------------------------------ */

double
seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int
entry_is_tried(const ThreadState *thread, const EntryObject *entry)
{
    return entry->trial != NULL && entry->trial != Py_None && !entry->turn.busy &&
           !thread->trying;
}

/* Calls a method of an entry's trial with the hook off. Consumes the arguments. */
static PyObject *
ask_trial(PyObject *trial, const char *method, PyObject *arguments)
{
    PyObject *answer = NULL;
    PyObject *bound = arguments == NULL ? NULL : PyObject_GetAttrString(trial, method);
    if (bound != NULL) {
        FrameCacheObject *active = swap_active(NULL);
        answer = PyObject_CallObject(bound, arguments);
        Py_XDECREF(swap_active(active));
        Py_DECREF(bound);
    }
    Py_XDECREF(arguments);
    return answer;
}

/* `trial.begin()` says of how many calls the next turn is: of the original where it is negative. */
static int
begin_turn(TrialTurn *turn, PyObject *trial, const FrameCacheObject *cache)
{
    PyObject *answer = ask_trial(trial, "begin", PyTuple_New(0));
    long calls = answer == NULL ? -1 : PyLong_AsLong(answer);
    Py_XDECREF(answer);
    if (calls == -1 && PyErr_Occurred()) {
        return -1;
    }
    turn->plain = calls < 0;
    turn->calls_left = (int)(calls < 0 ? -calls : calls);
    turn->disturbed = 0;
    turn->before = 0;
    turn->shortest = turn->period = HUGE_VAL;
    turn->conversions = cache->counters.conversions;
    return 0;
}

/* `trial.end(entry, plain, shortest, period, disturbed, result)`, after the last call of a turn. */
static void
end_turn(EntryObject *entry, PyObject *trial, PyObject *result)
{
    const TrialTurn *turn = &entry->turn;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *arguments = Py_BuildValue(
        "(OOddOO)", entry, turn->plain ? Py_True : Py_False, turn->shortest, turn->period,
        turn->disturbed ? Py_True : Py_False, result == NULL ? Py_None : result);
    PyObject *ended = ask_trial(trial, "end", arguments);
    if (ended == NULL) {
        PyErr_WriteUnraisable(trial);
    }
    Py_XDECREF(ended);
    PyErr_Restore(type, value, traceback);
}

/* One call of an entry on trial; its choice began at `began`. Consumes the frame. */
static PyObject *
evaluate_measured(ThreadState *thread, PyThreadState *tstate, struct _PyInterpreterFrame *frame,
                  FrameCacheObject *cache, EntryObject *entry, double began)
{
    TrialTurn *turn = &entry->turn;
    PyObject *trial = Py_NewRef(entry->trial);
    PyObject *result = NULL;
    double choosing = seconds_now() - began;
    turn->busy = 1;
    if (turn->calls_left == 0 && begin_turn(turn, trial, cache) < 0) {
        frame_discard(tstate, frame);
        goto end;
    }
    if (turn->calls_left == 0) {
        result = run_entry(thread, tstate, frame, entry);
        goto end;
    }
    if (turn->before != 0 && turn->of == tstate) {
        double period = began - turn->before;
        turn->period = period < turn->period ? period : turn->period;
    }
    turn->before = began + (turn->plain ? choosing : 0);
    turn->of = tstate;
    thread->trying = 1;
    double start = seconds_now();
    result = turn->plain ? evaluate_plain(thread, tstate, frame, cache)
                         : run_entry(thread, tstate, frame, entry);
    double seconds = seconds_now() - start + (turn->plain ? 0 : choosing);
    thread->trying = 0;
    turn->shortest = seconds < turn->shortest ? seconds : turn->shortest;
    turn->disturbed |= result == NULL || turn->conversions != cache->counters.conversions;
    if (--turn->calls_left == 0) {
        end_turn(entry, trial, result);
    }
end:
    turn->busy = 0;
    Py_DECREF(trial);
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
    double began = 0;
    int status = -1;
    if (state != NULL && state->kind == CODE_SKIP) {
        cache->counters.skipped_frames++;
        status = 0;
    }
    else if (state != NULL && state->kind == CODE_PLAIN) {
        status = 2;
    }
    else if (state != NULL) {
        for (Py_ssize_t i = 0; i < state->count && began == 0; i++) {
            began = entry_is_tried(thread, state->entries[i]) ? seconds_now() : 0;
        }
        status = choose_entry(thread, cache, state, frame, &entry);
    }
    switch (status) {
    case 0:
        return evaluate_original(thread, tstate, frame, 0);
    case 1:
        if (entry->plain && mode_in_force(cache) == MODE_DEFAULT) {
            result = evaluate_plain(thread, tstate, frame, cache);
        }
        else if (began != 0 && entry_is_tried(thread, entry) &&
                 mode_in_force(cache) == MODE_DEFAULT) {
            result = evaluate_measured(thread, tstate, frame, cache, entry, began);
        }
        else {
            result = run_entry(thread, tstate, frame, entry);
        }
        Py_DECREF(entry);
        return result;
    case 2:
        return evaluate_plain(thread, tstate, frame, cache);
    default:
        frame_discard(tstate, frame);
        return NULL;
    }
}

/* A frame whose compiled form is on trial: `trial.begin()` answers None, or a turn, whose `plain`
   says in which form the frame runs, and whose `end(finished, result)` is called after it. */
static PyObject *
evaluate_tried(ThreadState *thread, PyThreadState *tstate, struct _PyInterpreterFrame *frame,
               FrameCacheObject *cache, PyObject *trial)
{
    PyObject *turn = ask_trial(trial, "begin", PyTuple_New(0));
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
        PyObject *finished = result == NULL ? Py_False : Py_True;
        PyObject *given = Py_BuildValue("(OO)", finished, result == NULL ? Py_None : result);
        PyObject *ended = ask_trial(turn, "end", given);
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
    if (thread->receiver != NULL && thread->receiver == code && !throwflag) {
        release_handed(thread);
    }
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
        if (warn_of_tracing() < 0) {
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
