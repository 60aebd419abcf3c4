// Single-precision elementary functions on vectors, to about 2 units in the last place.
//
// In: lanes.h includes this inside namespace fl, once per FL_W. Out: exp, log, tanh, erf, ... on
// f32xW. Invariant: signed zeros, infinities and NaN come out as from libm, denormals are kept.
// Polynomials: packages/inductor/tools/fit_polynomials.py.

#define FL_F FL_V(f32)
#define FL_I FL_V(i32)

// 2^n for n in [-126, 127] in every lane.
FL_INLINE FL_F power_of_two(FL_I n) { return (FL_F)((n + 127) << 23); }

// (e^r - 1) for |r| <= ln(2) / 2, without the sign of zero.
FL_INLINE FL_F expm1_reduced(FL_F r) {
  FL_F p = fma(r, FL_F{} + 0x1.9dfba6p-13f, FL_F{} + 0x1.6d4cbap-10f);
  p = fma(p, r, FL_F{} + 0x1.11130ep-7f);
  p = fma(p, r, FL_F{} + 0x1.5554e8p-5f);
  p = fma(p, r, FL_F{} + 0x1.555554p-3f);
  p = fma(p, r, FL_F{} + 0.5f);
  return fma(r * r, p, r);
}
FL_INLINE FL_F nearest(FL_F x) { return (x + 0x1.8p23f) - 0x1.8p23f; }
// y 2^n for a whole n, right for results that are denormal or overflow, for which AVX-512 has an
// instruction; the same where they are not.
#if defined(__AVX512F__) && FL_W == 16 && !defined(__clang__)
#define FL_TABLES
FL_INLINE FL_F scale_by(FL_F y, FL_F n) {
  return (FL_F)__builtin_ia32_scalefps512_mask(y, n, FL_F{}, -1, 4);
}
#else
FL_INLINE FL_F scale_by(FL_F y, FL_F whole) {
  FL_I n = FL_AS(whole, i32), half = n >> 1;
  return y * power_of_two(half) * power_of_two(n - half);
}
FL_INLINE FL_F scale_normal(FL_F y, FL_F n) { return y * power_of_two(FL_AS(n, i32)); }
#endif
// x in [low, high], NaN where it is NaN.
FL_INLINE FL_F clamped(FL_F x, f32 low, f32 high) {
  return larger(FL_F{} + low, smaller(FL_F{} + high, x));
}
FL_INLINE FL_F with_sign(FL_F magnitude, FL_F x) {
  return (FL_F)((FL_I)magnitude | ((FL_I)x & (i32)0x80000000));
}
#ifdef FL_TABLES
#include "flambeau/tables.h"
#else
FL_INLINE FL_F exp(FL_F x) {
  FL_F c = clamped(x, -104.0f, 89.0f);
  FL_F n = nearest(c * 0x1.715476p+0f);
  FL_F r = fma(n, FL_F{} - 0x1.62e4p-1f, c);
  r = fma(n, FL_F{} - 0x1.7f7d1cp-20f, r);
  return scale_by(1.0f + expm1_reduced(r), n);
}
FL_INLINE FL_F exp2(FL_F x) {
  FL_F c = clamped(x, -151.0f, 129.0f);
  FL_F n = nearest(c), f = c - n;
  FL_F r = fma(f, FL_F{} + 0x1.62e43p-1f, f * -0x1.05c61p-29f);
  return scale_by(1.0f + expm1_reduced(r), n);
}
#endif
FL_INLINE FL_F expm1(FL_F x) {
  FL_F c = clamped(x, -30.0f, 88.0f);
  FL_F n = nearest(c * 0x1.715476p+0f);
  FL_F r = fma(n, FL_F{} - 0x1.62e4p-1f, c);
  r = fma(n, FL_F{} - 0x1.7f7d1cp-20f, r);
  FL_F s = power_of_two(FL_AS(n, i32));
  FL_F y = fma(s, expm1_reduced(r), s - 1.0f);
  y = x > 88.0f ? exp(x) : y;
  return x == 0.0f ? x : y;
}

