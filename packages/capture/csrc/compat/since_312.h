/* CPython 3.12 on: the evaluation function itself clears the frame and takes it off the thread's
   data stack. Nothing has run in the frames discarded here, so they hold arguments only: no cell, no
   evaluation stack, no frame object. */
#ifndef FLAMBEAU_SINCE_312_H
#define FLAMBEAU_SINCE_312_H

/* The classes of the interpreter have theirs elsewhere than in `tp_dict`. */
static inline PyObject *
class_dict(PyTypeObject *type)
{
    return PyType_GetDict(type);
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

#endif
