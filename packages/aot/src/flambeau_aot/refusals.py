"""Refusals: a stable id, a message and a remedy for each.

In: an id and the facts that its message names. Out: the exception to raise.
Invariant: an id is never used again for another meaning; a message begins with it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from flambeau_aot import errors


@dataclass(frozen=True)
class Refusal:
    """One row: the class that is raised, what was found (a format string), what helps."""

    id: str
    kind: type[errors.AotError]
    message: str
    remedy: str


def refusal(id: str, user_lines: str = "", **facts: object) -> errors.AotError:
    """The exception of a row, with the facts that its message names."""
    row = refusals()[id]
    text = f"{id}: {row.message.format(**facts)}"
    return row.kind(f"{text}; {row.remedy}" if row.remedy else text, user_lines)


@cache
def refusals() -> dict[str, Refusal]:
    """The table, by id."""
    rows = {}
    for block in re.split(r"\n(?=AO)", _TABLE.strip()):
        head, _, text = " ".join(block.split()).partition(": ")
        id, _, kind = head.partition(" ")
        message, _, remedy = text.partition(" > ")
        rows[id] = Refusal(id, getattr(errors, kind or "Unsupported"), message, remedy)
    return rows


_TABLE = """
AO0001 NotYetSymbolic: argument {position} is symbolic
AO0002 NotYetSymbolic: arguments of symbolic sizes share memory that is written to
AO0003 NotYetSymbolic: no input has exactly the size {missing}
AO0004: arguments {positions} share memory with {own}, and the program writes to one of them > pass
    a copy
AO0005: a tensor of layout {layout} ({dtype}) as an input
AO0006: an input with a lazy conjugation or negation > resolve it first
AO0007: an input that has elements, but no memory > clone it first
AO0008: a tensor subclass as an input: {kind} > give it __tensor_flatten__ and __tensor_unflatten__,
    or pass what it holds as a plain tensor
AO0009: arguments {positions} share memory, the program writes to one of them, and they are not
    views of one tensor > pass that tensor and take the views in the program
AO0010: arguments {positions} share memory as different dtypes, and one is written to
AO0011: arguments {positions} are views of a tensor that requires grad and is not a whole contiguous
    one, and the program writes to one of them > pass clones
AO0012: arguments {unrecorded} are views, made with grad disabled, of a tensor that requires grad,
    and share memory with an argument that is written to > pass clones
AO0013: a result is a view by as_strided of memory that several arguments share, seen as another
    dtype > use views by dimensions
AO0014: as_strided reaches memory before that of the arguments, which share it and are written to >
    use views by dimensions
AO0015 NotYetSymbolic: views at places that are left open, one of which is written to
AO0016 NotYetSymbolic: a view with strides that are left open is written to
AO0017 NotYetSymbolic: the symbolic truth {part} is no number
AO0018 NotYetSymbolic: the size {expression} cannot be computed from sizes of the inputs
AO0019 NotYetSymbolic: the symbol {expression} is not a size of an input
AO0020: a {cls} has a gradient or a result of another class, {kind} > let its __torch_dispatch__
    return its own class
AO0021 DoubleBackwardError: backward with create_graph=True through a compiled program of {cls}, a
    tensor subclass > run this part of the program uncompiled
AO0022: a {cls}, a tensor subclass, is an input and is given other parts or another shape in place >
    let it write to the tensors it holds, or return a new one
AO0023: a tensor of layout {layout} as an input
AO0024: the context that {cls}.__tensor_flatten__ gives cannot be hashed, so that a change of it
    would go unnoticed > let it consist of hashable values
AO0025: an optimizer changed a number of its own, or made new state, while a step was traced > keep
    the number in a tensor
AO0026: a graph with {op} nodes is not supported
AO0027: the graph has no output
AO0028 DataDependent: {what}: needs the value of a tensor ({error}) > keep the value on the tensor,
    or let this part run outside the graph
AO0029: {what}: a write to a view made by as_strided of another view > take the view from the tensor
    itself, or write to a clone
AO0030: {what}: a tensor gets another storage or size in place (resize_) > make a new one
AO0031: {what}: a write to a tensor whose elements share memory with each other > write to a clone
AO0032: {what}: torch.equal asks for the values of tensors > compare with (x == y).all(), or outside
AO0033: {what}: a function asks for the values of a tensor, which has none while the program is
    traced > give it numbers of Python's, or call it outside
