/* CPython 3.11: the caller of the evaluation function clears and pops the frame. */
#ifndef FLAMBEAU_PY311_H
#define FLAMBEAU_PY311_H

static inline PyCodeObject *
frame_code(const struct _PyInterpreterFrame *frame)
{
    return frame->f_code;
}

static inline PyFunctionObject *
frame_func(const struct _PyInterpreterFrame *frame)
{
    return frame->f_func;
}

static inline int
frame_is_on_thread(const struct _PyInterpreterFrame *frame)
{
    return frame->owner == FRAME_OWNED_BY_THREAD;
}

static inline int
thread_is_traced(PyThreadState *tstate)
{
    return tstate->cframe->use_tracing != 0;
}

static inline void
frame_discard(PyThreadState *Py_UNUSED(tstate), struct _PyInterpreterFrame *Py_UNUSED(frame))
{
}

/* Calls are counted once, against sys.getrecursionlimit(): there is nothing to hand back. */
static inline int
recursion_refund(PyThreadState *Py_UNUSED(tstate), int Py_UNUSED(units))
{
    return 0;
}

static inline PyObject *
weak_target(PyObject *reference)
{
    PyObject *target = PyWeakref_GET_OBJECT(reference);
    return target == Py_None ? NULL : Py_NewRef(target);
}

static inline int
lookup_attr(PyObject *object, PyObject *name, PyObject **value)
{
    return _PyObject_LookupAttr(object, name, value);
}

static inline int
dict_tag_is_kept(PyObject *Py_UNUSED(dict))
{
    return 1;
}

#endif
