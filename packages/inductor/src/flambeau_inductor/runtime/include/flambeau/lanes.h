// Vectors of FL_W lanes: the primitives of vec.h on FL_W elements at a time.
//
// In: the macro FL_W (2 to 64, a power of two), set before each inclusion. Out: types f32xW, i64xW, ... and
// overloads in namespace fl. Invariant: lanes never mix, except in the reductions at the end; a
// lane that is not in use may hold anything and is never stored. A mask is an i32xW of 0 and -1.
#include "flambeau/vec.h"
#include "flambeau/special.h"

#define FL_JOIN3(a, b) a##b
#define FL_JOIN2(a, b) FL_JOIN3(a, b)
#define FL_V(T) FL_JOIN2(T##x, FL_W)
#define FL_NAME(n) FL_JOIN2(n, FL_W)
#define FL_EACH(e) for (int l = 0; l < FL_W; ++l) r[l] = (e)

namespace fl {

typedef f32 FL_V(f32) __attribute__((vector_size(4 * FL_W)));
typedef f64 FL_V(f64) __attribute__((vector_size(8 * FL_W)));
typedef i8 FL_V(i8) __attribute__((vector_size(FL_W)));
typedef u8 FL_V(u8) __attribute__((vector_size(FL_W)));
typedef i16 FL_V(i16) __attribute__((vector_size(2 * FL_W)));
typedef i32 FL_V(i32) __attribute__((vector_size(4 * FL_W)));
typedef i64 FL_V(i64) __attribute__((vector_size(8 * FL_W)));
typedef unsigned short FL_V(u16) __attribute__((vector_size(2 * FL_W)));
typedef unsigned FL_V(u32) __attribute__((vector_size(4 * FL_W)));
#include "flambeau/conversions.h"

#define FL_FROM(k) k, k + 1, k + 2, k + 3
#define FL_SIXTEEN(k) FL_FROM(k), FL_FROM(k + 4), FL_FROM(k + 8), FL_FROM(k + 12)
#if FL_W == 64
#define FL_IOTA {FL_SIXTEEN(0), FL_SIXTEEN(16), FL_SIXTEEN(32), FL_SIXTEEN(48)}
#elif FL_W == 32
#define FL_IOTA {FL_SIXTEEN(0), FL_SIXTEEN(16)}
#elif FL_W == 16
#define FL_IOTA {FL_SIXTEEN(0)}
#elif FL_W == 8
#define FL_IOTA {FL_FROM(0), FL_FROM(4)}
#elif FL_W == 4
#define FL_IOTA {FL_FROM(0)}
#else
#define FL_IOTA {0, 1}
#endif
FL_INLINE FL_V(i32) FL_NAME(lanes)() { return FL_V(i32) FL_IOTA; }

// AVX2 blends by signs, AVX-512 by bits of a comparison.
#if defined(__AVX2__) && !defined(__AVX512F__)
#define FL_IS_SET(m) ((m) < 0)
#else
#define FL_IS_SET(m) (m)
#endif
// Memory, splats, comparisons, selection, and keeping the lanes in use.
#define FL_COMMON(T, S) \
  FL_INLINE FL_V(T) FL_NAME(load)(const T* p, width<FL_W>) { \
    FL_V(T) r; __builtin_memcpy(&r, p, sizeof r); return r; } \
  FL_INLINE void store(T* p, FL_V(T) v, width<FL_W>) { __builtin_memcpy(p, &v, sizeof v); } \
  FL_INLINE void store(T* p, FL_V(T) v, long n) { __builtin_memcpy(p, &v, n * sizeof(T)); } \
  FL_INLINE FL_V(T) FL_NAME(splat)(T a) { return a - FL_V(T){}; } \
  FL_INLINE FL_V(i32) eq(FL_V(T) a, FL_V(T) b) { return FL_AS(a == b, i32); } \
  FL_INLINE FL_V(i32) ne(FL_V(T) a, FL_V(T) b) { return FL_AS(a != b, i32); } \
  FL_INLINE FL_V(i32) lt(FL_V(T) a, FL_V(T) b) { return FL_AS(a < b, i32); } \
  FL_INLINE FL_V(i32) le(FL_V(T) a, FL_V(T) b) { return FL_AS(a <= b, i32); } \
  FL_INLINE FL_V(i32) gt(FL_V(T) a, FL_V(T) b) { return FL_AS(a > b, i32); } \
  FL_INLINE FL_V(i32) ge(FL_V(T) a, FL_V(T) b) { return FL_AS(a >= b, i32); } \
  FL_INLINE FL_V(T) select(FL_V(i32) m, FL_V(T) a, FL_V(T) b) { return FL_IS_SET(FL_AS(m, S)) ? a : b; } \
  FL_INLINE FL_V(T) keep(FL_V(T) v, T, width<FL_W>) { return v; } \
  FL_INLINE FL_V(T) keep(FL_V(T) v, T other, long n) { \
    return select(FL_NAME(lanes)() < (i32)n, v, FL_NAME(splat)(other)); }
FL_COMMON(f32, i32) FL_COMMON(f64, i64) FL_COMMON(i8, i8) FL_COMMON(u8, i8) FL_COMMON(i16, i16)
FL_COMMON(i32, i32) FL_COMMON(i64, i64)
#undef FL_COMMON
#undef FL_IS_SET

// The first n elements, and zeros. A masked load is of one instruction, and reads no more than these;
// through memory the next load waits for two stores.
#define FL_FIRST(T) \
  FL_INLINE FL_V(T) FL_NAME(load)(const T* p, long n) { \
    T t[FL_W] = {}; __builtin_memcpy(t, p, n * sizeof(T)); \
    FL_V(T) r; __builtin_memcpy(&r, t, sizeof r); return r; }
#if defined(__AVX2__) && FL_W == 8
FL_INLINE f32x8 load8(const f32* p, long n) {
  reads(p, n * sizeof(f32));
  return (f32x8)__builtin_ia32_maskloadps256((const f32x8*)p, lanes8() < (i32)n);
}
FL_INLINE i32x8 load8(const i32* p, long n) {
  reads(p, n * sizeof(i32));
  return (i32x8)__builtin_ia32_maskloadd256((const i32x8*)p, lanes8() < (i32)n);
}
#else
FL_FIRST(f32) FL_FIRST(i32)
#endif
FL_FIRST(f64) FL_FIRST(i8) FL_FIRST(u8) FL_FIRST(i16) FL_FIRST(i64)
#undef FL_FIRST

// Stores that go past the caches, where memory is aligned for them.
#define FL_STREAM(T) \
  FL_INLINE void stream(T* p, FL_V(T) v, width<FL_W> n) { \
    if (((unsigned long)p & (sizeof v - 1)) == 0) bypass(p, v); \
    else store(p, v, n); } \
  FL_INLINE void stream(T* p, FL_V(T) v, long n) { store(p, v, n); }
FL_STREAM(f32) FL_STREAM(f64) FL_STREAM(i16) FL_STREAM(i32) FL_STREAM(i64)
#undef FL_STREAM

template <class N> FL_INLINE bool every(FL_V(i32) m, N n) {
  return (long)n == FL_W ? !one_of(~m) : !one_of(~m & (FL_NAME(lanes)() < (i32)(long)n));
}
template <class N> FL_INLINE bool some(FL_V(i32) m, N n) {
  return (long)n == FL_W ? one_of(m) : one_of(m & (FL_NAME(lanes)() < (i32)(long)n));
}

#include "flambeau/half_lanes.h"
#define FL_HALF(H, w, bits) \
  template <class N> FL_INLINE FL_V(f32) FL_NAME(load)(const H* p, N n) { \
    unsigned short t[FL_W] = {}; FL_V(u16) r; \
    if ((long)n == FL_W) __builtin_memcpy(&r, p, sizeof r); \
    else { __builtin_memcpy(t, p, n * 2); __builtin_memcpy(&r, t, sizeof r); } \
    return w(r); } \
  template <class N> FL_INLINE void store(H* p, FL_V(f32) v, N n) { \
    FL_V(u16) r = bits; __builtin_memcpy(p, &r, n * 2); } \
  FL_INLINE void stream(H* p, FL_V(f32) v, width<FL_W> n) { \
    FL_V(u16) r = bits; \
    if (((unsigned long)p & (sizeof r - 1)) == 0) bypass(p, r); \
    else store(p, v, n); } \
  FL_INLINE void stream(H* p, FL_V(f32) v, long n) { store(p, v, n); }
// what is stored as bf16 has been rounded where it was computed
FL_HALF(bf16, widen_bf16, high_halves((FL_V(u32))v))
FL_HALF(f16, widen_f16, half_bits(v))
#undef FL_HALF
#include "flambeau/transpose.h"
template <class N> FL_INLINE FL_V(i32) FL_NAME(load)(const b8* p, N n) {
  return FL_AS(FL_NAME(load)((const u8*)p, n) != 0, i32);
}
template <class N> FL_INLINE void store(b8* p, FL_V(i32) v, N n) {
  store((u8*)p, truths(v), n);
}

// Numbers in the order from p down, n of them.
#ifdef __clang__
#define FL_REVERSED(S) for (int l = 0; l < FL_W; ++l) r[l] = v[FL_W - 1 - l]
#else
#define FL_REVERSED(S) r = __builtin_shuffle(v, (S)(FL_W - 1) - (FL_V(S))FL_IOTA)
#endif
#define FL_BACKWARDS(H, T, S) \
  template <class N> FL_INLINE FL_V(T) FL_NAME(backwards)(const H* p, N n) { \
    FL_V(T) r{}; \
    if ((long)n == FL_W) { \
      const FL_V(T) v = FL_NAME(load)(p - (FL_W - 1), width<FL_W>{}); FL_REVERSED(S); \
    } else for (long l = 0; l < (long)n; ++l) r[l] = load1(p - l); \
    return r; }
FL_BACKWARDS(f32, f32, i32) FL_BACKWARDS(f64, f64, i64) FL_BACKWARDS(i8, i8, i8)
FL_BACKWARDS(u8, u8, i8) FL_BACKWARDS(i16, i16, i16) FL_BACKWARDS(i32, i32, i32)
FL_BACKWARDS(i64, i64, i64) FL_BACKWARDS(bf16, f32, i32) FL_BACKWARDS(f16, f32, i32)
FL_BACKWARDS(b8, i32, i32)
#undef FL_BACKWARDS
#undef FL_REVERSED

#define FL_INTEGER(T, U) \
  FL_INLINE FL_V(T) add(FL_V(T) a, FL_V(T) b) { return a + b; } \
  FL_INLINE FL_V(T) sub(FL_V(T) a, FL_V(T) b) { return a - b; } \
  FL_INLINE FL_V(T) mul(FL_V(T) a, FL_V(T) b) { return a * b; } \
  FL_INLINE FL_V(T) neg(FL_V(T) a) { return -a; } \
  FL_INLINE FL_V(T) abs(FL_V(T) a) { return a < 0 ? -a : a; } \
  FL_INLINE FL_V(T) sign(FL_V(T) a) { return (FL_V(T))((a < 0) - (a > 0)); } \
  FL_INLINE FL_V(T) maximum(FL_V(T) a, FL_V(T) b) { return a > b ? a : b; } \
  FL_INLINE FL_V(T) minimum(FL_V(T) a, FL_V(T) b) { return a < b ? a : b; } \
  FL_INLINE FL_V(T) bitwise_and(FL_V(T) a, FL_V(T) b) { return a & b; } \
  FL_INLINE FL_V(T) bitwise_or(FL_V(T) a, FL_V(T) b) { return a | b; } \
  FL_INLINE FL_V(T) bitwise_xor(FL_V(T) a, FL_V(T) b) { return a ^ b; } \
  FL_INLINE FL_V(T) bitwise_not(FL_V(T) a) { return ~a; } \
  FL_INLINE FL_V(T) pow(FL_V(T) a, FL_V(T) b) { FL_V(T) r; FL_EACH(pow(a[l], b[l])); return r; }
FL_INTEGER(i8, ) FL_INTEGER(u8, ) FL_INTEGER(i16, ) FL_INTEGER(i32, ) FL_INTEGER(i64, )
#undef FL_INTEGER

// Too far, or backwards: none of the bits is left, or copies of the sign. Narrow numbers are shifted
// as wide ones, since there are no such instructions for them.
#define FL_SHIFT(T, W) \
  FL_INLINE FL_V(T) shift_left(FL_V(T) a, FL_V(T) b) { \
    const FL_V(W) n = FL_AS(b, W), r = FL_AS(a, W) << (n & (W)(8 * sizeof(W) - 1)); \
    return FL_AS(((n < 0) | (n >= (W)(8 * sizeof(T)))) ? FL_V(W){} : r, T); } \
  FL_INLINE FL_V(T) shift_right(FL_V(T) a, FL_V(T) b) { \
    const FL_V(W) n = FL_AS(b, W), most = FL_V(W){} + (W)(8 * sizeof(W) - 1); \
    const FL_V(W) far = ((n < 0) | (n > most)) ? most : n; \
    return FL_AS(FL_AS(a, W) >> far, T); }
FL_SHIFT(i8, i32) FL_SHIFT(u8, i32) FL_SHIFT(i16, i32) FL_SHIFT(i32, i32) FL_SHIFT(i64, i64)
#undef FL_SHIFT

#define FL_LIBM1(T, name) FL_INLINE FL_V(T) name(FL_V(T) a) { FL_V(T) r; FL_EACH(name((T)a[l])); return r; }
#define FL_LIBM2(T, name) \
  FL_INLINE FL_V(T) name(FL_V(T) a, FL_V(T) b) { FL_V(T) r; FL_EACH(name((T)a[l], (T)b[l])); return r; }
// One instruction each, which gives b where the two are equal or one is NaN.
#define FL_ORDER(T) \
  FL_INLINE FL_V(T) larger(FL_V(T) a, FL_V(T) b) { return a > b ? a : b; } \
  FL_INLINE FL_V(T) smaller(FL_V(T) a, FL_V(T) b) { return a < b ? a : b; }
#if defined(__AVX512F__) && FL_W == 16 && !defined(__clang__)
FL_INLINE f32x16 larger(f32x16 a, f32x16 b) {
  return (f32x16)__builtin_ia32_maxps512_mask(a, b, f32x16{}, -1, 4);
}
FL_INLINE f32x16 smaller(f32x16 a, f32x16 b) {
  return (f32x16)__builtin_ia32_minps512_mask(a, b, f32x16{}, -1, 4);
}
#else
FL_ORDER(f32)
#endif
FL_ORDER(f64)
#undef FL_ORDER
#define FL_REAL(T, I) \
  FL_INLINE FL_V(T) add(FL_V(T) a, FL_V(T) b) { return a + b; } \
  FL_INLINE FL_V(T) sub(FL_V(T) a, FL_V(T) b) { return a - b; } \
  FL_INLINE FL_V(T) mul(FL_V(T) a, FL_V(T) b) { return a * b; } \
  FL_INLINE FL_V(T) div(FL_V(T) a, FL_V(T) b) { return a / b; } \
  FL_INLINE FL_V(T) neg(FL_V(T) a) { return -a; } \
  FL_INLINE FL_V(T) reciprocal(FL_V(T) a) { return (T)1 / a; } \
  FL_INLINE FL_V(T) maximum(FL_V(T) a, FL_V(T) b) { \
    FL_V(T) r = larger(a, b); return a != a ? a : r; } \
  FL_INLINE FL_V(T) minimum(FL_V(T) a, FL_V(T) b) { \
    FL_V(T) r = smaller(a, b); return a != a ? a : r; } \
  FL_INLINE FL_V(T) fmax(FL_V(T) a, FL_V(T) b) { return ((a >= b) | (b != b)) ? a : b; } \
  FL_INLINE FL_V(T) fmin(FL_V(T) a, FL_V(T) b) { return ((a <= b) | (b != b)) ? a : b; } \
  FL_INLINE FL_V(T) fma(FL_V(T) a, FL_V(T) b, FL_V(T) c) { \
    FL_V(T) r; FL_EACH(FL_FMA(T, a[l], b[l], c[l])); return r; } \
  FL_INLINE FL_V(i32) isnan(FL_V(T) a) { return FL_AS(a != a, i32); } \
  FL_INLINE FL_V(i32) isinf(FL_V(T) a) { return eq(abs(a), FL_NAME(splat)((T)__builtin_inf())); } \
  FL_INLINE FL_V(i32) isfinite(FL_V(T) a) { return lt(abs(a), FL_NAME(splat)((T)__builtin_inf())); } \
  FL_INLINE FL_V(T) rsqrt(FL_V(T) a) { return (T)1 / sqrt(a); } \
  FL_LIBM2(T, copysign) FL_LIBM2(T, log_add_exp) \
  FL_INLINE FL_V(T) nextafter(FL_V(T) a, FL_V(T) b) { \
    FL_V(I) u = (FL_V(I))a + ((a < b) == (a > 0) ? FL_V(I){} + 1 : FL_V(I){} - 1); \
    FL_V(T) r = a == 0 ? copysign((FL_V(T))(FL_V(I){} + 1), b) : (FL_V(T))u; \
    r = a == b ? b : r; \
    return (a != a) | (b != b) ? a + b : r; }
#define FL_EXACT(T) \
  FL_LIBM1(T, abs) FL_LIBM1(T, sqrt) FL_LIBM1(T, floor) FL_LIBM1(T, ceil) FL_LIBM1(T, trunc) \
  FL_LIBM1(T, round) \
  FL_INLINE FL_V(T) sign(FL_V(T) a) { \
    const FL_V(T) one = FL_V(T){} + 1; \
    return (a > 0 ? one : FL_V(T){}) - (a < 0 ? one : FL_V(T){}); }
FL_EXACT(f32) FL_EXACT(f64)
FL_REAL(f32, i32) FL_REAL(f64, i64)
#include "flambeau/sleef.h"

// A remainder is exact by one fma where the quotient is an integer of the type: rounded, it is too
// large by one at most. NaN, infinities and zeros of the divisor go to libm with the large ones.
#define FL_DIVISION(T, most) \
  FL_INLINE FL_V(T) fmod(FL_V(T) a, FL_V(T) b) { \
    FL_V(T) q = trunc(a / b); \
    FL_V(T) r; \
    if (__builtin_expect(one_of(~(abs(q) < (T)most)), 0)) { FL_EACH(fmod((T)a[l], (T)b[l])); return r; } \
    r = fma(-q, b, a); \
    r = (r != 0) & ((r < 0) != (a < 0)) ? r + copysign(b, a) : r; \
    return q == 0 ? a : copysign(r, a); } \
  FL_INLINE FL_V(T) remainder(FL_V(T) a, FL_V(T) b) { \
    FL_V(T) r = fmod(a, b); \
    return (r != 0) & ((b < 0) != (r < 0)) ? r + b : r; } \
  FL_INLINE FL_V(T) floor_div(FL_V(T) a, FL_V(T) b) { \
    FL_V(T) r = fmod(a, b), q = (a - r) / b; \
    q = (r != 0) & ((b < 0) != (r < 0)) ? q - 1 : q; \
    FL_V(T) down = floor(q); \
    down = q - down > (T)0.5 ? down + 1 : down; \
    down = q == 0 ? copysign(FL_V(T){}, a / b) : down; \
    return b == 0 ? a / b : down; }
#ifdef __FMA__
FL_DIVISION(f32, 0x1p23) FL_DIVISION(f64, 0x1p52)
#else
FL_LIBM2(f32, fmod) FL_LIBM2(f32, remainder) FL_LIBM2(f32, floor_div)
FL_LIBM2(f64, fmod) FL_LIBM2(f64, remainder) FL_LIBM2(f64, floor_div)
#endif
#undef FL_DIVISION

#define FL_CAST(T) \
  FL_INLINE FL_V(T) to_##T(FL_V(f32) a) { return FL_AS(a, T); } \
  FL_INLINE FL_V(T) to_##T(FL_V(f64) a) { return FL_AS(a, T); } \
  FL_INLINE FL_V(T) to_##T(FL_V(i8) a) { return FL_AS(a, T); } \
  FL_INLINE FL_V(T) to_##T(FL_V(u8) a) { return FL_AS(a, T); } \
  FL_INLINE FL_V(T) to_##T(FL_V(i16) a) { return FL_AS(a, T); } \
  FL_INLINE FL_V(T) to_##T(FL_V(i32) a) { return FL_AS(a + (i32)fl_zero, T); } \
  FL_INLINE FL_V(T) to_##T(FL_V(i64) a) { return FL_AS(a + fl_zero, T); }
// of float32 what the wider integers differ in is no multiple of a narrow one's range
#define FL_CAST_NARROW(T, W) \
  FL_INLINE FL_V(T) to_##T(FL_V(f32) a) { return FL_AS(FL_AS(a, i32), T); } \
  FL_INLINE FL_V(T) to_##T(FL_V(f64) a) { return FL_AS(FL_AS(a, W), T); } \
  FL_INLINE FL_V(T) to_##T(FL_V(i8) a) { return FL_AS(a, T); } \
  FL_INLINE FL_V(T) to_##T(FL_V(u8) a) { return FL_AS(a, T); } \
  FL_INLINE FL_V(T) to_##T(FL_V(i16) a) { return FL_AS(a, T); } \
  FL_INLINE FL_V(T) to_##T(FL_V(i32) a) { return FL_AS(a, T); } \
  FL_INLINE FL_V(T) to_##T(FL_V(i64) a) { return FL_AS(a, T); }
FL_CAST(f32) FL_CAST(f64) FL_CAST(i32) FL_CAST(i64)
FL_CAST_NARROW(i8, i32) FL_CAST_NARROW(u8, i64) FL_CAST_NARROW(i16, i32)
#undef FL_CAST
#undef FL_CAST_NARROW

#include "flambeau/elementary.h"
#if FL_W >= 4
#include "flambeau/philox_lanes.h"
#endif

// Accumulators that are more than one operation.
#define FL_ARG(T, order) \
  FL_INLINE void arg_float_##order(FL_V(T)* best, FL_V(i32)* at, FL_V(T) v, FL_V(i32) i) { \
    FL_V(i32) tie = lt(i, *at), nan = isnan(v), had = isnan(*best); \
    FL_V(i32) m = (nan & (~had | tie)) | (~nan & ~had & (order(v, *best) | (eq(v, *best) & tie))); \
    *best = select(m, v, *best); *at = select(m, i, *at); }
