// A square of FL_W x FL_W numbers, transposed; half precision as float32.
//
// In: FL_W; lanes.h includes this inside namespace fl. Out: transpose, which writes vectors of numbers
// of stride `step` at stride `out_step`. Invariant: lanes that are not in use are zero.

#if FL_W == 16
#define FL_LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define FL_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif FL_W == 8
#define FL_LOW 0, 8, 1, 9, 2, 10, 3, 11
#define FL_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#elif FL_W == 4
#define FL_LOW 0, 4, 1, 5
#define FL_HIGH 2, 6, 3, 7
#endif

// out[out_step * k + l] = p[l * step + k] for k < count and lanes l < n.
template <class T, class V, class N>
FL_INLINE void FL_NAME(transpose)(const T* p, long step, V* out, long out_step, long count, N n) {
#if defined(FL_LOW) && (defined(__clang__) || __GNUC__ >= 12)
  if (count == FL_W && (long)n == FL_W) {
    decltype(FL_NAME(load)(p, width<FL_W>{})) a[FL_W], b[FL_W];
#pragma GCC unroll 16
    for (int k = 0; k < FL_W; ++k) a[k] = FL_NAME(load)(p + k * step, width<FL_W>{});
    // numbers of the two halves are interleaved until each row is a column
#pragma GCC unroll 4
    for (int s = 1; s < FL_W; s *= 2) {
#pragma GCC unroll 8
      for (int k = 0; k < FL_W / 2; ++k) {
        b[2 * k] = __builtin_shufflevector(a[k], a[k + FL_W / 2], FL_LOW);
        b[2 * k + 1] = __builtin_shufflevector(a[k], a[k + FL_W / 2], FL_HIGH);
      }
#pragma GCC unroll 16
      for (int k = 0; k < FL_W; ++k) a[k] = b[k];
    }
#pragma GCC unroll 16
    for (int k = 0; k < FL_W; ++k) __builtin_memcpy(out + out_step * k, &a[k], sizeof a[k]);
    return;
  }
#endif
  for (long k = 0; k < count; ++k)
    for (long l = 0; l < FL_W; ++l)
      out[out_step * k + l] = l < (long)n ? load1(p + l * step + k) : V(0);
}
#undef FL_LOW
#undef FL_HIGH
