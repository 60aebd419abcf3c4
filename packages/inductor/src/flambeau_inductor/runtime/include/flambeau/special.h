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
    0x1.805c5cfcedef5p+0, 0x1.3bb315fc76826p-1, -0x1.abc1e0b47dc60p-6, -0x1.40b177277945ep-6,
    0x1.175c3f22792b7p-7, -0x1.ff993ab748250p-12, -0x1.b553ca6ffa15cp-11, 0x1.326257cfd8593p-12,
    0x1.57784fc724836p-16, -0x1.5b8ed61869511p-15, 0x1.2256e54ef65b4p-17, 0x1.7ec56a4d1194ep-19,
    -0x1.f1b43091c95d2p-20, 0x1.22c10203a80a8p-23, 0x1.ad7a816c59abcp-23, -0x1.2e0c4879d1c4bp-24,
    -0x1.f52a3fe65cdb9p-28, 0x1.6bb265526488dp-27, -0x1.a2ff5e8cd3427p-30, -0x1.a91c7feae0c67p-31,
    0x1.08965165098cdp-32};
static constexpr f64 erfinv_middle_row[] = {
    0x1.59b9811cee978p+1, 0x1.43276e5e89a02p-1, 0x1.584cc13f16830p-8, -0x1.76f03832f939fp-9,
    0x1.60502a53ecb7ap-10, -0x1.f55e01b8f7f6cp-12, 0x1.810ea0cc057e8p-14, 0x1.85e55e77b1afep-17,
    -0x1.d6b6d3206a6f9p-17, 0x1.f63c019786e49p-19, 0x1.49692260cf620p-23, -0x1.b4f68f15c5fafp-22,
    0x1.d884d14adc549p-24, 0x1.02b03aa3fe2ebp-28, -0x1.7235eef370b98p-27, 0x1.88822ba53395ap-29,
    0x1.2a23ebab5e04ep-34, -0x1.200b912c9cbd8p-32, 0x1.4896eda3d9ff7p-34, -0x1.eca40097fbab2p-42,
    -0x1.de7b264d028c0p-38, 0x1.15d49ab1a2276p-39, 0x1.75efb09075c93p-43, -0x1.4d9d546adf830p-43};
static constexpr f64 erfinv_end_row[] = {
    0x1.2cb1e9d8f4ca7p+2, 0x1.5d2b38ba0a8ccp+0, -0x1.d9e03ce2d470bp-15, -0x1.56534e57d3bdbp-11,
    0x1.41d9f2154a1bbp-12, -0x1.c881781b0a964p-14, 0x1.2344d6fed9018p-15, -0x1.6ec1775649071p-17,
    0x1.0ae604ed718c8p-18, -0x1.122ffeedbe629p-19, 0x1.792c55b6eca80p-20, -0x1.116f470aea8cfp-20,
    0x1.63ea9463ebc08p-21, -0x1.7bee6d4d29b0ap-22, 0x1.4096b7aa12026p-23, -0x1.992732a575d27p-25,
    -0x1.36dc09e1ee146p-29, 0x1.63237067bdd72p-26, -0x1.8f02476e6e579p-27, 0x1.3b9ae85bf4fc5p-32,
    0x1.0c905b12661c1p-30};
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
// Whether a mask has a lane: by a byte each, in one number.
template <class M> FL_INLINE bool one_of(M mask) {
  typedef i8 bytes __attribute__((vector_size(sizeof(M) / sizeof(mask[0]))));
  bytes narrow = __builtin_convertvector(mask, bytes);
  unsigned long part[(sizeof narrow + 7) / 8] = {}, any = 0;
  __builtin_memcpy(part, &narrow, sizeof narrow);
  for (unsigned long each : part) any |= each;
  return any != 0;
}

template <class V> FL_INLINE V erf_near_zero(V x) { return x * row(erf_row, 2 * (x * x) - 1); }
// erfc(a) for a >= 0.5: the square in the exponent is kept in two parts.
template <class V, V (*Exp)(V)> FL_INLINE V erfc_far(V a) {
  a = a > 28 ? V{} + 28 : a;
  V t = (a - 4) / (a + 4);
  t = fused(t, V{} + 0x1.4f2094f2094f2p+0, V{} + 0x1.29e4129e412a1p-6);
  V square = a * a, lost = fused(a, a, -square), y = Exp(-square) * (row(erfc_row, t) / (1 + 2 * a));
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
  V middle = row(erfinv_middle_row, fused(s, V{} + 0x1.9515c7927b31fp+0, V{} + -0x1.22730ea02bcbbp+2));
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
  V shift{}, whole = x;
  if (one_of(x < 0)) {
    for (unsigned l = 0; l < sizeof(V) / 8; ++l) whole[l] = __builtin_trunc(x[l]);
    shift = x < 0 ? -pi / Tan(pi * (x - whole)) : shift;
    x = x < 0 ? 1 - x : x;
  }
  while (one_of(x < 10)) {
    shift = x < 10 ? shift - 1 / x : shift;
    x = x < 10 ? x + 1 : x;
  }
  V z = 1 / (x * x);
  V tail = z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240
         - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12))))));
  V y = Log(x) - 0.5 / x - (x < 1e17 ? tail : V{}) + shift;
  y = (given < 0) & (given == whole) ? V{} + __builtin_nan("") : y;
  return given == 0 ? -1 / given : y;
}

}  // namespace fl
