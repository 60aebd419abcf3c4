// Error functions, their inverse and psi in double precision, on vectors of any width.
//
// In: vec.h; a vector's type, and the elementary functions of SLEEF for it. Out: templates that
// sleef.h names for float64, and for float32 on halves of its vectors. Invariant: to 4 units in the
// last place; infinities, NaN and signed zeros come out as from libm.
// Polynomials: packages/inductor/tools/fit_polynomials.py.
#pragma once

namespace fl {

static constexpr f64 erf_row[] = {
    0x1.ee51eb23cb7eap-1, -0x1.1fd16292151fdp-3, 0x1.454368017b042p-6, -0x1.2b902b7b2f28ep-9,
    0x1.c82aa249df460p-13, -0x1.263991b802ee6p-16, 0x1.486638bc9befep-20, -0x1.429e93e668f24p-24,
    0x1.1ad5edf90dd80p-28, -0x1.bf8d2c72b9b8cp-33, 0x1.428e938efe043p-37, -0x1.acbabce2865e7p-42,
    0x1.05ffd737fb32ep-46};
static constexpr f64 erfc_row[] = {
    0x1.3c24d628d2216p+0, -0x1.b611a46e0f955p-4, 0x1.db125e5875e83p-8, 0x1.0dd518c020233p-5,
    -0x1.2c8a547065171p-5, 0x1.a7a888967662cp-6, -0x1.c7f6d4709af7ap-7, 0x1.83f4e4b2d8ee1p-8,
    -0x1.ff9f0bfbe4b84p-10, 0x1.dce26d1a5803bp-12, -0x1.9bafbbc1cad03p-15, -0x1.85b0151a2c9fep-17,
    0x1.9a2ebf23885bbp-18, -0x1.65d3f2ca76d88p-21, -0x1.32c6de0805838p-22, 0x1.a8be385aa0be7p-24,
    0x1.c355ec111e476p-28, -0x1.269375b3cd637p-27, 0x1.99d10847fdd10p-32, 0x1.63abcdae47a70p-31,
    -0x1.3819f324d4701p-34, -0x1.3b639e00f025fp-35, 0x1.729846704509fp-38};
static constexpr f64 erfinv_row[] = {
    0x1.805c5cfcedef5p+0, 0x1.3bb315fc7682dp-1, -0x1.abc1e0b47dd47p-6, -0x1.40b177277d2cep-6,
    0x1.175c3f228167cp-7, -0x1.ff993aa21c1a3p-12, -0x1.b553ca7b0f546p-11, 0x1.326256fd53962p-12,
    0x1.57785d768fd19p-16, -0x1.5b8eb22948e0fp-15, 0x1.225650a1e5ce4p-17, 0x1.7ebe0b722710bp-19,
    -0x1.f1a503b0a9715p-20, 0x1.23b37d66972a0p-23, 0x1.ac81e875d0e68p-23, -0x1.3081bb5d508b6p-24,
    -0x1.ccfa4ea9c1c76p-28, 0x1.7b588afd99fc7p-27, -0x1.113d05048504bp-29, -0x1.0c4955b948adcp-30,
    0x1.eaf07c01a9299p-32, 0x1.542e7e826176bp-35, -0x1.588990a24b66ep-35};
static constexpr f64 erfinv_middle_row[] = {
    0x1.59b9811cee978p+1, 0x1.43276e5e89a02p-1, 0x1.584cc13f1682bp-8, -0x1.76f03832f83c5p-9,
    0x1.60502a53ed02cp-10, -0x1.f55e01b9a3d8bp-12, 0x1.810ea0cba380bp-14, 0x1.85e55f4deefe8p-17,
    -0x1.d6b6d3028a264p-17, 0x1.f63bef2ea585cp-19, 0x1.4968fa0737c28p-23, -0x1.b4f4a5f811d9dp-22,
    0x1.d885d8459bcecp-24, 0x1.01aff3d31039cp-28, -0x1.7246c00a3e8cdp-27, 0x1.8b301e6ccbdacp-29,
    0x1.35042ca298eecp-34, -0x1.32016390362afp-32, 0x1.3ff580bda1ddfp-34, 0x1.0b27ad80705a3p-37,
    -0x1.a120c2b8a5077p-38};
static constexpr f64 erfinv_end_row[] = {
    0x1.2cb1e9d8f4ca7p+2, 0x1.5d2b38ba0a890p+0, -0x1.d9e03ce223f30p-15, -0x1.56534e4f31476p-11,
    0x1.41d9f20ef5fbfp-12, -0x1.c8817dedbdce3p-14, 0x1.2344db478e8e2p-15, -0x1.6ebfaabf32cdcp-17,
    0x1.0ae4afeb58643p-18, -0x1.12571144a1e31p-19, 0x1.79498a5dfbe3cp-20, -0x1.10709fde532aap-20,
    0x1.6329892cd7853p-21, -0x1.840a6c960aca5p-22, 0x1.46dd9b5afb92ap-23, -0x1.45fb14a5b46dep-25,
    -0x1.a56467aa979ffp-28, 0x1.c2bf6432da888p-27, -0x1.21776dd676e0ep-27, 0x1.e3f52ef23c837p-29,
    -0x1.2acb51e7b97a9p-31, -0x1.2bb9a883f431bp-31, 0x1.8023c69578274p-32, -0x1.9f6ebe1d0232bp-36,
    -0x1.5e5cc64e4ed90p-36};
// For results that are rounded to single precision.
static constexpr f64 short_erfinv_row[] = {
    0x1.805c5cfcedef5p+0, 0x1.3bb3170cd59ffp-1, -0x1.abc1f03f9e3afp-6, -0x1.40b42039d1623p-6,
    0x1.175eb0e49ecbep-7, -0x1.fbdf5835c240fp-12, -0x1.b632705e38bcdp-11, 0x1.29ddfd10bdbb7p-12,
    0x1.9932bfa96f6f9p-16, -0x1.17a5f9c601945p-15, 0x1.2b00f135dc2dcp-18};

template <class V> FL_INLINE V fused(V a, V b, V c) {
  V r;
  for (unsigned l = 0; l < sizeof(V) / 8; ++l) r[l] = FL_FMA(f64, a[l], b[l], c[l]);
  return r;
}
// A row's polynomial where its interval is that of t in [-1, 1]: every second power on its own.
template <int k, class V, int N> FL_INLINE V powers(const f64 (&c)[N], V z) {
  if constexpr (k + 2 >= N) return V{} + c[k];
  else return fused(powers<k + 2>(c, z), z, V{} + c[k]);
}
template <class V, int N> FL_INLINE V row(const f64 (&c)[N], V t) {
  V z = t * t;
  return fused(powers<1>(c, z), t, powers<0>(c, z));
}
template <class V> FL_INLINE V magnitude(V x) { return x < 0 ? -x : x; }
// Whether a mask has a lane: by the processor's test, or by a byte each, in one number.
template <class M> FL_INLINE bool one_of(M mask) {
#if defined(__AVX__) && !defined(__clang__)
  if constexpr (sizeof(M) == 32) {
    typedef long long four __attribute__((vector_size(32)));
    return !__builtin_ia32_ptestz256((four)mask, (four)mask);
  } else if constexpr (sizeof(M) == 16) {
    typedef long long two __attribute__((vector_size(16)));
    return !__builtin_ia32_ptestz128((two)mask, (two)mask);
  }
#endif
  constexpr unsigned long lanes = sizeof(M) / sizeof(mask[0]);
  typedef i8 bytes __attribute__((vector_size(lanes)));
  bytes narrow = __builtin_convertvector(mask, bytes);
  // not by `sizeof narrow`: GCC takes the size of one element in a template's array bound
  unsigned long part[(lanes + 7) / 8] = {}, any = 0;
  static_assert(sizeof part >= lanes);
  __builtin_memcpy(part, &narrow, lanes);
  for (unsigned long each : part) any |= each;
  return any != 0;
}

template <class V> FL_INLINE V erf_near_zero(V x) { return x * row(erf_row, 2 * (x * x) - 1); }
// erfc(a) for a >= 0.5: the square in the exponent is kept in two parts.
template <class V, V (*Exp)(V)> FL_INLINE V erfc_far(V a) {
  a = a > 28 ? V{} + 28 : a;
  V t = (a - 4) / (a + 4);
  t = fused(t, V{} + 0x1.4f2094f2094f2p+0, V{} + 0x1.29e4129e412a1p-6);
  V square = a * a, lost = fused(a, a, -square);
  V y = Exp(-square) * (row(erfc_row, t) / (1 + 2 * a));
  return fused(-lost, y, y);
}
template <class V, V (*Exp)(V)> FL_INLINE V erfc_by(V x) {
  V a = magnitude(x), y = erfc_far<V, Exp>(a);
  y = x < 0 ? 2 - y : y;
  return a < 0.5 ? 1 - erf_near_zero(x) : y;
}
template <class V, V (*Exp)(V)> FL_INLINE V erf_by(V x) {
  V a = magnitude(x), y = 1 - erfc_far<V, Exp>(a);
  return a < 1 ? erf_near_zero(x) : x < 0 ? -y : y;
}

// The factor of x where w is 5 and more: rarely, and out of the way.
template <class V> __attribute__((noinline, cold)) static V erfinv_end(V w, V near) {
  V s = w;
  for (unsigned l = 0; l < sizeof(V) / 8; ++l) s[l] = __builtin_sqrt(w[l]);
  V middle = row(erfinv_middle_row,
                 fused(s, V{} + 0x1.9515c7927b31fp+0, V{} + -0x1.22730ea02bcbbp+2));
  V end = row(erfinv_end_row, fused(s, V{} + 0x1.7b425ed097b42p-1, V{} + -0x1.cbda12f684bd9p+1));
  return w < 5 ? near : s < 3.5 ? middle : s < 6.2 ? end : w;
}
// `exact`: to the precision of float64, else to that of float32.
template <class V, V (*Log)(V), bool exact> FL_INLINE V erfinv_by(V x) {
  V w = -Log(fused(-x, x, V{} + 1)), p;
  if constexpr (exact) p = row(erfinv_row, w * 0.4 - 1);
  else p = row(short_erfinv_row, w * 0.4 - 1);
  if (__builtin_expect(one_of(w >= 5), 0)) p = erfinv_end(w, p);
  return x * p;
}

// Psi: as digamma of vec.h.
template <class V, V (*Log)(V), V (*Tan)(V)> FL_INLINE V digamma_by(V x) {
  const f64 pi = 3.14159265358979323846;
  const V given = x;
  V reflected{}, total{}, whole = x;
  if (one_of(x < 0)) {
    for (unsigned l = 0; l < sizeof(V) / 8; ++l) whole[l] = __builtin_trunc(x[l]);
    reflected = x < 0 ? pi / Tan(pi * (x - whole)) : reflected;
    x = x < 0 ? 1 - x : x;
  }
  while (one_of(x < 10)) {
    total = x < 10 ? total - 1 / x : total;
    x = x < 10 ? x + 1 : x;
  }
  V z = 1 / (x * x);
  V tail = z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240
         - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12))))));
  V y = total + Log(x) - 0.5 / x - (x < 1e17 ? tail : V{});
  y = (x == 10 ? total + 2.25175258906672110764 : y) - reflected;
  y = (given < 0) & (given == whole) ? V{} + __builtin_nan("") : y;
  return given == 0 ? -1 / given : y;
}

}  // namespace fl
