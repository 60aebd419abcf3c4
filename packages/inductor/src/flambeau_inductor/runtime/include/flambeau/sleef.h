// Elementary functions of SLEEF, which torch's library exports and eager's own kernels call.
//
// In: lanes.h includes this inside namespace fl, once per FL_W; FL_SLEEF, the bytes of the widest
// vector that torch's library has them for (0: none, and the lanes are given to libm one by one).
// Out: the functions that elementary.h has no form of. Invariant: toolchain.py reads the names that
// are requested here, and defines FL_SLEEF where every one of them is found.
#ifndef FL_SLEEF
#define FL_SLEEF 0
#endif
#define FL_EXTERN(name) FL_JOIN2(FL_JOIN2(Sleef_##name, FL_SUFFIX), FL_W)
#define FL_CALL1(T, name, bound) \
  extern "C" FL_V(T) FL_JOIN2(FL_EXTERN(name), bound)(FL_V(T)); \
  FL_INLINE FL_V(T) name(FL_V(T) a) { return FL_JOIN2(FL_EXTERN(name), bound)(a); }
#define FL_CALL2(T, name, bound) \
  extern "C" FL_V(T) FL_JOIN2(FL_EXTERN(name), bound)(FL_V(T), FL_V(T)); \
  FL_INLINE FL_V(T) name(FL_V(T) a, FL_V(T) b) { return FL_JOIN2(FL_EXTERN(name), bound)(a, b); }
// a vector of half the size is computed with its lanes twice
#define FL_WIDE1(T, name, bound) \
  extern "C" FL_V(doubled) FL_JOIN2(FL_DOUBLED(name), bound)(FL_V(doubled)); \
  FL_INLINE FL_V(T) name(FL_V(T) a) { \
    const FL_V(doubled) r = FL_JOIN2(FL_DOUBLED(name), bound)(FL_TWICE(a)); \
    return FL_FIRST(r); }
#define FL_WIDE2(T, name, bound) \
  extern "C" FL_V(doubled) FL_JOIN2(FL_DOUBLED(name), bound)(FL_V(doubled), FL_V(doubled)); \
  FL_INLINE FL_V(T) name(FL_V(T) a, FL_V(T) b) { \
    const FL_V(doubled) r = FL_JOIN2(FL_DOUBLED(name), bound)(FL_TWICE(a), FL_TWICE(b)); \
    return FL_FIRST(r); }
#define FL_TWICE(a) __builtin_shufflevector(a, a, 0, 1, 2, 3, 0, 1, 2, 3)
#define FL_FIRST(a) __builtin_shufflevector(a, a, 0, 1, 2, 3)
#define FL_DOUBLED(name) FL_JOIN2(Sleef_##name, f8)
#define FL_LANES1(T, name, bound) FL_LIBM1(T, name)
#define FL_LANES2(T, name, bound) FL_LIBM2(T, name)

// Functions that are infinite in SLEEF where exp is, before they are: libm has them from there on.
#define FL_FAR(T, name, definition) \
  namespace FL_JOIN2(FL_NAME(library), T) { using fl::name; definition } \
  FL_INLINE FL_V(T) name(FL_V(T) a) { \
    if (__builtin_expect(one_of(abs(a) > (T)(sizeof(T) == 4 ? 88 : 709)), 0)) { \
      FL_V(T) r; FL_EACH(name((T)a[l])); return r; } \
    return FL_JOIN2(FL_NAME(library), T)::name(a); }
// of both types; its acosh and asinh are infinite where the square is
#define FL_FUNCTIONS(T, F1, F2) \
  F1(T, tan, _u10) F1(T, asin, _u10) F1(T, acos, _u10) F1(T, atan, _u10) \
  FL_FAR(T, sinh, F1(T, sinh, _u10)) FL_FAR(T, cosh, F1(T, cosh, _u10)) \
  FL_LIBM1(T, asinh) FL_LIBM1(T, acosh) F1(T, atanh, _u10) \
  F1(T, lgamma, _u10) F2(T, pow, _u10) F2(T, atan2, _u10)
// of double precision alone
#define FL_DOUBLE(T, F1, F2) \
  F1(T, exp, _u10) F1(T, exp2, _u10) F1(T, expm1, _u10) F1(T, log, _u10) F1(T, log2, _u10) \
  F1(T, log10, _u10) F1(T, log1p, _u10) F1(T, sin, _u10) F1(T, cos, _u10) F1(T, tanh, _u10)

