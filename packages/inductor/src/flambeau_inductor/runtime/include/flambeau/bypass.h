// Stores past the caches, for what is far larger than they are.
//
// In: vec.h includes this inside namespace fl. Out: bypass, which stores a whole vector at an address
// that is a multiple of its size; fence, after which all threads see what was stored so; reads and
// writes, by which a sanitizer learns what such instructions do. Invariant:
// where there are no such instructions the stores are plain ones.

// What an instruction of the processor's own reads or writes, which the address sanitizer of GCC
// does not see: it is notified.
#ifdef __SANITIZE_ADDRESS__
extern "C" void __asan_loadN_noabort(const void*, unsigned long);
extern "C" void __asan_storeN_noabort(void*, unsigned long);
FL_INLINE void reads(const void* p, long bytes) { __asan_loadN_noabort(p, bytes); }
FL_INLINE void writes(void* p, long bytes) { __asan_storeN_noabort(p, bytes); }
#else
FL_INLINE void reads(const void*, long) {}
FL_INLINE void writes(void*, long) {}
#endif

template <class V> FL_INLINE void bypass(void* p, V v) {
#ifdef __clang__
  __builtin_nontemporal_store(v, (V*)p);
#else
  [[maybe_unused]] float* at = (float*)p;
  writes(p, sizeof v);
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