AO0034: {what}: forward-mode differentiation of a view, whose tangent torch lays out in another way
    there
AO0035: {what}: a view of a value that was then written to and detached in place > use detach()
AO0036 RefusedCall: {what}: {kind}: {error} (the program was run on tensors that have shapes and no
    values) > if it runs in eager, keep this line out of the compiled region
AO0037 TraceError: {what}: {kind}: {error} (the program was run on tensors that have shapes and no
    values) > if it runs in eager, keep this line out of the compiled region
AO0038 DataDependent: Tensor.{func} of a value of the program, which has none while the program is
    traced > keep it a tensor, or wrap this part in a custom operator (torch.library.custom_op)
AO0039 NotYetSymbolic: the symbolic sizes {shape} reached the tracer
AO0040: {func} has no deterministic implementation, and `torch.use_deterministic_algorithms` was
    asked for: the graph runs eagerly, which raises or warns
AO0041: {func} writes to an argument and has no functional form
AO0042: {func} writes running statistics without saying so > call torch.batch_norm or
    torch.nn.functional.batch_norm
AO0043: a random operator inside a checkpoint with use_reentrant=True would draw again in the
    backward pass > call checkpoint with use_reentrant=False
AO0044: a write to a view by as_strided of a tensor that is not contiguous > write to a view by
    dimensions, or to a clone
AO0045: a function that is traced by itself (of cond or while_loop) reads a tensor of the program
    around it > pass it as an operand
AO0046: a view by as_strided reaches outside the memory of its tensor, or of the new value of one
    that was written to > use views by dimensions
AO0047: {target} gives a tensor of layout {layout}, of which metadata do not say what operators make
    > use dense tensors
AO0048: the program closes over a tensor that requires grad > pass it as an argument
AO0049: the program sets the state of the random generator (manual_seed, set_rng_state), which no
    graph does > set it before the compiled region
AO0050: inputs share memory, and the program writes to one of them
AO0051: the program accumulates gradients in inputs (backward) > return what torch.autograd.grad
    gives
AO0052: a result requires grad although no input does
AO0053 NotYetSymbolic: an input is given another shape of symbolic sizes in place
AO0054: autograd cannot tell what a result is: {error}
AO0055: a write through `data` to a tensor that a checkpointed region has read, and would read again
    in the backward pass > write to a clone
AO0056: {func} at these dtypes, as eager says: {words}
AO0057: {func} on a GPU, which cuDNN computes whole > keep the layer out of the compiled region, or
    turn cuDNN off (torch.backends.cudnn.flags(enabled=False))
AO0058: grad is enabled inside the program, which writes to memory that it shares with an argument
    that is a view, made with grad disabled, of a tensor that requires grad > pass a clone
AO0059: the program differentiates after it has put a hook on an input (register_hook) > put the
    hook on it outside the region
AO0060: the higher-order operator {func} > let it run outside the graph, or write both branches with
    torch.where
AO0061: slice_inverse, torch's own inverse of a slice > index the tensor
AO0062: as_strided_, in place, of a view > use as_strided, and return what it gives
AO0063: retain_grad inside the program > return the value instead
AO0064: an argument that shares memory with another one which is written to begins to require grad
    (requires_grad_) > call it before the region, or pass a clone
AO0065: requires_grad_ on an input that was detached in place > use detach()
AO0066: detach_ on an argument of which another one is a view, or that shares memory with another
    one which is written to > use detach()
AO0067: a hook on the gradient of an input > put the hook on it outside the region
AO0068: reading .grad of an input > pass the gradient as an argument
AO0069: reading .grad_fn of an input > read it outside the region
AO0070: the handle of a hook on an input > remove the hook outside the region
AO0071: register_hook on an argument that shares memory with another one which is written to > put
    the hook on it outside the region
AO0072: register_hook on an input that was written to > put the hook on it before
AO0073: a hook on an input that reads a tensor of the program > put the hook on `x.view_as(x)`, and
    use that in place of the input
AO0074: a write to a view of an input that is a view itself and began to require grad
    (requires_grad_) > write to it before, or to a clone
AO0075: a write to a tensor that requires grad and was given another shape in place > use the
    operator that returns the new shape
AO0076: a view of a tensor that requires grad is used after the tensor was given another shape in
    place > use the operator that returns the new shape
