/* Torch's own compiler, silent while a call of ours runs within one of its own. */
#define _GNU_SOURCE
#include "hook.h"

#ifndef _WIN32
#include <dlfcn.h>
#endif

/* Whether a hook is of torch's own compiler, known by the library that it lies in. */
static int
is_of_torch(_PyFrameEvalFunction hook)
{
    static _PyFrameEvalFunction seen;
    static int answer;
    if (hook == NULL || hook == _PyEval_EvalFrameDefault) {
        return 0;
    }
#ifndef _WIN32
    if (hook != seen) {
        Dl_info found;
        int known = dladdr((void *)(uintptr_t)hook, &found) != 0 && found.dli_fname != NULL;
        answer = known && strstr(found.dli_fname, "torch_python") != NULL;
        seen = hook;
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
    if (foreign_callback == NULL || !is_of_torch(other_hook())) {
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