// x = m 2^k with m in [sqrt(1/2), sqrt(2)): gives f = m - 1; x positive and finite.
FL_INLINE FL_F split(FL_F x, FL_F* k) {
  FL_I tiny = x < 0x1p-126f;
  x = tiny ? x * 0x1p23f : x;
  FL_I u = (FL_I)x - 0x3f3504f3;
  *k = FL_AS((u >> 23) - (tiny & 23), f32);
  return (FL_F)((u & 0x7fffff) + 0x3f3504f3) - 1.0f;
}
// log(1 + f) - f, with `more` added where it is cheapest to keep its digits.
FL_INLINE FL_F log_tail(FL_F f, FL_F more) {
  FL_F s = f / (2.0f + f), z = s * s, half = 0.5f * f * f;
  FL_F p = fma(z, FL_F{} + 0x1.f1413cp-3f, FL_F{} + 0x1.23d3cep-2f);
  p = fma(p, z, FL_F{} + 0x1.999c26p-2f);
  p = fma(p, z, FL_F{} + 0x1.555554p-1f);
  return fma(s, fma(p, z, half), more) - half;
}
FL_INLINE FL_F log_ends(FL_F x, FL_F y) {
  const f32 inf = __builtin_inff();
  y = x == inf ? x : y;
  y = x == 0.0f ? FL_F{} - inf : y;
  return (x < 0.0f) | (x != x) ? FL_F{} + __builtin_nanf("") : y;
}
FL_INLINE FL_F log(FL_F x) {
  FL_F k, f = split(x, &k);
  return log_ends(x, k * 0x1.62e4p-1f + (f + log_tail(f, k * 0x1.7f7d1cp-20f)));
}
FL_INLINE FL_F log1p(FL_F x) {
  FL_F u = 1.0f + x, k, f = split(u, &k);
  FL_F lost = (u < 2.0f ? x - (u - 1.0f) : 1.0f - (u - x)) / u;
  FL_F y = k * 0x1.62e4p-1f + (f + log_tail(f, fma(k, FL_F{} + 0x1.7f7d1cp-20f, lost)));
  return x == 0.0f ? x : log_ends(u, y);
}
FL_INLINE FL_F log2(FL_F x) {
  FL_F k, f = split(x, &k), y = f + log_tail(f, FL_F{});
  return log_ends(x, k + fma(y, FL_F{} + 0x1.715476p+0f, y * 0x1.4ae0cp-26f));
}
FL_INLINE FL_F log10(FL_F x) {
  FL_F k, f = split(x, &k), y = f + log_tail(f, FL_F{});
  return log_ends(x, k * 0x1.344p-2f + fma(y, FL_F{} + 0x1.bcb7b2p-2f, k * 0x1.3509f8p-18f));
}

FL_INLINE FL_F sigmoid(FL_F x) { return 1.0f / (1.0f + exp(-x)); }
FL_INLINE FL_F tanh(FL_F x) {
  FL_F a = abs(x), z = x * x;
  FL_F p = fma(z, FL_F{} + 0x1.1a2e3ep-9f, FL_F{} - 0x1.0c602p-7f);
  p = fma(p, z, FL_F{} + 0x1.63a57ep-6f);
  p = fma(p, z, FL_F{} - 0x1.b9f18ap-5f);
  p = fma(p, z, FL_F{} + 0x1.11107ap-3f);
  p = fma(p, z, FL_F{} - 0x1.555554p-2f);
  FL_F small = fma(a * z, p, a);
  return with_sign(a > 0.625f ? 1.0f - 2.0f / (exp(2.0f * a) + 1.0f) : small, x);
}
#ifndef FL_TABLES
FL_INLINE FL_F erf(FL_F x) {
  FL_F a = abs(x), z = x * x;
  FL_F p = fma(z, FL_F{} + 0x1.4f8e44p-14f, FL_F{} - 0x1.a6126cp-11f);
  p = fma(p, z, FL_F{} + 0x1.544aa8p-8f);
  p = fma(p, z, FL_F{} - 0x1.b80120p-6f);
  p = fma(p, z, FL_F{} + 0x1.ce2d64p-4f);
  p = fma(p, z, FL_F{} - 0x1.812740p-2f);
  p = fma(p, z, FL_F{} + 0x1.06eba8p-3f);
  FL_F small = fma(a, p, a);
  FL_F t = clamped(a, 0.0f, 4.0f);
  FL_F q = fma(t, FL_F{} + 0x1.8ee30cp-17f, FL_F{} - 0x1.596668p-12f);
  q = fma(q, t, FL_F{} + 0x1.e0f410p-9f);
  q = fma(q, t, FL_F{} - 0x1.86412ep-6f);
  q = fma(q, t, FL_F{} + 0x1.b36b60p-4f);
  q = fma(q, t, FL_F{} + 0x1.452d3ep-1f);
  q = fma(q, t, FL_F{} + 0x1.077e1ep-3f);
  FL_F e = -fma(t, q, t);
  FL_F n = nearest(e * 0x1.715476p+0f);
  FL_F r = fma(n, FL_F{} - 0x1.62e4p-1f, e);
  r = fma(n, FL_F{} - 0x1.7f7d1cp-20f, r);
  FL_F tail = scale_normal(1.0f + expm1_reduced(r), n);
  return with_sign(a > 0.9375f ? 1.0f - tail : small, x);
}
#endif

