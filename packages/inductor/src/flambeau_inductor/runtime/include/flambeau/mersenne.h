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

typedef unsigned sixteen __attribute__((vector_size(64)));
typedef unsigned char sixteen_bytes __attribute__((vector_size(16)));

struct Mersenne {
  enum { words = 624, shift = 397 };

  // A state is renewed when a word is requested and `left` is 1.
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

  template <class Word> static Word temper(Word y) {
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
  }

  // Whether the uniform number of 53 bits that two words make is below limit / 2^53: its bits are
  // the lower ones of the words, the first of which is the upper one.
  static unsigned char is_below(unsigned first, unsigned second, unsigned long limit) {
    const unsigned long both = (unsigned long)temper(first) << 32 | temper(second);
    return (both & ((1ul << 53) - 1)) < limit;
  }

  // out[k] for pairs of words. The first word decides but once in two million. `fetch` is called with
  // every sixteenth k.
  template <class Fetch>
  static void pairs_below(const unsigned* __restrict from, unsigned char* __restrict out,
                          long count, unsigned long limit, Fetch fetch) {
    const unsigned upper = (unsigned)(limit >> 32), lower = (1u << 21) - 1;
    unsigned undecided = 0;
    long k = 0;
#if defined(__clang__) || __GNUC__ >= 12
    sixteen doubt{};
    // the last sixteen pairs may be taken twice
    for (; k < count && count >= 16; k += 16) {
      if (k + 16 > count) k = count - 16;
      sixteen one, other;
      __builtin_memcpy(&one, from + 2 * k, sizeof one);
      __builtin_memcpy(&other, from + 2 * k + 16, sizeof other);
      const sixteen word = temper(__builtin_shufflevector(one, other, 0, 2, 4, 6, 8, 10, 12, 14, 16,
                                                          18, 20, 22, 24, 26, 28, 30)) & lower;
      const auto below = __builtin_convertvector((sixteen)(word < upper) & 1u, sixteen_bytes);
      __builtin_memcpy(out + k, &below, sizeof below);
      doubt |= (sixteen)(word == upper);
      fetch(k);
    }
    for (int l = 0; l < 16; l++) undecided |= doubt[l];
#endif
    for (; k < count; k++) {
      const unsigned word = temper(from[2 * k]) & lower;
      out[k] = word < upper;
      undecided |= word == upper;
    }
    if (undecided)
      for (k = 0; k < count; k++) out[k] = is_below(from[2 * k], from[2 * k + 1], limit);
  }

  // As if `count` words had been drawn.
  void skip(long count) {
    while (count > 0) {
      if (left == 1) renew();
      const long used = left - 1 < count ? left - 1 : count;
      left -= used;
      next += used;
      count -= used;
    }
  }

  // out[k] = u < p for uniform u; `limit` is the least integer not below p * 2^53.
  void below(unsigned char* out, long count, unsigned long limit) {
    below(out, count, limit, [](long) {});
  }
  template <class Fetch>
  void below(unsigned char* __restrict out, long count, unsigned long limit, Fetch fetch) {
    const unsigned char* const begin = out;
    unsigned carried = 0;
    bool carries = false;  // a word whose partner is in the next state
    while (count > 0) {
      if (left == 1) renew();
      const unsigned* from = state + next;
      const long have = left - 1;
      long used = 0;
      if (carries) {
        *out++ = is_below(carried, from[used++], limit);
        --count;
        carries = false;
      }
      const long pairs = (have - used) / 2 < count ? (have - used) / 2 : count;
      const long done = out - begin;
      pairs_below(from + used, out, pairs, limit, [&](long k) { fetch(done + k); });
      out += pairs;
      count -= pairs;
      used += 2 * pairs;
      if (count > 0 && used < have) {
        carried = from[used++];
        carries = true;
      }
      left -= used;
      next += used;
    }
  }
};

// Parts of one stream by several threads: to skip words takes less than half the time of drawing
// them, so each thread is given a part that is `shorter` than the one before it by as much.
struct Parts {
  enum { most = 8 };
  int parts;
  long begin[most + 1];

  // `rows`, each of them or a multiple of `unit` together, by `threads` at most.
  Parts(long rows, long unit, int threads, double shorter) : parts(threads < most ? threads : most) {
    double whole = 0, length = 1;
    for (int k = 0; k < parts; k++, length *= shorter) whole += length;
    length = (double)rows / whole;
    begin[0] = 0;
    for (int k = 1; k < parts; k++, length *= shorter)
      begin[k] = begin[k - 1] + (long)(length / (double)unit) * unit;
    begin[parts] = rows;
  }
};

