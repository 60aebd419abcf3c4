// Scalars of the generated kernels: types, pointwise primitives on one element, memory.
//
// In: nothing (no standard header either: they cost more to parse than a kernel). Out: namespace
// fl, one overload per type and primitive. lanes.h adds the same overloads for vectors. Invariant:
// a bool value is a mask, 0 or -1, in an int; half-precision values are floats that are rounded
// when they are produced; memory is touched through memcpy, so nothing is assumed of alignment.
#pragma once

#define FL_INLINE static inline __attribute__((always_inline, unused))
// a function that stands often in a loop is written out once, and called
#define FL_CALLED(name) template <class... V> static __attribute__((noinline)) \
  auto called_##name(V... a) { return name(a...); }

namespace fl {

typedef float f32;
typedef double f64;
typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef int i32;
typedef long i64;
struct b8 { u8 bits; };
struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };

// The number of lanes in use: `width<W>` when all are, a plain long in the last, partial, step.
template <long N> struct width {
  constexpr operator long() const { return N; }
};

// Without branches: GCC copies a loop for each condition that it does not change, one by one. A
// size by data may be 0: then nothing is left to compute, and what is said of it is not read.
FL_INLINE long floordiv(long a, long b) {
  b |= b == 0;
  long q = a / b;
  return q - ((a % b != 0) & ((a % b < 0) != (b < 0)));
}
FL_INLINE long floormod(long a, long b) {
  b |= b == 0;
  long r = a % b;
  return r + (b & -(long)((r != 0) & ((r < 0) != (b < 0))));
}

FL_INLINE i32 bits_of(f32 x) { i32 r; __builtin_memcpy(&r, &x, 4); return r; }
FL_INLINE f32 float_of(i32 x) { f32 r; __builtin_memcpy(&r, &x, 4); return r; }