// By the double-precision functions of special.h, a float32 vector as two halves of its size.
#define FL_BY(name, ...) \
  FL_INLINE FL_V(f64) name(FL_V(f64) x) { return name##_by<FL_V(f64), __VA_ARGS__>(x); }
#define FL_BY_HALVES(name, ...) \
  FL_INLINE FL_V(f32) name(FL_V(f32) x) { \
    typedef FL_V(halved) wide; \
    FL_V(part) low = FL_PART(x, FL_LOW), high = FL_PART(x, FL_HIGH); \
    low = FL_NARROW((name##_by<wide, __VA_ARGS__>(__builtin_convertvector(low, wide)))); \
    high = FL_NARROW((name##_by<wide, __VA_ARGS__>(__builtin_convertvector(high, wide)))); \
    return __builtin_shufflevector(low, high, FL_LOW, FL_HIGH); }
#define FL_PART(x, lanes) __builtin_shufflevector(x, x, lanes)
#define FL_NARROW(x) __builtin_convertvector(x, FL_V(part))
#define FL_HALVED(name, bound) FL_JOIN2(FL_JOIN2(Sleef_##name##d, FL_HALF_W), bound)
#if FL_W == 16
#define FL_HALF_W 8
#define FL_LOW 0, 1, 2, 3, 4, 5, 6, 7
#define FL_HIGH 8, 9, 10, 11, 12, 13, 14, 15
#elif FL_W == 8
#define FL_HALF_W 4
#define FL_LOW 0, 1, 2, 3
#define FL_HIGH 4, 5, 6, 7
#elif FL_W == 4
#define FL_HALF_W 2
#define FL_LOW 0, 1
#define FL_HIGH 2, 3
#endif

#define FL_SUFFIX f
#if 4 * FL_W == FL_SLEEF || (4 * FL_W == 32 && FL_SLEEF == 64)
FL_FUNCTIONS(f32, FL_CALL1, FL_CALL2)
typedef f32 FL_V(part) __attribute__((vector_size(2 * FL_W)));
typedef f64 FL_V(halved) __attribute__((vector_size(4 * FL_W)));
extern "C" FL_V(halved) FL_HALVED(log, _u10)(FL_V(halved));
extern "C" FL_V(halved) FL_HALVED(tan, _u10)(FL_V(halved));
FL_BY_HALVES(erfinv, FL_HALVED(log, _u10), false)
FL_BY_HALVES(digamma, FL_HALVED(log, _u10), FL_HALVED(tan, _u10))
#elif FL_W == 4 && FL_SLEEF >= 32
typedef f32 FL_V(doubled) __attribute__((vector_size(32)));
FL_FUNCTIONS(f32, FL_WIDE1, FL_WIDE2)
#define FL_THROUGH_DOUBLE
#else
FL_FUNCTIONS(f32, FL_LANES1, FL_LANES2)
FL_LIBM1(f32, erfinv) FL_LIBM1(f32, digamma)
#endif
#undef FL_SUFFIX
#define FL_SUFFIX d
#if 8 * FL_W == FL_SLEEF || (8 * FL_W == 32 && FL_SLEEF == 64)
FL_FUNCTIONS(f64, FL_CALL1, FL_CALL2)
FL_DOUBLE(f64, FL_CALL1, FL_CALL2)
FL_BY(erf, FL_JOIN2(FL_EXTERN(exp), _u10))
FL_BY(erfc, FL_JOIN2(FL_EXTERN(exp), _u10))
FL_BY(erfinv, FL_JOIN2(FL_EXTERN(log), _u10), true)
FL_BY(digamma, FL_JOIN2(FL_EXTERN(log), _u10), FL_JOIN2(FL_EXTERN(tan), _u10))
#else
FL_FUNCTIONS(f64, FL_LANES1, FL_LANES2)
FL_DOUBLE(f64, FL_LANES1, FL_LANES2)
FL_LIBM1(f64, erf) FL_LIBM1(f64, erfc) FL_LIBM1(f64, erfinv) FL_LIBM1(f64, digamma)
#endif
#ifdef FL_THROUGH_DOUBLE
FL_INLINE FL_V(f32) erfinv(FL_V(f32) x) { return FL_AS(erfinv(FL_AS(x, f64)), f32); }
FL_INLINE FL_V(f32) digamma(FL_V(f32) x) { return FL_AS(digamma(FL_AS(x, f64)), f32); }
#undef FL_THROUGH_DOUBLE
#endif
FL_INLINE FL_V(f64) sigmoid(FL_V(f64) x) { return 1 / (1 + exp(-x)); }

#undef FL_SUFFIX
#undef FL_EXTERN
#undef FL_CALL1
#undef FL_CALL2
#undef FL_WIDE1
#undef FL_WIDE2
#undef FL_TWICE
#undef FL_FIRST
#undef FL_DOUBLED
#undef FL_LANES1
#undef FL_LANES2
#undef FL_FAR
#undef FL_FUNCTIONS
#undef FL_DOUBLE
#undef FL_BY
#undef FL_BY_HALVES
#undef FL_HALVED
#undef FL_HALF_W
#undef FL_LOW
#undef FL_HIGH
#undef FL_PART
#undef FL_NARROW