AO0077: {func} writes to tensors that share memory > write to them one by one
AO0078: {name} writes to {inexact} > write to slices of it, or to a clone
AO0079: {name} writes to memory that it reads at other places > clone what it reads
AO0080: a write to an expanded tensor, or to another whose elements share memory > write to a clone,
    or to the tensor that was expanded
AO0081: a tensor with memory between its elements is given another shape in place, and written to >
    use the operator that returns the new shape
AO0082: a tensor gets another size in place (out=) > make a new one
AO0083: {func} with an out= of {dtype} on CUDA
AO0084: {func} with out= where a tensor has no elements
AO0085: {func} with an out= that is a view, whose elements share memory with each other or with what
    is read > use copy_ on the view
AO0086: {func} with an out= that was given another shape in place > use copy_
AO0087: {func} with an out= of another size ({before}, now {shape}) > give it an out of the result's
    size
AO0088: {func} writes to an argument and is given a tensor that requires grad > call it under
    torch.no_grad(), or give it a form that returns the new value
AO0089: {name} writes to an argument and returns more than tensors and one list of them > let one
    operator write and another one return them
AO0090: {name} returns a view of an argument > let it return nothing, or a tensor of its own
AO0091: {func} writes to a tensor whose elements share memory > give it a clone
AO0092: {func} writes to memory that it is given in two ways
AO0093: {func} writes to memory that it is given as an expanded tensor
AO0094: embedding_bag with sparse=True, and max_norm, scale_grad_by_freq, a weight that is no
    parameter or input, weights of samples that are no sum, or a second derivative > use
    sparse=False, or let it run outside the graph
AO0095: embedding with sparse=True, and max_norm, scale_grad_by_freq, a weight that is no parameter
    or input, or a second derivative > use sparse=False, or let it run outside the graph
AO0096: embeddings of one weight with sparse=True and several paddings, or of an open size > use
    sparse=False
AO0097: the gradient of a plain tensor is a {kind}, a tensor subclass > make the tensor one too, or
    detach it
AO0098: as_strided of a tensor that is not dense reaches memory between its elements, and the
    program writes to an input > use views by dimensions
AO0099: register_hook on an input that is a view and is written to, where the gradient of the value
    before goes another way > put the hook on what it is a view of
AO0100: input {index} gets another storage or size in place (set_, resize_, out=) > return a new
    tensor
AO0101: input {index} is reshaped in place in an unknown way
AO0102: input {index} is a view that was made with grad disabled, and the program writes to it >
    take the view with grad enabled, or pass a clone
AO0103 TraceError: a leaf Variable that requires grad is being used in an in-place operation
AO0104: input {index}, whose elements share memory (an expanded tensor), is written to in part >
    write to a clone, or to the tensor that was expanded
AO0105: as_strided with a place in the storage of input {index}, which begins inside it and is
    written to > use views by dimensions, or leave the offset out
AO0106: input {index} is detached in place, and then a value that requires grad is written to it >
    use detach(), and write to that
AO0107: input {index} is detached in place and given another shape in place > use detach(), or the
    operator that returns the shape
AO0108: an input that requires grad is written to and reshaped by {func} > return the reshaped value
    instead
AO0109: argument {position} shares memory with another that is written to, and begins to require
    grad (by requires_grad_, or by what is written to it) > pass a clone
AO0110: argument {position} shares memory with another that is written to, and is reshaped in place
AO0111: an input begins to require grad inside the program (requires_grad_) while another input is a
    view of it > call requires_grad_() before the compiled region
AO0112: an input begins to require grad inside the program (requires_grad_) while a result is a view
    of it > call requires_grad_() before the compiled region
AO0113: an input that is a view begins to require grad inside the program (requires_grad_), and a
    result depends on a view of it > call requires_grad_() before the compiled region
AO0114: a tensor begins to require grad inside the program (requires_grad_), and results depend on
    it > call requires_grad_() before the compiled region
AO0115: a result is a view of another result that is itself an alias (detach, data) or was given
    another shape in place > return one of the two
AO0116: several results are views of one alias by `data` > take them of the tensor itself, or of
    `detach()`
AO0117: a result is a view of an input that shares memory with another input, which is given another
    shape, detached or made to require grad in place
