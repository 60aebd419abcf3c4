/* CPython 3.12 and 3.13: nested C calls are counted, and a frame's slots are plain references. */
#ifndef FLAMBEAU_PY312_313_H
#define FLAMBEAU_PY312_313_H

static inline PyFunctionObject *
frame_func(const struct _PyInterpreterFrame *frame)
{
    return (PyFunctionObject *)frame->f_funcobj;
}

/* A call that goes through an evaluation function is also counted against a fixed number of
   nested C calls (1500 in 3.12.1, two a call), which a plain call is not. Hands units back. */
static inline int
recursion_refund(PyThreadState *tstate, int units)
{
    tstate->c_recursion_remaining += units;
    return units;
}

static inline void
frame_discard(PyThreadState *tstate, struct _PyInterpreterFrame *frame)
{
    PyObject *code = (PyObject *)frame_code(frame);
    int used = frame->stacktop;
    for (int i = 0; i < used; i++) {
        PyObject *value = frame->localsplus[i];
        frame->localsplus[i] = NULL;
        Py_XDECREF(value);
    }
    Py_XDECREF((PyObject *)frame->frame_obj);
    Py_XDECREF(frame->f_locals);
    Py_DECREF(frame->f_funcobj);
    Py_DECREF(code);
    data_stack_pop(tstate, frame);
}

#endif
