/* CPython 3.12 and 3.13: the evaluation function itself clears the frame and takes it off the
   thread's data stack. Nothing has run in the frames discarded here, so they hold arguments only:
   no cell, no evaluation stack, no frame object. Both versions count nested C calls, too. */
#ifndef FLAMBEAU_SINCE_312_H
#define FLAMBEAU_SINCE_312_H

static inline PyFunctionObject *
frame_func(const struct _PyInterpreterFrame *frame)
{
    return (PyFunctionObject *)frame->f_funcobj;
}

static inline void
data_stack_pop(PyThreadState *tstate, struct _PyInterpreterFrame *frame)
{
    PyObject **base = (PyObject **)frame;
    _PyStackChunk *chunk = tstate->datastack_chunk;
    if (base != &chunk->data[0]) {
        tstate->datastack_top = base;
        return;
    }
    /* the frame was the first of its chunk: the chunk goes too (the root chunk's first slot is
       never given to a frame) */
    _PyStackChunk *previous = chunk->previous;
    tstate->datastack_top = &previous->data[previous->top];
    tstate->datastack_chunk = previous;
    tstate->datastack_limit = (PyObject **)(((char *)previous) + previous->size);
    PyObjectArenaAllocator arena;
    PyObject_GetArenaAllocator(&arena);
    arena.free(arena.ctx, chunk, chunk->size);
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