// Half precision: exact widening, narrowing to nearest, ties to even.
FL_INLINE f32 widen(bf16 x) { return float_of((i32)((unsigned)x.bits << 16)); }
FL_INLINE bf16 narrow_bf16(f32 x) {
  unsigned u = (unsigned)bits_of(x);
  if (x != x) return bf16{(unsigned short)((u >> 16) | 64)};
  return bf16{(unsigned short)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}
FL_INLINE f32 widen(f16 x) {
  unsigned h = x.bits, sign = (h & 0x8000u) << 16, rest = (h & 0x7fffu) << 13;
  f32 scaled = float_of((i32)rest) * 0x1p112f;
  if (rest >= 0x7c00u << 13) scaled = float_of((i32)(rest | 0x7f800000u));
  return float_of((i32)((unsigned)bits_of(scaled) | sign));
}
FL_INLINE f16 narrow_f16(f32 x) {
  unsigned u = (unsigned)bits_of(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu, r;
  if (a > 0x7f800000u) r = 0x7e00u;
  else if (a >= 0x477ff000u) r = 0x7c00u;
  else if (a < 0x38800000u) r = (unsigned)bits_of(float_of((i32)a) + 0.5f) - 0x3f000000u;
  else r = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13;
  return f16{(unsigned short)(r | sign)};
}
FL_INLINE f32 round_bf16(f32 x) { return widen(narrow_bf16(x)); }
FL_INLINE f32 round_f16(f32 x) { return widen(narrow_f16(x)); }

#include "flambeau/bypass.h"

#define FL_MEMORY(T) \
  FL_INLINE T load1(const T* p) { T r; __builtin_memcpy(&r, p, sizeof(T)); return r; } \
  FL_INLINE void store1(T* p, T v) { __builtin_memcpy(p, &v, sizeof(T)); }
FL_MEMORY(f32) FL_MEMORY(f64) FL_MEMORY(i8) FL_MEMORY(u8) FL_MEMORY(i16) FL_MEMORY(i32)
FL_MEMORY(i64)
#undef FL_MEMORY
FL_INLINE i32 load1(const b8* p) { return -(i32)(p->bits != 0); }
FL_INLINE void store1(b8* p, i32 v) { p->bits = (u8)(v & 1); }
FL_INLINE f32 load1(const bf16* p) { bf16 r; __builtin_memcpy(&r, p, 2); return widen(r); }
FL_INLINE void store1(bf16* p, f32 v) { bf16 r = narrow_bf16(v); __builtin_memcpy(p, &r, 2); }
FL_INLINE f32 load1(const f16* p) { f16 r; __builtin_memcpy(&r, p, 2); return widen(r); }
FL_INLINE void store1(f16* p, f32 v) { f16 r = narrow_f16(v); __builtin_memcpy(p, &r, 2); }

// What is meant the same for one element and for a vector of them. A division of 64 bits takes
// several times as long as one of 32; a jump by the signs of quotients is one nobody foresees.
#define FL_COMPARE(T) \
  FL_INLINE i32 eq(T a, T b) { return -(i32)(a == b); } \
  FL_INLINE i32 ne(T a, T b) { return -(i32)(a != b); } \
  FL_INLINE i32 lt(T a, T b) { return -(i32)(a < b); } \
  FL_INLINE i32 le(T a, T b) { return -(i32)(a <= b); } \
  FL_INLINE i32 gt(T a, T b) { return -(i32)(a > b); } \
  FL_INLINE i32 ge(T a, T b) { return -(i32)(a >= b); } \
  FL_INLINE T select(i32 m, T a, T b) { return m ? a : b; }
#define FL_WRAP(T, U) \
  FL_INLINE T add(T a, T b) { return (T)((U)a + (U)b); } \
  FL_INLINE T sub(T a, T b) { return (T)((U)a - (U)b); } \
  FL_INLINE T mul(T a, T b) { return (T)((U)a * (U)b); } \
  FL_INLINE T neg(T a) { return (T)((U)0 - (U)a); } \
  FL_INLINE T maximum(T a, T b) { return a > b ? a : b; } \
  FL_INLINE T minimum(T a, T b) { return a < b ? a : b; } \
  FL_INLINE T bitwise_and(T a, T b) { return (T)(a & b); } \
  FL_INLINE T bitwise_or(T a, T b) { return (T)(a | b); } \
  FL_INLINE T bitwise_xor(T a, T b) { return (T)(a ^ b); } \
  FL_INLINE T bitwise_not(T a) { return (T)~a; } \
  FL_INLINE T shift_left(T a, T b) { \
    return (b < 0 || b >= (T)(8 * sizeof(T))) ? (T)0 : (T)((U)a << b); } \
  FL_INLINE T shift_right(T a, T b) { \
    if (b >= 0 && b < (T)(8 * sizeof(T))) return (T)(a >> b); \
    return a < 0 ? (T)-1 : (T)0; } \
  FL_INLINE T sign(T a) { return (T)((a > 0) - (a < 0)); } \
  FL_INLINE T abs(T a) { return a < 0 ? (T)((U)0 - (U)a) : a; } \
  FL_INLINE T quotient(T a, T b) { \
    if (sizeof(T) == 8 && (((unsigned long)a | (unsigned long)b) >> 32) == 0) \
      return (T)((unsigned)a / (unsigned)b); \
    return b == (T)-1 && (T)-1 < 0 ? (T)((U)0 - (U)a) : (T)(a / b); } \
  FL_INLINE T trunc_div(T a, T b, int* error) { \
    if (b == 0) { *error = 1; return 0; } \
    return quotient(a, b); } \
  FL_INLINE T fmod(T a, T b, int* error) { \
    if (b == 0) { *error = 1; return 0; } \
    return (T)((U)a - (U)quotient(a, b) * (U)b); } \
  FL_INLINE T remainder(T a, T b, int* error) { \
    const T r = fmod(a, b, error); \
    return (T)(r + (b & -(T)((r != 0) & ((r < 0) != (b < 0))))); } \
  FL_INLINE T floor_div(T a, T b, int* error) { \
    if (b == 0) { *error = 1; return 0; } \
    const T q = quotient(a, b); \
    return (T)(q - (T)(((T)((U)a - (U)q * (U)b) != 0) & ((a < 0) != (b < 0)))); } \
  FL_INLINE T pow(T a, T b) { \
    if (b < 0) return a == 1 ? (T)1 : (a == (T)-1 ? (b % 2 ? (T)-1 : (T)1) : (T)0); \
    U r = 1, x = (U)a; \
    for (; b; b = (T)(b / 2), x = (U)(x * x)) if (b % 2) r = (U)(r * x); \
    return (T)r; }
FL_COMPARE(f32) FL_COMPARE(f64) FL_COMPARE(i8) FL_COMPARE(u8) FL_COMPARE(i16) FL_COMPARE(i32)
FL_COMPARE(i64)
FL_WRAP(i8, unsigned) FL_WRAP(u8, unsigned) FL_WRAP(i16, unsigned) FL_WRAP(i32, unsigned)
FL_WRAP(i64, unsigned long)
#undef FL_COMPARE
#undef FL_WRAP

// One rounding where the processor has the instruction: a call of the library takes far longer.
#ifdef __FMA__
#define FL_FMA(T, a, b, c) (sizeof(T) == 4 ? (T)__builtin_fmaf(a, b, c) : (T)__builtin_fma(a, b, c))
#else
#define FL_FMA(T, a, b, c) ((a) * (b) + (c))
#endif

// T(x, f): the function of libm for the type is __builtin_x followed by f.
#define FL_UNARY(T, f, name) FL_INLINE T name(T a) { return __builtin_##name##f(a); }
#define FL_REAL(T, f) \
  FL_INLINE T add(T a, T b) { return a + b; } \
  FL_INLINE T sub(T a, T b) { return a - b; } \
  FL_INLINE T mul(T a, T b) { return a * b; } \
  FL_INLINE T div(T a, T b) { return a / b; } \
  FL_INLINE T neg(T a) { return -a; } \
  FL_INLINE T abs(T a) { return __builtin_fabs##f(a); } \
  FL_INLINE T sign(T a) { return (T)((a > 0) - (a < 0)); } \
  FL_INLINE T round(T a) { return __builtin_nearbyint##f(a); } \
  FL_INLINE T reciprocal(T a) { return (T)1 / a; } \
  FL_INLINE T rsqrt(T a) { return (T)1 / __builtin_sqrt##f(a); } \
  FL_INLINE T sigmoid(T a) { return (T)1 / ((T)1 + __builtin_exp##f(-a)); } \
  FL_INLINE T maximum(T a, T b) { return (a > b || a != a) ? a : b; } \
  FL_INLINE T minimum(T a, T b) { return (a < b || a != a) ? a : b; } \
  FL_INLINE T fmax(T a, T b) { return (a >= b || b != b) ? a : b; } \
  FL_INLINE T fmin(T a, T b) { return (a <= b || b != b) ? a : b; } \
  FL_INLINE T fma(T a, T b, T c) { return FL_FMA(T, a, b, c); } \
  FL_INLINE T pow(T a, T b) { return __builtin_pow##f(a, b); } \
  FL_INLINE T atan2(T a, T b) { return __builtin_atan2##f(a, b); } \
  FL_INLINE T copysign(T a, T b) { return __builtin_copysign##f(a, b); } \
  FL_INLINE T nextafter(T a, T b) { return __builtin_nextafter##f(a, b); } \
  FL_INLINE T fmod(T a, T b) { return __builtin_fmod##f(a, b); } \
  FL_INLINE T remainder(T a, T b) { \
    T r = __builtin_fmod##f(a, b); \
    return (r != 0 && (b < 0) != (r < 0)) ? r + b : r; } \
  FL_INLINE T floor_div(T a, T b) { \
    if (b == 0) return a / b; \
    T r = __builtin_fmod##f(a, b), q = (a - r) / b; \
    if (r != 0 && (b < 0) != (r < 0)) q -= 1; \
    if (q == 0) return __builtin_copysign##f((T)0, a / b); \
    T down = __builtin_floor##f(q); \
    return q - down > (T)0.5 ? down + 1 : down; } \
  FL_INLINE i32 isnan(T a) { return -(i32)(a != a); } \
  FL_INLINE i32 isinf(T a) { return -(i32)(__builtin_fabs##f(a) == (T)__builtin_inf()); } \
  FL_INLINE i32 isfinite(T a) { return -(i32)(__builtin_fabs##f(a) < (T)__builtin_inf()); } \
  FL_UNARY(T, f, ceil) FL_UNARY(T, f, floor) FL_UNARY(T, f, trunc) FL_UNARY(T, f, sqrt) \
  FL_UNARY(T, f, exp) FL_UNARY(T, f, exp2) FL_UNARY(T, f, expm1) FL_UNARY(T, f, log) \
  FL_UNARY(T, f, log2) FL_UNARY(T, f, log10) FL_UNARY(T, f, log1p) FL_UNARY(T, f, sin) \
  FL_UNARY(T, f, cos) FL_UNARY(T, f, tan) FL_UNARY(T, f, asin) FL_UNARY(T, f, acos) \
  FL_UNARY(T, f, atan) FL_UNARY(T, f, sinh) FL_UNARY(T, f, cosh) FL_UNARY(T, f, tanh) \
  FL_UNARY(T, f, asinh) FL_UNARY(T, f, acosh) FL_UNARY(T, f, atanh) FL_UNARY(T, f, erf) \
  FL_UNARY(T, f, erfc) FL_UNARY(T, f, lgamma)
FL_REAL(f32, f) FL_REAL(f64, )
#undef FL_REAL
#undef FL_UNARY

// log(exp(a) + exp(b)) without overflow; NaN stays.
#define FL_LOG_ADD(T, f) \
  FL_INLINE T log_add_exp(T a, T b) { \
    const T low = minimum(a, b), high = maximum(a, b); \
    if (low == high && !isfinite(low)) return low; \
    return high + __builtin_log1p##f(__builtin_exp##f(low - high)); }
FL_LOG_ADD(f32, f) FL_LOG_ADD(f64, )
#undef FL_LOG_ADD

// Psi: reflection for negative arguments, recurrence up to 10, then the asymptotic series
// (Abramowitz and Stegun 6.3.5, 6.3.7, 6.3.18). At 0 it is -inf with the sign of zero's side. Terms
// are added in eager's order, which shows where they cancel: next to a zero of the function.
FL_INLINE f64 digamma(f64 x) {
  const f64 pi = 3.14159265358979323846;
  if (x == 0) return __builtin_copysign(__builtin_inf(), -x);
  f64 reflected = 0, total = 0;
  if (x < 0) {
    if (x == __builtin_trunc(x)) return __builtin_nan("");
    reflected = pi / __builtin_tan(pi * (x - __builtin_trunc(x)));
    x = 1 - x;
  }
  while (x < 10) { total -= 1 / x; x += 1; }
  if (x == 10) return total + 2.25175258906672110764 - reflected;
  f64 z = 1 / (x * x), tail = 0;
  if (x < 1e17)
    tail = z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240
         - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12))))));
  return total + __builtin_log(x) - 0.5 / x - tail - reflected;
}
FL_INLINE f32 digamma(f32 x) { return (f32)digamma((f64)x); }

// A starting value (Winitzki 2008), then Halley steps on erf(y) = x, or on erfc near the ends.
FL_INLINE f64 erfinv(f64 x) {
  f64 a = __builtin_fabs(x);
  if (!(a <= 1)) return __builtin_nan("");
  if (a == 1) return __builtin_copysign(__builtin_inf(), x);
  if (a == 0) return x;
  f64 l = __builtin_log1p(-a * a), t = 4.330746750799873 + l / 2;
  f64 y = __builtin_sqrt(__builtin_sqrt(t * t - l / 0.147) - t);
  for (int step = 0; step < 3; ++step) {
    f64 miss = a < 0.5 ? __builtin_erf(y) - a : (1 - a) - __builtin_erfc(y);
    f64 slope = miss / (1.1283791670955126 * __builtin_exp(-y * y));
    y -= slope / (1 + y * slope);
  }
  return __builtin_copysign(y, x);
}
FL_INLINE f32 erfinv(f32 x) { return (f32)erfinv((f64)x); }

#include "flambeau/philox.h"

extern "C" { __attribute__((weak)) i64 fl_zero = 0; }
// Casts: to_T(from). A mask counts as 0 or 1. Zero is added where the compiler does not know it: GCC
// makes a float's way through an integer and back into a rounding, which keeps the sign of -0.3.
// A float that no integer of the type is near becomes the least one, constants that GCC folds too.
template <class T, class S> FL_INLINE T of_float(S a) {
  if constexpr ((T)0.5 != 0) return (T)a;
  else {
    constexpr T least = (T)1 << (8 * sizeof(T) - 1);
    return a >= (S)least && a < -(S)least ? (T)a : least;
  }
}
#define FL_CAST(T) \
  FL_INLINE T to_##T(f32 a) { return of_float<T>(a); } \
  FL_INLINE T to_##T(f64 a) { return of_float<T>(a); } \
  FL_INLINE T to_##T(i8 a) { return (T)a; } FL_INLINE T to_##T(u8 a) { return (T)a; } \
  FL_INLINE T to_##T(i16 a) { return (T)a; } \
  FL_INLINE T to_##T(i32 a) { return (T)(a + (i32)fl_zero); } \
  FL_INLINE T to_##T(i64 a) { return (T)(a + fl_zero); }
// A float outside the range of a narrow integer goes through a wider one, W, and wraps: bytes without a
// sign through the widest, as in eager.
#define FL_CAST_NARROW(T, W) \
  FL_INLINE T to_##T(f32 a) { return (T)of_float<W>(a); } \
  FL_INLINE T to_##T(f64 a) { return (T)of_float<W>(a); } \
  FL_INLINE T to_##T(i8 a) { return (T)a; } FL_INLINE T to_##T(u8 a) { return (T)a; } \
  FL_INLINE T to_##T(i16 a) { return (T)a; } FL_INLINE T to_##T(i32 a) { return (T)a; } \
  FL_INLINE T to_##T(i64 a) { return (T)a; }
FL_CAST(f32) FL_CAST(f64) FL_CAST(i32) FL_CAST(i64)
FL_CAST_NARROW(i8, i32) FL_CAST_NARROW(u8, i64) FL_CAST_NARROW(i16, i32)
#undef FL_CAST
#undef FL_CAST_NARROW

// Accumulators that are more than one operation.
#define FL_ARG(T, order) \
  FL_INLINE void arg_float_##order(T* best, i32* at, T v, i32 i) { \
    i32 tie = lt(i, *at), nan = isnan(v), had = isnan(*best); \
    i32 m = (nan & (~had | tie)) | (~nan & ~had & (order(v, *best) | (eq(v, *best) & tie))); \
    *best = select(m, v, *best); *at = select(m, i, *at); }
#define FL_ARG_WHOLE(T, order) \
  FL_INLINE void arg_whole_##order(T* best, i32* at, T v, i32 i) { \
    i32 m = order(v, *best) | (eq(v, *best) & lt(i, *at)); \
    *best = select(m, v, *best); *at = select(m, i, *at); }
FL_ARG(f32, gt) FL_ARG(f32, lt) FL_ARG(f64, gt) FL_ARG(f64, lt)
FL_ARG_WHOLE(i8, gt) FL_ARG_WHOLE(i8, lt) FL_ARG_WHOLE(u8, gt) FL_ARG_WHOLE(u8, lt)
FL_ARG_WHOLE(i16, gt) FL_ARG_WHOLE(i16, lt) FL_ARG_WHOLE(i32, gt) FL_ARG_WHOLE(i32, lt)
FL_ARG_WHOLE(i64, gt) FL_ARG_WHOLE(i64, lt)
#undef FL_ARG
#undef FL_ARG_WHOLE
// Welford 1962 and Chan, Golub and LeVeque 1979; `one` is 0 in lanes that take nothing in.
#define FL_WELFORD(T) \
  FL_INLINE void welford_add(T* mean, T* m2, T* n, T v, T one) { \
    i32 on = ne(one, one - one); \
    *n = *n + one; \
    T d = v - *mean, next = *mean + d / *n; \
    *m2 = select(on, *m2 + d * (v - next), *m2); \
    *mean = select(on, next, *mean); } \
  FL_INLINE void welford_merge(T* mean, T* m2, T* n, \
                               T mean_b, T m2_b, T n_b) { \
    i32 on = ne(n_b, n_b - n_b); \
    T all = *n + n_b, d = mean_b - *mean, share = n_b / all; \
    *m2 = select(on, *m2 + m2_b + d * (d * (*n * share)), *m2); \
    *mean = select(on, *mean + d * share, *mean); \
    *n = all; }
FL_WELFORD(f32) FL_WELFORD(f64)
#undef FL_WELFORD

// How many threads to ask for when there is work for `most`.
extern "C" int omp_get_max_threads(void);
FL_INLINE int team(int most) { int n = omp_get_max_threads(); return n < most ? n : most; }
// a thread's part of `size` points, a multiple of `least`
FL_INLINE long share(long size, long least) {
  const long each = (size + omp_get_max_threads() - 1) / omp_get_max_threads();
  return (each + least - 1) / least * least;
}
// threads for so much work, at most `limit` of them (0: as many as there are)
FL_INLINE int crew(long work, int limit) {
  const long worth = work < 65536 ? 1 : work / 32768;
  const int most = limit > 0 ? limit : omp_get_max_threads();
  return team(worth < most ? (int)worth : most);
}

}  // namespace fl
