// Stores past the caches, for what is far larger than they are.
//
// In: vec.h includes this inside namespace fl. Out: bypass, which stores a whole vector at an address
// that is a multiple of its size; fence, after which all threads see what was stored so. Invariant:
// where there are no such instructions the stores are plain ones.

template <class V> FL_INLINE void bypass(void* p, V v) {
#ifdef __clang__
  __builtin_nontemporal_store(v, (V*)p);
#else
  [[maybe_unused]] float* at = (float*)p;
#ifdef __AVX512F__
  typedef float whole __attribute__((vector_size(64)));
  if constexpr (sizeof v == 64) return __builtin_ia32_movntps512(at, (whole)v);
#endif
#ifdef __AVX__
  typedef float half __attribute__((vector_size(32)));
  if constexpr (sizeof v == 32) return __builtin_ia32_movntps256(at, (half)v);
#endif
#ifdef __SSE__
  typedef float quarter __attribute__((vector_size(16)));
  if constexpr (sizeof v == 16) return __builtin_ia32_movntps(at, (quarter)v);
#endif
  __builtin_memcpy(p, &v, sizeof v);
#endif
}
FL_INLINE void fence() {
#ifdef __SSE__
  __builtin_ia32_sfence();
#endif
}
