// Random numbers by counting, one element at a time: Philox4x32-10 (Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011), as flambeau_prims.philox defines it.
//
// In: the seed and an element's position, both 64 bits; vec.h includes this inside namespace fl.
// Out: uniform, normal and raw numbers. Invariant: position i reads lane i mod 4 of the block with
// the counter i div 4; uniform numbers and bits are those of the definition to the last bit.

typedef unsigned u32;
typedef unsigned long u64;

FL_INLINE void philox_block(i64 seed, i64 counter, u32* out) {
  u32 c0 = (u32)counter, c1 = (u32)((u64)counter >> 32), c2 = 0, c3 = 0;
  u32 k0 = (u32)seed, k1 = (u32)((u64)seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const u64 p0 = (u64)c0 * 0xD2511F53u, p1 = (u64)c2 * 0xCD9E8D57u;
    c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
    c1 = (u32)p1;
    c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
    c3 = (u32)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0; out[1] = c1; out[2] = c2; out[3] = c3;
}
FL_INLINE u32 philox_lane(i64 seed, i64 i) {
  u32 lanes[4];
  philox_block(seed, i >> 2, lanes);
  return lanes[i & 3];
}

FL_INLINE f32 uniform_f32(u32 u) { return (f32)(i32)(u >> 8) * 0x1p-24f; }
FL_INLINE f32 uniform_f16(u32 u) { return (f32)(i32)(u >> 21) * 0x1p-11f; }
FL_INLINE f32 uniform_bf16(u32 u) { return (f32)(i32)(u >> 24) * 0x1p-8f; }
FL_INLINE f64 uniform_f64(u32 u) { return (f64)(i64)u * 0x1p-32; }
#define FL_UNIFORM(T, name) \
  FL_INLINE T name(i64 seed, i64 i) { return name(philox_lane(seed, i)); }
FL_UNIFORM(f32, uniform_f32) FL_UNIFORM(f32, uniform_f16) FL_UNIFORM(f32, uniform_bf16)
FL_UNIFORM(f64, uniform_f64)
#undef FL_UNIFORM

// Box and Muller: the even lane of a pair gets the cosine, the odd one the sine.
FL_INLINE f32 normal_f32(i64 seed, i64 i) {
  u32 lanes[4];
  philox_block(seed, i >> 2, lanes);
  const f32 u = (f32)(i32)(lanes[i & 2] >> 8), v = (f32)(i32)(lanes[(i & 2) + 1] >> 8);
  const f32 radius = __builtin_sqrtf(-2.0f * __builtin_logf((u + 1.0f) * 0x1p-24f));
  const f32 angle = v * (f32)(0x1p-24 * 6.283185307179586);
  return radius * (i & 1 ? __builtin_sinf(angle) : __builtin_cosf(angle));
}
FL_INLINE f64 normal_f64(i64 seed, i64 i) {
  u32 lanes[4];
  philox_block(seed, i >> 2, lanes);
  const f64 u = (f64)(i64)lanes[i & 2], v = (f64)(i64)lanes[(i & 2) + 1];
  const f64 radius = __builtin_sqrt(-2.0 * __builtin_log((u + 1.0) * 0x1p-32));
  const f64 angle = v * (0x1p-32 * 6.283185307179586);
  return radius * (i & 1 ? __builtin_sin(angle) : __builtin_cos(angle));
}

FL_INLINE i32 bits_i32(i64 seed, i64 i) { return (i32)philox_lane(seed, i); }
// element i has two lanes, the low half first: the block is i div 2
FL_INLINE i64 bits_i64(i64 seed, i64 i) {
  u32 lanes[4];
  philox_block(seed, i >> 1, lanes);
  const int low = (int)(i & 1) * 2;
  return (i64)((u64)lanes[low + 1] << 32 | lanes[low]);
}
