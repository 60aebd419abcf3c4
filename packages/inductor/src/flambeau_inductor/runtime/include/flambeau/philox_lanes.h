// Random numbers by counting, FL_W neighbours at a time.
//
// In: the seed, and the position of the first lane; lanes.h includes this inside namespace fl for
// widths that are multiples of 4. Out: uniform, normal and raw numbers of FL_W positions in a row.
// Invariant: the same numbers as philox.h gives one by one (normal ones by the vector logarithm,
// sine and cosine). Blocks are computed side by side, one in each 64-bit lane, of which the high
// half may hold anything until the end.

#define FL_BLOCKS (FL_W / 4)
typedef u64 FL_NAME(blocks) __attribute__((vector_size(2 * FL_W)));

FL_INLINE FL_NAME(blocks) FL_NAME(times_)(FL_NAME(blocks) a, u32 b) {
#if defined(__AVX2__) && FL_W == 16 && !defined(__clang__)
  typedef int halves __attribute__((vector_size(32)));
  return (FL_NAME(blocks))__builtin_ia32_pmuludq256((halves)a, (halves)(FL_NAME(blocks){} + b));
#elif defined(__SSE2__) && FL_W == 8 && !defined(__clang__)
  typedef int halves __attribute__((vector_size(16)));
  return (FL_NAME(blocks))__builtin_ia32_pmuludq128((halves)a, (halves)(FL_NAME(blocks){} + b));
#else
  return (a & 0xffffffffUL) * (u64)b;
#endif
}

FL_INLINE FL_V(u32) FL_NAME(philox_)(i64 seed, i64 first) {
  FL_V(u32) out;
  if (__builtin_expect(first & 3, 0)) {
    u32 lanes[FL_W + 4];
    for (int b = 0; b <= FL_BLOCKS; ++b) philox_block(seed, (first >> 2) + b, lanes + 4 * b);
    __builtin_memcpy(&out, lanes + (first & 3), sizeof out);
    return out;
  }
  FL_NAME(blocks) counter;
  for (int b = 0; b < FL_BLOCKS; ++b) counter[b] = (u64)(first >> 2) + b;
  FL_NAME(blocks) c0 = counter, c1 = counter >> 32, c2 = FL_NAME(blocks){}, c3 = c2;
  u32 k0 = (u32)seed, k1 = (u32)((u64)seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const FL_NAME(blocks) p0 = FL_NAME(times_)(c0, 0xD2511F53u);
    const FL_NAME(blocks) p1 = FL_NAME(times_)(c2, 0xCD9E8D57u);
    c0 = (p1 >> 32) ^ c1 ^ (u64)k0;
    c1 = p1;
    c2 = (p0 >> 32) ^ c3 ^ (u64)k1;
    c3 = p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const FL_NAME(blocks) low = (c0 & 0xffffffffUL) | c1 << 32, high = (c2 & 0xffffffffUL) | c3 << 32;
  FL_NAME(blocks) halves[2];
#if FL_W == 16 && !defined(__clang__)
  halves[0] = __builtin_shuffle(low, high, (FL_NAME(blocks)){0, 4, 1, 5});
  halves[1] = __builtin_shuffle(low, high, (FL_NAME(blocks)){2, 6, 3, 7});
#else
  for (int b = 0; b < FL_BLOCKS; ++b) {
    halves[2 * b / FL_BLOCKS][2 * b % FL_BLOCKS] = low[b];
    halves[(2 * b + 1) / FL_BLOCKS][(2 * b + 1) % FL_BLOCKS] = high[b];
  }
#endif
  __builtin_memcpy(&out, halves, sizeof out);
  return out;
}

#define FL_UNIFORM(name, drop, unit) \
  FL_INLINE FL_V(f32) FL_NAME(name##_)(i64 seed, i64 first) { \
    return FL_AS((FL_V(i32))(FL_NAME(philox_)(seed, first) >> drop), f32) * unit; }
FL_UNIFORM(uniform_f32, 8, 0x1p-24f)
FL_UNIFORM(uniform_f16, 21, 0x1p-11f)
FL_UNIFORM(uniform_bf16, 24, 0x1p-8f)
#undef FL_UNIFORM
FL_INLINE FL_V(f64) FL_NAME(uniform_f64_)(i64 seed, i64 first) {
  return FL_AS(FL_NAME(philox_)(seed, first), f64) * 0x1p-32;
}
FL_INLINE FL_V(i32) FL_NAME(bits_i32_)(i64 seed, i64 first) {
  return (FL_V(i32))FL_NAME(philox_)(seed, first);
}
FL_INLINE FL_V(f32) FL_NAME(normal_f32_)(i64 seed, i64 first) {
  if (first & 1) {
    FL_V(f32) r;
    FL_EACH(normal_f32(seed, first + l));
    return r;
  }
  const FL_V(i32) lanes = (FL_V(i32))(FL_NAME(philox_)(seed, first) >> 8);
  FL_V(i32) even, odd;
  for (int l = 0; l < FL_W; ++l) { even[l] = lanes[l & ~1]; odd[l] = lanes[l | 1]; }
  const FL_V(f32) u = FL_AS(even, f32), v = FL_AS(odd, f32);
  const FL_V(f32) radius = sqrt(-2.0f * log((u + 1.0f) * 0x1p-24f));
  const FL_V(f32) angle = v * (f32)(0x1p-24 * 6.283185307179586);
  return radius * select(-(FL_NAME(lanes)() & 1), sin(angle), cos(angle));
}
#undef FL_BLOCKS