#ifdef __FMA__
// erfc(a) = exp(-a^2) p(t) / (1 + 2 a) from 0.5 on, the square in two parts.
FL_INLINE FL_F erfc(FL_F x) {
  FL_F a = smaller(FL_F{} + 10.5f, abs(x)), t = (a - 4.0f) / (a + 4.0f);
  FL_F p = fma(t, FL_F{} + 0x1.743a4p-8f, FL_F{} - 0x1.080f68p-6f);
  p = fma(p, t, FL_F{} + 0x1.2db35ep-5f);
  p = fma(p, t, FL_F{} - 0x1.108b1ep-4f);
  p = fma(p, t, FL_F{} + 0x1.801cf2p-4f);
  p = fma(p, t, FL_F{} - 0x1.9da8dap-4f);
  p = fma(p, t, FL_F{} + 0x1.16eba4p-4f);
  p = fma(p, t, FL_F{} + 0x1.f7dadcp-7f);
  p = fma(p, t, FL_F{} - 0x1.1df1aep-3f);
  p = fma(p, t, FL_F{} + 0x1.3ba592p+0f);
  FL_F square = a * a, lost = fma(a, a, -square), y = exp(-square) * (p / (1.0f + 2.0f * a));
  y = fma(-lost, y, y);
  y = x < 0.0f ? 2.0f - y : y;
  return a < 0.5f ? 1.0f - erf(x) : y;
}
#else
FL_LIBM1(f32, erfc)
#endif

// Sine and cosine: reduction by pi/2 in three parts needs fma; large arguments go to libm.
template <int quarter> FL_INLINE FL_F sine(FL_F x) {
  FL_F n = nearest(x * 0x1.45f306p-1f);
  FL_F r = fma(n, FL_F{} - 0x1.921fb6p+0f, x);
  r = fma(n, FL_F{} + 0x1.777a5cp-25f, r);
  r = fma(n, FL_F{} + 0x1.ee59dap-50f, r);
  FL_I q = FL_AS(n, i32) + quarter;
  FL_F z = r * r;
  FL_F s = fma(z, FL_F{} + 0x1.7c1e34p-19f, FL_F{} - 0x1.a0593cp-13f);
  s = fma(s, z, FL_F{} + 0x1.111174p-7f);
  s = fma(s, z, FL_F{} - 0x1.555556p-3f);
  s = fma(s * z, r, r);
  FL_F c = fma(z, FL_F{} - 0x1.357f64p-22f, FL_F{} + 0x1.a06f84p-16f);
  c = fma(c, z, FL_F{} - 0x1.6c175cp-10f);
  c = fma(c, z, FL_F{} + 0x1.555556p-5f);
  c = fma(c * z, z, fma(z, FL_F{} - 0.5f, FL_F{} + 1.0f));
  FL_F y = (q & 1) != 0 ? c : s;
  return (FL_F)((FL_I)y ^ ((q & 2) << 30));
}
FL_INLINE bool all_below(FL_F x, f32 limit) {
  return !one_of(~(abs(x) < limit));
}
#ifdef __FMA__
#define FL_SINE(name, quarter, zero) \
  FL_INLINE FL_F name(FL_F a) { \
    if (__builtin_expect(all_below(a, 30000.0f), 1)) { \
      FL_F y = sine<quarter>(a); \
      return a == 0.0f ? zero : y; } \
    FL_F r; FL_EACH(name((f32)a[l])); return r; }
FL_SINE(sin, 0, a)
FL_SINE(cos, 1, FL_F{} + 1.0f)
#undef FL_SINE
#else
FL_LIBM1(f32, sin)
FL_LIBM1(f32, cos)
#endif

#undef FL_F
#undef FL_I
#undef FL_TABLES