#define FL_ARG_WHOLE(T, order) \
  FL_INLINE void arg_whole_##order(FL_V(T)* best, FL_V(i32)* at, FL_V(T) v, FL_V(i32) i) { \
    FL_V(i32) m = order(v, *best) | (eq(v, *best) & lt(i, *at)); \
    *best = select(m, v, *best); *at = select(m, i, *at); }
FL_ARG(f32, gt) FL_ARG(f32, lt) FL_ARG(f64, gt) FL_ARG(f64, lt)
FL_ARG_WHOLE(i8, gt) FL_ARG_WHOLE(i8, lt) FL_ARG_WHOLE(u8, gt) FL_ARG_WHOLE(u8, lt)
FL_ARG_WHOLE(i16, gt) FL_ARG_WHOLE(i16, lt) FL_ARG_WHOLE(i32, gt) FL_ARG_WHOLE(i32, lt)
FL_ARG_WHOLE(i64, gt) FL_ARG_WHOLE(i64, lt)
#undef FL_ARG
#undef FL_ARG_WHOLE
// Welford 1962 and Chan, Golub and LeVeque 1979; `one` is 0 in lanes that take nothing in.
#define FL_WELFORD(T) \
  FL_INLINE void welford_add(FL_V(T)* mean, FL_V(T)* m2, FL_V(T)* n, FL_V(T) v, FL_V(T) one) { \
    FL_V(i32) on = ne(one, one - one); \
    *n = *n + one; \
    FL_V(T) d = v - *mean, next = *mean + d / *n; \
    *m2 = select(on, *m2 + d * (v - next), *m2); \
    *mean = select(on, next, *mean); } \
  FL_INLINE void welford_merge(FL_V(T)* mean, FL_V(T)* m2, FL_V(T)* n, \
                               FL_V(T) mean_b, FL_V(T) m2_b, FL_V(T) n_b) { \
    FL_V(i32) on = ne(n_b, n_b - n_b); \
    FL_V(T) all = *n + n_b, d = mean_b - *mean, share = n_b / all; \
    *m2 = select(on, *m2 + m2_b + d * (d * (*n * share)), *m2); \
    *mean = select(on, *mean + d * share, *mean); \
    *n = all; }