AO0118: a result of layout {layout} > convert it outside
AO0119 NotYetSymbolic: a symbolic size is among the results
AO0120: the handle of a hook on an input is a result
AO0121: a result shares memory with input {primal} in an unknown way
AO0122: a result is a view of one of several inputs that are the same part of one memory
AO0123: a result is a view of an input, but its gradient does not go by views to it (a derivative of
    the program's own, a write to an alias), and that input shares memory with another one, is
    written to or changed in place > return a clone
AO0124: a result is a view, made with grad disabled, of an input that the program gives another
    shape in place
AO0125: a result is a view, made with grad disabled, of a tensor that begins to require grad inside
    the program
AO0126: register_hook on a view that shares memory with a result > put the hook on what it is a view
    of
AO0127: a fake value escaped the trace as a result
AO0128: a result is a {kind} that the program makes > return the tensors that it consists of, and
    make it outside
AO0129: a result is a {kind} that keeps a tensor of the program > return the tensor
AO0130: a result is, or is a view of, a leaf made inside the program, and its base is no result
AO0131: results share memory with a value that autograd cannot reach
AO0132: retain_grad() of an input that the program writes to, where a result depends on what was
    written > call it after the region, or pass a clone
AO0133: a value that the backward pass needs is written to in place after it was saved, and the
    backward pass would raise ({error}) > write to a clone, or use the operator that returns the new
    value
AO0134 RefusedCall: the backward part raises, as it does in eager where it is run: {error} > detach
    that result, or correct the operator's arguments
AO0135 TraceError: the backward part cannot be traced: {error}
AO0136: an autograd function with set_materialize_grads(False), whose gradients are undefined for
    some of the program's results alone > leave undefined gradients zero
AO0137: the backward pass writes to a tensor that the program has made > make that tensor outside
    the region, and pass it as an argument
AO0138: the backward pass writes to an input for some of the results only > return one result, or
    let this part run outside the graph
AO0139: {name} with an operand that is no tensor: {item!r}
AO0140: a function of {name} writes to an operand, or returns one, a view of one or a value that is
    no tensor > return a new tensor (clone)
AO0141: a function of {name} is differentiated and draws by {target} in its backward part or from a
    generator of its own > draw outside of it
AO0142: the two functions of cond give results of other shapes, strides or dtypes: {layouts} and
    {others} > let both return the same
AO0143: the body of {name} changes the shape or dtype of what it carries
AO0144: the body of {name} returns {returned} values and carries {count}
AO0145 DoubleBackwardError: {name} does not do what it did when it was first traced > what it reads
    besides its arguments must not change between calls
AO0146: a backward of {name} is marked with @once_differentiable: what autograd makes of its
    gradients is no graph
AO0147 DoubleBackwardError: the gradients of {name} depend on the value that {names} had before the
    program wrote to it, and that value is gone > write to a copy, or run this part of the program
    uncompiled
AO0148 DoubleBackwardError: inputs of {name} share memory that it writes to, or it changes whether
    an input requires grad: derivatives of second order are refused there > run this part of the
    program uncompiled
AO0149 DoubleBackwardError: {name} contains torch.cond, whose derivative has no derivative > write
    both branches with torch.where, or run this part of the program uncompiled
AO0150 DoubleBackwardError: {name} draws random numbers that cannot be drawn again: {draws}, in its
    backward part or from a generator of its own > draw them outside, or run this part of the
    program uncompiled
AO0151: the backward part of {name} writes to an input, which its derivative would do again > run
    this part of the program uncompiled
AO0152: {name} has a sparse gradient (embedding with sparse=True) > use sparse=False
AO0153: the caller has put a hook, or retain_grad(), on a result of {name} on which another result
    depends, or asks for its gradient > put it on what the program does not read
AO0154 DoubleBackwardError: the derivative of {name} reads {read}, which its gradient does not
    depend on: a defect of this package
AO0155 AotError: the backward part of a compiled graph is given a gradient with a tangent of
    forward-mode differentiation, which its kernels do not see, and: {why} > run the forward part
    inside of dual_level() too, where nothing is compiled
AO0156 DoubleBackwardError: backward through a compiled graph was called with create_graph=True, and
    this graph was compiled with Options(higher_order=False)
AO0157 AotError: a hook, or retain_grad(), on a result of a compiled program on which another result
    depends, or a gradient of one by the other: its backward pass would have to be run as eager runs
    it, and: {why}
AO0158: an input comes from a derivative of a user's (autograd.Function, custom operator), and a
    result does not depend on that input: the derivative would be run where no gradient is asked of
    it > run this part of the program uncompiled
AO0159: the derivative of {name} leads back to a derivative of a user's that is not linear in the
    gradient, which eager runs once in a backward pass, of the whole gradient > run this part of the
    program uncompiled
AO0160 DoubleBackwardError: a program that was loaded without its source has no derivatives of
    second order
AO0161: {func} over no more elements than its correction, of which eager warns at every call
AO0162: no Python source can call {func}: a part of its name is a keyword > call another operator
AO0163: {func} writes to a result of a custom operator that requires grad: eager refuses it where
    what the operator's function returns is a view, which no trace shows > use the operator that
    returns the new value
AO0164: the backward part of {name} is given a gradient with a tangent of forward-mode
    differentiation, which its kernels do not see > run the forward part inside of dual_level() too
AO0165: the running statistics of {func} share memory with what it reads besides, which its kernel
    reads after it writes them > pass tensors of their own
AO0166: a result of {name} depends on another one, whose gradient its caller may request: the
    program would have to be run again for it, and: {why} > return one of them
AO0167: hooks on saved tensors are in force around a compiled program, which saves other
    tensors than eager: the program runs as eager runs it > use those of torch
    (torch.autograd.graph.save_on_cpu, torch.utils.checkpoint), or enter them inside of the program
AO0168: a gradient of a {cls}, a tensor subclass, has tensors of integers or truth values in it that
    are not those of the tensor itself > run this part of the program uncompiled
AO0169: a result is a {kind}, a tensor subclass that the program makes, where only values of the
    graph may be results > return the tensors that it consists of
AO0170: a derivative of the program's writes to the gradient that it is given, which may be shared
    or expanded outside of the graph: eager refuses it there, or others see the write > write to a
    clone of the gradient
AO0171: the backward part of {name} is given undefined gradients alone, and a derivative of a user's
    (autograd.Function, custom operator) in it runs all the same > answer zeros in place of None
AO0172 AotError: the backward part of a compiled graph is given undefined gradients alone, and not
    all of its results lead to a derivative of a user's in it, which runs all the same: for which of
    them it is to run is not known > answer zeros in place of None
AO0173: a {cls}, a tensor subclass, has a gradient whose parts have other sizes than its own > bring
    the gradient to the form of what it is of, as `redistribute` does
AO0174: {func} of a packed sequence, or over an open number of steps, under autocast > run the layer
    outside of autocast
AO0175: a result is a {cls}, a tensor subclass, whose gradient is of another form > bring it to the
    form of its gradient in this part of the program, as `redistribute` does with a partial sum
AO0176: gradients of {name} are differentiated in turn, and its caller has a result on which another
    one depends, or which its operator keeps, and with that the gradients > drop that result before,
    or return it detached
AO0177: a result shares memory with another one or an input and its gradient goes another way
    (through the derivative of an autograd.Function), and it or what it is a view of depends on a
    result, whose hooks would miss a part of their gradient > return a clone of it
AO0178: what {name} asked in its forward of the code around it, how a sharded module scatters its
    gradients for one, is answered otherwise in its backward pass: the forward is run again and
    differentiated as eager does > change such settings between two steps, before the forward
AO0179 AotError: what a compiled forward asked of the code around it, how a sharded module scatters
    its gradients for one, is answered otherwise in its backward pass; it would have to be run again
    for that, and: {why} > change such settings between two steps, before the forward
AO0180: arguments {positions} share memory, the program writes to one of them, and what they are
    views of was detached in place, which they were not > detach() instead
AO0181: the caller has put hooks on results of {name}, and on leaves whose gradients may be complete
    before those of the results are: it is differentiated as eager does, to call them in order > put
    hooks on either alone
AO0182: the caller has put hooks on results of a compiled program, and on leaves whose gradients
    eager completes before those of the results are known; the compiled backward part gives those of
    leaves and other inputs at once, and cannot call the hooks in that order > put hooks on either
    alone
AO0183: the `.data` of an input that is kept for the backward pass was assigned to before it, and
    eager keeps both the input, which has the new data, and what was made of the former > assign to
    it after the backward pass
AO0184: gelu on a CPU with an out= that is not contiguous, to which eager does not write > give it a
    contiguous one, or assign the result
"""
"""Id and class (`Unsupported` where none is named), the message, and after `>` the remedy."""
