// Conversions of FL_W lanes that GCC does one by one on AVX2: between bytes and wider integers.
//
// In: FL_W; lanes.h includes this inside namespace fl. Out: FL_AS(vector, T), the lanes converted to
// T as `(T)` converts each. Invariant: the same numbers come out as from __builtin_convertvector.

template <class R, class V> struct FL_NAME(conversion) {
  FL_INLINE R of(V v) { return __builtin_convertvector(v, R); }
};
#define FL_CONVERT(T, S, ...) \
  template <> struct FL_NAME(conversion)<FL_V(T), FL_V(S)> { \
    FL_INLINE FL_V(T) of(FL_V(S) v) { __VA_ARGS__ } \
  };
#if defined(__AVX2__) && !defined(__AVX512F__) && !defined(__clang__) && FL_W <= 8 && FL_W >= 4
typedef char FL_NAME(sixteen) __attribute__((vector_size(16)));
typedef unsigned char FL_NAME(bytes) __attribute__((vector_size(FL_W)));
FL_INLINE FL_NAME(sixteen) FL_NAME(low)(FL_NAME(bytes) v) {
  typedef long two __attribute__((vector_size(16)));
#if FL_W == 8
  return (FL_NAME(sixteen))two{(long)v, 0};
#else
  return (FL_NAME(sixteen))two{(long)(unsigned)v, 0};
#endif
}
#define FL_WIDEN(T, S, instruction) \
  FL_CONVERT(T, S, return (FL_V(T))instruction(FL_NAME(low)((FL_NAME(bytes))v));)
// the lowest bytes of wider lanes
#define FL_TRUNCATE(T, S, ...) \
  FL_CONVERT(T, S, \
    typedef T all __attribute__((vector_size(sizeof v))); \
    return __builtin_shufflevector((all)v, (all)v, __VA_ARGS__);)
#if FL_W == 8
#define FL_HIGH_HALVES
FL_INLINE FL_V(u16) high_halves(FL_V(u32) v) {
  typedef int four __attribute__((vector_size(16)));
  const FL_V(i32) high = (FL_V(i32))(v >> 16);
  const four first = __builtin_shufflevector(high, high, 0, 1, 2, 3);
  const four last = __builtin_shufflevector(high, high, 4, 5, 6, 7);
  return (FL_V(u16))__builtin_ia32_packusdw128(first, last);
}
FL_WIDEN(i32, i8, __builtin_ia32_pmovsxbd256) FL_WIDEN(i32, u8, __builtin_ia32_pmovzxbd256)
FL_TRUNCATE(i8, i32, 0, 4, 8, 12, 16, 20, 24, 28) FL_TRUNCATE(u8, i32, 0, 4, 8, 12, 16, 20, 24, 28)
#else
FL_WIDEN(i32, i8, __builtin_ia32_pmovsxbd128) FL_WIDEN(i32, u8, __builtin_ia32_pmovzxbd128)
FL_WIDEN(i64, i8, __builtin_ia32_pmovsxbq256) FL_WIDEN(i64, u8, __builtin_ia32_pmovzxbq256)
FL_TRUNCATE(i8, i32, 0, 4, 8, 12) FL_TRUNCATE(u8, i32, 0, 4, 8, 12)
FL_TRUNCATE(i8, i64, 0, 8, 16, 24) FL_TRUNCATE(u8, i64, 0, 8, 16, 24)
FL_TRUNCATE(i32, i64, 0, 2, 4, 6)
FL_CONVERT(i64, i32, return (FL_V(i64))__builtin_ia32_pmovsxdq256(v);)
#endif
#undef FL_TRUNCATE
// a float is made of a byte's integer
#define FL_FLOAT(T, S, wide) \
  FL_CONVERT(T, S, return __builtin_convertvector( \
      (FL_NAME(conversion)<FL_V(wide), FL_V(S)>::of(v)), FL_V(T));)
FL_FLOAT(f32, i8, i32) FL_FLOAT(f32, u8, i32) FL_FLOAT(f64, i8, i32) FL_FLOAT(f64, u8, i32)
#undef FL_FLOAT
#undef FL_WIDEN
#endif
#undef FL_CONVERT
#define FL_AS(v, T) FL_NAME(converted)<FL_V(T)>(v)
template <class R, class V> FL_INLINE R FL_NAME(converted)(V v) {
  return FL_NAME(conversion)<R, V>::of(v);
}
// A mask as bytes of 0 and 1.
#if defined(__AVX2__) && !defined(__AVX512F__) && !defined(__clang__) && FL_W == 8
FL_INLINE FL_V(u8) truths(FL_V(i32) m) {
  typedef int four __attribute__((vector_size(16)));
  typedef short eight __attribute__((vector_size(16)));
  typedef long two __attribute__((vector_size(16)));
  const four low = __builtin_shufflevector(m, m, 0, 1, 2, 3);
  const eight words = __builtin_ia32_packssdw128(low, __builtin_shufflevector(m, m, 4, 5, 6, 7));
  return (FL_V(u8))((two)__builtin_ia32_packsswb128(words, words))[0] & 1;
}
#else
FL_INLINE FL_V(u8) truths(FL_V(i32) m) { return FL_AS(m & 1, u8); }
#endif
// The upper half of each lane, which is what bfloat16 has of a float32.
#ifndef FL_HIGH_HALVES
FL_INLINE FL_V(u16) high_halves(FL_V(u32) v) { return FL_AS(v >> 16, u16); }
#endif
#undef FL_HIGH_HALVES