// Fewer draws are made by one thread.
enum { worth_threads = 1 << 16 };

static int drawing_team([[maybe_unused]] long count, [[maybe_unused]] int most) {
#ifdef _OPENMP
  if (count >= worth_threads) return team(most);
#endif
  return 1;
}

static void below_by_threads(Mersenne& generator, unsigned char* out, long count,
                             unsigned long limit) {
  const Parts parts(count, 1, drawing_team(count, Parts::most), 0.55);
  const Mersenne start = generator;
#pragma omp parallel for num_threads(parts.parts) schedule(static, 1) if (parts.parts > 1)
  for (int k = 0; k < parts.parts; k++) {
    Mersenne mine = start;
    mine.skip(2 * parts.begin[k]);
    mine.below(out + parts.begin[k], parts.begin[k + 1] - parts.begin[k], limit);
    if (k == parts.parts - 1) generator = mine;
  }
}

// A loop over rows of `length` draws each, `piece` rows at a time after the draws that they read:
// what is drawn is read from the smallest cache, and memory is fetched while numbers are drawn.
// run(mask, begin, end) does rows whose draws are at mask + row * length; fetch(k) prefetches what a
// row reads with draw k of all. The draws are kept at `out`, unless that is null.
template <long piece, long length, class Run, class Fetch>
static void rows_after_draws(Mersenne& generator, unsigned char* out, long rows,
                              unsigned long limit, int threads, Run run, Fetch fetch) {
  const Parts parts(rows, piece, drawing_team(rows * length, threads), 0.7);
  const Mersenne start = generator;
#pragma omp parallel for num_threads(parts.parts) schedule(static, 1) if (parts.parts > 1)
  for (int k = 0; k < parts.parts; k++) {
    alignas(64) unsigned char drawn[piece * length];
    Mersenne mine = start;
    mine.skip(2 * length * parts.begin[k]);
    const long last = parts.begin[k + 1];
    for (long row = parts.begin[k]; row < last; row += piece) {
      const long end = row + piece < last ? row + piece : last, ahead = end * length;
      unsigned char* const at = out ? out + row * length : drawn;
      mine.below(at, (end - row) * length, limit, [&](long n) { fetch(ahead + n); });
      run((const b8*)((unsigned long)at - (unsigned long)(row * length)), row, end);
    }
    if (k == parts.parts - 1) generator = mine;
    fence();
  }
}

// Calls use(generator) with torch's generator, whose state is then what that has left. Arguments
// from Python: functions that give the state as a tensor, the address of a tensor, and set the
// state. Nobody else runs Python from the first of them to the last.
template <class Use> static PyObject* with_generator(PyObject* const* argument, Use use) {
  PyObject* nothing = PyTuple_New(0);
  PyObject* state = nothing ? PyObject_Call(argument[0], nothing, nullptr) : nullptr;
  PyObject* one = state ? PyTuple_New(1) : nullptr;
  PyObject *address = nullptr, *done = nullptr;
  if (one) {
    PyTuple_SetItem(one, 0, state);  // it owns the state from here on
    address = PyObject_Call(argument[1], one, nullptr);
  } else if (state) {
    Py_DecRef(state);
  }
  unsigned char* bytes = address ? (unsigned char*)PyLong_AsVoidPtr(address) : nullptr;
  if (bytes) {
    Mersenne generator(bytes);
    use(generator);
    generator.keep(bytes);
    done = PyObject_Call(argument[2], one, nullptr);
  }
  if (address) Py_DecRef(address);
  if (one) Py_DecRef(one);
  if (nothing) Py_DecRef(nothing);
  return done;
}

// After the functions: an address, a count, and the limit of `below`.
static PyObject* draw_below(PyObject*, PyObject* const* argument, long count) {
  if (count != 6) return PyErr_Format(PyExc_TypeError, "draws take 6 arguments, not %ld", count);
  unsigned char* out = (unsigned char*)PyLong_AsVoidPtr(argument[3]);
  const long points = (long)PyLong_AsVoidPtr(argument[4]);
  const unsigned long limit = (unsigned long)PyLong_AsVoidPtr(argument[5]);
  if (PyErr_Occurred()) return nullptr;
  return with_generator(
      argument, [&](Mersenne& generator) { below_by_threads(generator, out, points, limit); });
}

}  // namespace fl
