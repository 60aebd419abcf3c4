/* Size programs: arithmetic over the sizes and strides of tensors, over integers and over floats,
   evaluated once the values of a guard tree are known. Made by guards/sizes.py, whose Python twin
   is the reference.

   A program is a row of numbers for a machine with a stack; it holds if it leaves one number that is
   not zero. Whatever goes beyond 64 bits, divides by zero or is of another class does not hold. A
   float is on the stack by its bits: each operation knows which of the two it is given. */
#include "guard_tree.h"

#include <math.h>
#include <string.h>

#define FEW 64
#define EXACT ((int64_t)1 << 53) /* up to here every integer is a float */

static double
as_double(int64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static int64_t
bits_of(double value)
{
    int64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static int64_t
floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}

/* 0 done, -1 no such value */
static int
load_integer(PyObject *value, int64_t *out)
{
    int overflow = 0;
    if (!PyLong_CheckExact(value)) {
        return -1;
    }
    *out = PyLong_AsLongLongAndOverflow(value, &overflow);
    return overflow ? -1 : 0;
}

static int
load_float(PyObject *value, int64_t *out)
{
    if (!PyFloat_CheckExact(value)) {
        return -1;
    }
    *out = bits_of(PyFloat_AS_DOUBLE(value));
    return 0;
}

/* Operations on what is on top: `NOT` of an integer, `TOF` to a float, the others of a float. */
static int
one_operand(enum size_op op, int64_t *top)
{
    double value = as_double(*top);
    switch (op) {
    case OP_NOT:
        *top = !*top;
        return 0;
    case OP_TOF:
        if (*top < -EXACT || *top > EXACT) {
            return -1;
        }
        *top = bits_of((double)*top);
        return 0;
    case OP_SQRT:
        if (value < 0.0) { /* not a number is the root of itself */
            return -1;
        }
        *top = bits_of(sqrt(value));
        return 0;
    case OP_FLOOR:
    case OP_CEIL:
    case OP_TRUNC:
    case OP_ROUND: /* half to even, as Python does */
        if (!(-(double)EXACT <= value && value <= (double)EXACT)) {
            return -1;
        }
        *top = (int64_t)(op == OP_FLOOR  ? floor(value)
                         : op == OP_CEIL  ? ceil(value)
                         : op == OP_ROUND ? rint(value)
                                          : trunc(value));
        return 0;
    default:
        return -1;
    }
}

static int
is_unary(enum size_op op)
{
    return op == OP_NOT || op == OP_TOF || op == OP_SQRT || op == OP_FLOOR || op == OP_CEIL ||
           op == OP_TRUNC || op == OP_ROUND;
}

static int
two_floats(enum size_op op, double a, double b, int64_t *out)
{
    switch (op) {
    case OP_FADD:
        *out = bits_of(a + b);
        return 0;
    case OP_FSUB:
        *out = bits_of(a - b);
        return 0;
    case OP_FMUL:
        *out = bits_of(a * b);
        return 0;
    case OP_FDIV:
        if (b == 0.0) {
            return -1;
        }
        *out = bits_of(a / b);
        return 0;
    case OP_FEQ:
        *out = a == b;
        return 0;
    case OP_FNE:
        *out = a != b;
        return 0;
    case OP_FLT:
        *out = a < b;
        return 0;
    case OP_FLE:
        *out = a <= b;
        return 0;
    default:
        return -1;
    }
}

static int
two_operands(enum size_op op, int64_t a, int64_t b, int64_t *out)
{
    switch (op) {
    case OP_ADD:
        return __builtin_add_overflow(a, b, out) ? -1 : 0;
    case OP_MUL:
        return __builtin_mul_overflow(a, b, out) ? -1 : 0;
    case OP_FLOORDIV:
    case OP_MOD:
        if (b == 0 || (a == INT64_MIN && b == -1)) {
            return -1;
        }
        *out = op == OP_FLOORDIV ? floor_div(a, b) : a - floor_div(a, b) * b;
        return 0;
    case OP_REM: /* of numbers that are not negative, the only ones it is made for */
        if (a < 0 || b <= 0) {
            return -1;
        }
        *out = a % b;
        return 0;
    case OP_MAX:
        *out = a > b ? a : b;
        return 0;
    case OP_MIN:
        *out = a < b ? a : b;
        return 0;
    case OP_EQ:
        *out = a == b;
        return 0;
    case OP_NE:
        *out = a != b;
        return 0;
    case OP_LT:
        *out = a < b;
        return 0;
    case OP_LE:
        *out = a <= b;
        return 0;
    case OP_AND:
        *out = a && b;
        return 0;
    case OP_OR:
        *out = a || b;
        return 0;
    default:
        return two_floats(op, as_double(a), as_double(b), out);
    }
}

/* Functions of floats that Python computes, for `CALL1` and `CALL2`. */
static PyObject *functions;

PyObject *
set_functions(PyObject *Py_UNUSED(module), PyObject *given)
{
    if (!PyTuple_CheckExact(given)) {
        PyErr_SetString(PyExc_TypeError, "set_functions takes a tuple");
        return NULL;
    }
    Py_XSETREF(functions, Py_NewRef(given));
    Py_RETURN_NONE;
}

/* What a function answers for the floats at `top`, written there; -1: no float. */
static int
called(int64_t index, int64_t *top, Py_ssize_t count)
{
    PyObject *arguments[2] = {NULL, NULL}, *answer = NULL;
    int status = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        arguments[i] = PyFloat_FromDouble(as_double(top[i]));
        status = arguments[i] == NULL ? -1 : status;
    }
    if (status == 0) {
        answer = PyObject_Vectorcall(PyTuple_GET_ITEM(functions, index), arguments,
                                     (size_t)count, NULL);
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_XDECREF(arguments[i]);
    }
    status = answer == NULL ? -1 : load_float(answer, top);
    Py_XDECREF(answer);
    PyErr_Clear();
    return status;
}

