// Half precision on FL_W lanes: exact widening, narrowing to nearest, ties to even.
//
// In: FL_W; lanes.h includes this inside namespace fl. Out: widen_*, round_*, half_bits. Invariant:
// with the processor's own conversions (F16C) or without them, the same numbers come
// out, denormals and infinities included; a NaN stays one (eager's vectors set all of its bits too).

FL_INLINE FL_V(f32) widen_bf16(FL_V(u16) v) { return (FL_V(f32))(FL_AS(v, u32) << 16); }
#if defined(__AVX512F__) && FL_W == 16 && !defined(__clang__)
// The last bit that stays decides about ties; VFIXUPIMM puts NaN, made quiet (2), where x is one.
// AVX512-BF16 has an instruction for all of this that takes denormals for zero.
FL_INLINE FL_V(f32) round_bf16(FL_V(f32) x) {
  const FL_V(i32) u = (FL_V(i32))x, half = u + 0x7fff, one = FL_V(i32){} + 1;
  const unsigned short odd = __builtin_ia32_ptestmd512(u, FL_V(i32){} + 0x10000, -1);
  const FL_V(i32) r = __builtin_ia32_paddd512_mask(half, one, half, odd);
  const FL_V(f32) whole =
      __builtin_ia32_fixupimmps512_mask((FL_V(f32))r, x, FL_V(i32){} + 0x22, 0, -1, 4);
  return (FL_V(f32))((FL_V(u32))whole & 0xffff0000u);
}
#else
FL_INLINE FL_V(f32) round_bf16(FL_V(f32) x) {
  FL_V(u32) u = (FL_V(u32))x;
  FL_V(u32) r = u + (((u >> 16) & 1u) + 0x7fffu);
  return (FL_V(f32))((r | (FL_V(u32))(x != x)) & 0xffff0000u);
}
#endif

#if defined(__F16C__) && defined(__AVX512F__) && FL_W == 16 && !defined(__clang__)
typedef short FL_NAME(packed) __attribute__((vector_size(32)));
FL_INLINE FL_V(f32) widen_f16(FL_V(u16) v) {
  return __builtin_ia32_vcvtph2ps512_mask((FL_NAME(packed))v, FL_V(f32){}, -1, 4);
}
FL_INLINE FL_V(u16) half_bits(FL_V(f32) x) {
  return (FL_V(u16))__builtin_ia32_vcvtps2ph512_mask(x, 0, FL_NAME(packed){}, -1);
}
#elif defined(__F16C__) && FL_W == 8 && !defined(__clang__)
typedef short FL_NAME(packed) __attribute__((vector_size(16)));
FL_INLINE FL_V(f32) widen_f16(FL_V(u16) v) {
  return __builtin_ia32_vcvtph2ps256((FL_NAME(packed))v);
}
FL_INLINE FL_V(u16) half_bits(FL_V(f32) x) {
  return (FL_V(u16))__builtin_ia32_vcvtps2ph256(x, 0);
}
#elif defined(__F16C__) && FL_W == 4 && !defined(__clang__)
typedef short FL_NAME(packed) __attribute__((vector_size(16)));
typedef long FL_NAME(two) __attribute__((vector_size(16)));
FL_INLINE FL_V(f32) widen_f16(FL_V(u16) v) {
  return __builtin_ia32_vcvtph2ps((FL_NAME(packed))FL_NAME(two){(long)v, 0});
}
FL_INLINE FL_V(u16) half_bits(FL_V(f32) x) {
  return (FL_V(u16))((FL_NAME(two))__builtin_ia32_vcvtps2ph(x, 0))[0];
}
#else
FL_INLINE FL_V(f32) widen_f16(FL_V(u16) v) {
  FL_V(u32) h = FL_AS(v, u32), sign = (h & 0x8000u) << 16, rest = (h & 0x7fffu) << 13;
  FL_V(u32) scaled = (FL_V(u32))((FL_V(f32))rest * 0x1p112f);
  scaled = (rest >= (0x7c00u << 13)) ? (rest | 0x7f800000u) : scaled;
  return (FL_V(f32))(scaled | sign);
}
FL_INLINE FL_V(u16) half_bits(FL_V(f32) x) {
  FL_V(u32) u = (FL_V(u32))x, sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  FL_V(u32) normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13;
  FL_V(u32) tiny = (FL_V(u32))((FL_V(f32))a + 0.5f) - 0x3f000000u;
  FL_V(u32) r = (a < 0x38800000u) ? tiny : normal;
  r = (a >= 0x477ff000u) ? FL_V(u32){} + 0x7c00u : r;
  return FL_AS(((a > 0x7f800000u) ? FL_V(u32){} + 0x7e00u : r) | sign, u16);
}
#endif
FL_INLINE FL_V(f32) round_f16(FL_V(f32) x) { return widen_f16(half_bits(x)); }
