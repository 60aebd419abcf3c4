// exp and erf by tables of 16 numbers, which a register holds and one instruction looks up.
//
// In: elementary.h includes this for 16 lanes where the processor permutes them (AVX-512). Out:
// exp, exp2, erf on f32x16. Invariant: as elementary.h's.
// Tables and polynomials: packages/inductor/tools/fit_polynomials.py.

// 2^(k / 16)
static const f32x16 powers_of_sixteenths = {
    0x1.0p+0f, 0x1.0b5586p+0f, 0x1.172b84p+0f, 0x1.2387a6p+0f, 0x1.306fep+0f, 0x1.3dea64p+0f,
    0x1.4bfdaep+0f, 0x1.5ab07ep+0f, 0x1.6a09e6p+0f, 0x1.7a1148p+0f, 0x1.8ace54p+0f,
    0x1.9c4918p+0f, 0x1.ae89fap+0f, 0x1.c199bep+0f, 0x1.d5818ep+0f, 0x1.ea4afap+0f};

// e^r 2^(z's last four bits, in sixteenths) 2^floor(m) for |r| <= ln(2) / 32.
FL_INLINE f32x16 exp_sixteenths(f32x16 r, f32x16 z, f32x16 m) {
  f32x16 p = fma(r, f32x16{} + 0x1.5555acp-3f, f32x16{} + 0x1.00021ep-1f);
  f32x16 q = fma(r * r, p, r);
  f32x16 t = __builtin_shuffle(powers_of_sixteenths, (i32x16)z);
  return scale_by(fma(t, q, t), m);
}
FL_INLINE f32x16 exp(f32x16 x) {
  f32x16 c = clamped(x, -104.0f, 89.0f);
  f32x16 z = fma(c, f32x16{} + 0x1.715476p+0f, f32x16{} + 0x1.8p19f), m = z - 0x1.8p19f;
  f32x16 r = fma(m, f32x16{} - 0x1.62e4p-1f, c);
  return exp_sixteenths(fma(m, f32x16{} - 0x1.7f7d1cp-20f, r), z, m);
}
FL_INLINE f32x16 exp2(f32x16 x) {
  f32x16 c = clamped(x, -151.0f, 129.0f);
  f32x16 z = c + 0x1.8p19f, m = z - 0x1.8p19f;
  return exp_sixteenths((c - m) * 0x1.62e43p-1f, z, m);
}

// erf(k step + r) as a polynomial in r for |r| <= step / 2: its coefficients by k, from r^0 to r^5.
// The first piece, where r is the argument, is that of erf(r) - r.
static const f32x16 erf_r0 = {
    0x0.0p+0f, 0x1.1f7968p-2f, 0x1.0e3a66p-1f, 0x1.702fa6p-1f, 0x1.b2f1e2p-1f, 0x1.dafb56p-1f,
    0x1.f01c8ep-1f, 0x1.f9ecb2p-1f, 0x1.fdef5ap-1f, 0x1.ff608ep-1f, 0x1.ffd564p-1f,
    0x1.fff5ecp-1f, 0x1.fffde4p-1f, 0x1.ffff9cp-1f, 0x1.fffffp-1f, 0x1.fffffep-1f};
static const f32x16 erf_r1 = {
    0x1.06eba8p-3f, 0x1.0ecb6p+0f, 0x1.be2c6cp-1f, 0x1.4304aep-1f, 0x1.9b06cap-2f,
    0x1.cb9f8ap-3f, 0x1.c3ac16p-4f, 0x1.860ffep-5f, 0x1.28077p-6f, 0x1.8adea6p-8f,
    0x1.cedfb8p-10f, 0x1.dcd3bap-12f, 0x1.afaaa8p-14f, 0x1.576b7ap-16f, 0x1.e0330ep-19f,
    0x1.27099cp-21f};
static const f32x16 erf_r2 = {
    0x1.6248dep-22f, -0x1.134d2p-2f, -0x1.c599e6p-2f, -0x1.ec97c8p-2f, -0x1.a1e098p-2f,
    -0x1.240c8ep-2f, -0x1.58678cp-3f, -0x1.5afd34p-4f, -0x1.2d0428p-5f, -0x1.c392d2p-7f,
    -0x1.268c5p-8f, -0x1.4ddcd2p-10f, -0x1.435114p-12f, -0x1.0a19b2p-14f, -0x1.1772ccp-16f,
    -0x1.dc26a2p-18f};
static const f32x16 erf_r3 = {
    -0x1.812bf8p-2f, -0x1.3a6dd6p-2f, -0x1.1f85acp-3f, 0x1.187cccp-5f, 0x1.246db6p-3f,
    0x1.55a66cp-3f, 0x1.12dbd6p-3f, 0x1.5a8fa2p-4f, 0x1.66a18p-5f, 0x1.3775acp-6f,
    0x1.cbc7ep-8f, 0x1.22b7bcp-9f, 0x1.3c9e1p-11f, 0x1.2a1708p-13f, 0x1.e6913ep-16f,
    0x1.58f7cap-18f};
static const f32x16 erf_r4 = {
    0x1.54b3fcp-12f, 0x1.059b56p-3f, 0x1.753b6cp-3f, 0x1.2c0966p-3f, 0x1.051b12p-4f,
    -0x1.5cecf2p-7f, -0x1.7709p-5f, -0x1.8068dep-5f, -0x1.04e2a6p-5f, -0x1.1b7924p-6f,
    -0x1.ce5616p-8f, -0x1.4ff3f4p-9f, -0x1.3299eep-10f, -0x1.f19b2cp-12f, 0x1.97593p-13f,
    0x1.3a2542p-12f};
static const f32x16 erf_r5 = {
    0x1.c5d31ap-4f, 0x1.465eb2p-4f, 0x1.aacc88p-8f, -0x1.c2ed78p-5f, -0x1.17f66p-4f,
    -0x1.6bcc92p-5f, -0x1.8ee1c8p-7f, 0x1.038c3ep-7f, 0x1.ab1d4ap-7f, 0x1.46f738p-7f,
    0x1.656b24p-8f, 0x1.331bfep-9f, 0x1.af7beep-11f, 0x1.fa032ap-13f, 0x1.f58428p-15f,
    0x1.a77c18p-17f};

FL_INLINE f32x16 erf(f32x16 x) {
  f32x16 a = abs(x);
  // from here on erf is 1
  f32x16 t = smaller(f32x16{} + 0x1.f7f00ep+1f, a);
  f32x16 z = fma(t, f32x16{} + 0x1.f79c34p+1f, f32x16{} + 0x1.8p23f), m = z - 0x1.8p23f;
  i32x16 k = (i32x16)z;
  f32x16 r = fma(m, f32x16{} - 0x1.0443cap-2f, t);
#define FL_LOOK(row) __builtin_shuffle(row, k)
  f32x16 p = fma(r, FL_LOOK(erf_r5), FL_LOOK(erf_r4));
  p = fma(p, r, FL_LOOK(erf_r3));
  p = fma(p, r, FL_LOOK(erf_r2));
  p = fma(p, r, FL_LOOK(erf_r1));
  return with_sign(fma(p, r, m == 0.0f ? r : FL_LOOK(erf_r0)), x);
#undef FL_LOOK
}
