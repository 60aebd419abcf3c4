/* What the files of the frame hook share: the state of a thread, and what one does for another. */
#ifndef FLAMBEAU_HOOK_H
#define FLAMBEAU_HOOK_H

#include "flambeau.h"

typedef struct {
    FrameCacheObject *active;             /* strong */
    PyObject *direct;                     /* twin about to be entered: it is not looked up */
    PyObject *receiver;                   /* code about to be entered, which is handed over to */
    PyObject **handed;                    /* owned references, which its frame's own replace */
    Py_ssize_t handed_count;
    int trying;                           /* a frame's trial is under way: no other begins */
    struct _PyInterpreterFrame *deferred; /* handed to the previous hook: guards against a loop */
    const char *stack_base;               /* lowest address of the C stack */
    size_t stack_size;
    int stack_known;
} ThreadState;

static inline enum cache_mode
mode_in_force(const FrameCacheObject *cache)
{
    return stance == MODE_DEFAULT ? cache->mode : stance;
}

double seconds_now(void);

/* 1 and an entry to run, 0 run the original, 2 run it with all that it calls, -1 error.

   Below a frame at its limit nothing is captured on its own: every function of a deep program would
   reach a limit of its own, one after the other. */
int choose_entry(ThreadState *thread, FrameCacheObject *cache, CodeState *state,
                 struct _PyInterpreterFrame *frame, EntryObject **entry);

/* The evaluation function that is installed, ours left out; NULL for the interpreter's own. */
_PyFrameEvalFunction other_hook(void);

#endif