FL_WELFORD(f32) FL_WELFORD(f64)
#undef FL_WELFORD

// Lanes to one value, as a balanced tree: each lane with the one half the width away.
#define FL_TREE(T, S, name, op) \
  FL_INLINE T name(FL_V(T) v) { \
    FL_HALVE(S, op, 64) FL_HALVE(S, op, 32) FL_HALVE(S, op, 16) FL_HALVE(S, op, 8) FL_HALVE(S, op, 4) FL_HALVE(S, op, 2) return v[0]; }
#ifdef __clang__
#define FL_HALVE(S, op, w) \
  if (FL_W >= w) { auto u = v; for (int l = 0; l < w / 2; ++l) u[l] = v[l + w / 2]; v = op(v, u); }
#else
#define FL_HALVE(S, op, w) \
  if (FL_W >= w) v = op(v, __builtin_shuffle(v, (FL_V(S) FL_IOTA) ^ (S)(w / 2)));
#endif
#define FL_FOLD(T, S) FL_TREE(T, S, across_sum, add) FL_TREE(T, S, across_prod, mul) \
  FL_TREE(T, S, across_max, maximum) FL_TREE(T, S, across_min, minimum)
FL_FOLD(f32, i32) FL_FOLD(f64, i64) FL_FOLD(i8, i8) FL_FOLD(u8, i8) FL_FOLD(i16, i16)
FL_FOLD(i32, i32) FL_FOLD(i64, i64)
FL_TREE(i32, i32, across_any, bitwise_or)
FL_TREE(i32, i32, across_all, bitwise_and)
#undef FL_FOLD
#undef FL_HALVE
#undef FL_TREE

}  // namespace fl

#undef FL_REAL
#undef FL_EXACT
#undef FL_LIBM1
#undef FL_LIBM2
#undef FL_AS
#undef FL_EACH
#undef FL_IOTA
#undef FL_FROM
#undef FL_SIXTEEN
#undef FL_NAME
#undef FL_V
#undef FL_JOIN2
#undef FL_JOIN3
#undef FL_W
