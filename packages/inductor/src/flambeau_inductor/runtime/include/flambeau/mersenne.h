// The numbers of torch's CPU generator, a Mersenne Twister (Matsumoto and Nishimura, "Mersenne
// Twister: a 623-dimensionally equidistributed uniform pseudo-random number generator", 1998),
// whole vectors at a time.
//
// In: the bytes of `torch.Generator.get_state()`: the seed, how many words are left and whether it
// is seeded, where the next one is, then the words, each in 64 bits. Out: draws, and the state after
// them. Invariant: draws and state are those that torch's own serial kernels come to.
#pragma once

#include "flambeau/python.h"

namespace fl {

typedef unsigned long __attribute__((may_alias)) two_words;

struct Mersenne {
  enum { words = 624, shift = 397, chunk = 624 };

  // A state is renewed when a word is asked for and `left` is 1.
  alignas(64) unsigned state[words];
  long left, next;

  explicit Mersenne(const unsigned char* bytes) {
    int left4;
    __builtin_memcpy(&left4, bytes + 8, 4);
    __builtin_memcpy(&next, bytes + 16, 8);
    left = left4;
    for (long k = 0; k < words; k++) __builtin_memcpy(state + k, bytes + 24 + 8 * k, 4);
  }

  void keep(unsigned char* bytes) const {
    const int left4 = (int)left;
    __builtin_memcpy(bytes + 8, &left4, 4);
    __builtin_memcpy(bytes + 16, &next, 8);
    for (long k = 0; k < words; k++) {
      const unsigned long wide = state[k];
      __builtin_memcpy(bytes + 24 + 8 * k, &wide, 8);
    }
  }

  static unsigned twist(unsigned a, unsigned b) {
    const unsigned mixed = (a & 0x80000000u) | (b & 0x7fffffffu);
    return (mixed >> 1) ^ ((0u - (b & 1u)) & 0x9908b0dfu);
  }

  void renew() {
    unsigned* s = state;
    for (long k = 0; k < words - shift; k++) s[k] = s[k + shift] ^ twist(s[k], s[k + 1]);
    // what is read was written 227 words before: further than a vector is long
#pragma GCC ivdep
    for (long k = words - shift; k < words - 1; k++)
      s[k] = s[k - (words - shift)] ^ twist(s[k], s[k + 1]);
    s[words - 1] = s[shift - 1] ^ twist(s[words - 1], s[0]);
    left = words + 1;
    next = 0;
  }

  static void temper(const unsigned* __restrict from, unsigned* __restrict to, long count) {
    for (long k = 0; k < count; k++) {
      unsigned y = from[k];
      y ^= y >> 11;
      y ^= (y << 7) & 0x9d2c5680u;
      y ^= (y << 15) & 0xefc60000u;
      to[k] = y ^ (y >> 18);
    }
  }

  // Up to `most` words of one state into `to`; how many.
  long some(unsigned* to, long most) {
    if (left == 1) renew();
    const long count = left - 1 < most ? left - 1 : most;
    temper(state + next, to, count);
    left -= count;
    next += count;
    return count;
  }

  // out[k] = u < p for uniform u of 53 bits: those are the lower ones of two words, the first of
  // which is the upper one. `limit` is the least integer not below p * 2^53.
  void below(unsigned char* __restrict out, long count, unsigned long limit) {
    alignas(64) unsigned drawn[chunk + 2];
    long kept = 0;  // a word whose partner is in the next state
    while (count > 0) {
      const long have = kept + some(drawn + kept, 2 * count - kept), pairs = have / 2;
      const two_words* pair = (const two_words*)drawn;
      for (long k = 0; k < pairs; k++) {
        const unsigned long both = pair[k] << 32 | pair[k] >> 32;
        out[k] = (both & ((1ul << 53) - 1)) < limit;
      }
      out += pairs;
      count -= pairs;
      kept = have & 1;
      if (kept) drawn[0] = drawn[have - 1];
    }
  }
};

// Arguments from Python: functions that give a generator's state as a tensor, the address of a
// tensor, and set the state; then an address, a count, and the limit of `below`. Nobody else runs
// Python from the first of them to the last.
static PyObject* draw_below(PyObject*, PyObject* const* argument, long count) {
  if (count != 6) return PyErr_Format(PyExc_TypeError, "draws take 6 arguments, not %ld", count);
  unsigned char* out = (unsigned char*)PyLong_AsVoidPtr(argument[3]);
  const long points = (long)PyLong_AsVoidPtr(argument[4]);
  const unsigned long limit = (unsigned long)PyLong_AsVoidPtr(argument[5]);
  if (PyErr_Occurred()) return nullptr;
  PyObject* nothing = PyTuple_New(0);
  PyObject* held = nothing ? PyObject_Call(argument[0], nothing, nullptr) : nullptr;
  PyObject* one = held ? PyTuple_New(1) : nullptr;
  PyObject *address = nullptr, *done = nullptr;
  if (one) {
    PyTuple_SetItem(one, 0, held);  // it owns the state from here on
    address = PyObject_Call(argument[1], one, nullptr);
  } else if (held) {
    Py_DecRef(held);
  }
  unsigned char* bytes = address ? (unsigned char*)PyLong_AsVoidPtr(address) : nullptr;
  if (bytes) {
    Mersenne generator(bytes);
    generator.below(out, points, limit);
    generator.keep(bytes);
    done = PyObject_Call(argument[2], one, nullptr);
  }
  if (address) Py_DecRef(address);
  if (one) Py_DecRef(one);
  if (nothing) Py_DecRef(nothing);
  return done;
}

}  // namespace fl