/* `stack` has room for as many numbers as the program is long: it pushes no more. */
static int
leaves_truth(const SizeProgram *program, PyObject *layout, PyObject **slots, int64_t *stack)
{
    Py_ssize_t top = 0;
    for (Py_ssize_t at = 0; at < program->count;) {
        enum size_op op = (enum size_op)program->code[at++];
        int status = -1;
        if (size_op_pushes(op)) {
            const int64_t *operand = &program->code[at];
            if (op != OP_CONST && slots[operand[0]] == NULL) {
                return 0;
            }
            if (op == OP_CONST) {
                stack[top] = operand[0];
                status = 0;
            }
            else if (op == OP_VALUE) {
                status = load_integer(slots[operand[0]], &stack[top]);
            }
            else if (op == OP_FLOAT) {
                status = load_float(slots[operand[0]], &stack[top]);
            }
            else {
                status = tensor_dimension(layout, slots[operand[0]], op == OP_STRIDE,
                                          (Py_ssize_t)operand[1], &stack[top]);
            }
            at += size_op_operands(op);
            top++;
        }
        else if (op == OP_CALL1 || op == OP_CALL2) {
            Py_ssize_t count = op == OP_CALL1 ? 1 : 2;
            status = top >= count ? called(program->code[at], &stack[top - count], count) : -1;
            top -= count - 1;
            at++;
        }
        else if (is_unary(op)) {
            status = top >= 1 ? one_operand(op, &stack[top - 1]) : -1;
        }
        else if (top >= 2) {
            status = two_operands(op, stack[top - 2], stack[top - 1], &stack[top - 2]);
            top--;
        }
        if (status < 0) {
            return 0;
        }
    }
    return top == 1 && stack[0] != 0;
}

int
size_program_holds(const SizeProgram *program, PyObject *layout, PyObject **slots)
{
    int64_t few[FEW], *stack = few;
    if (program->count > FEW) {
        stack = PyMem_New(int64_t, program->count);
        if (stack == NULL) {
            return 0;
        }
    }
    int holds = leaves_truth(program, layout, slots, stack);
    if (stack != few) {
        PyMem_Free(stack);
    }
    return holds;
}

/* From a tuple of numbers, whose places are slots of the tree; -1 with an error set if it is none. */
int
size_program_fill(SizeProgram *program, PyObject *numbers, Py_ssize_t slot_count)
{
    Py_ssize_t count = PyTuple_GET_SIZE(numbers);
    program->code = PyMem_Calloc((size_t)count + 1, sizeof(int64_t));
    if (program->code == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        program->code[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(numbers, i));
        if (program->code[i] == -1 && PyErr_Occurred()) {
            return -1;
        }
    }
    for (Py_ssize_t at = 0; at < count;) {
        int64_t op = program->code[at++];
        Py_ssize_t operands = op >= 0 && op < OP_COUNT ? size_op_operands(op) : count;
        int reads_slot = op == OP_SIZE || op == OP_STRIDE || op == OP_VALUE || op == OP_FLOAT;
        int calls = op == OP_CALL1 || op == OP_CALL2;
        Py_ssize_t known = functions == NULL ? 0 : PyTuple_GET_SIZE(functions);
        if (at + operands > count ||
            (calls && (program->code[at] < 0 || program->code[at] >= known)) ||
            (reads_slot && (program->code[at] < 0 || program->code[at] >= slot_count))) {
            PyErr_SetString(PyExc_ValueError, "this is no size program");
            return -1;
        }
        at += operands;
    }
    program->count = count;
    return 0;
}
