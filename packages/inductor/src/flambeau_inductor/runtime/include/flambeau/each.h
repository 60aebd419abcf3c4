// What device functions in C++ are written with: the elements of a vector, conversions.
//
// In: vec.h. Out: `lane<V>` and `lanes_of<V>`, the elements' type and their number (0 of a number
// alone), `lanes<E, N>`, `to` and `bits_as`. Invariant: the same names for both flavours.
#pragma once

namespace fl {

template <class T> struct bare { typedef T type; };
template <class T> struct bare<T&> { typedef T type; };
template <class T> struct bare<const T&> { typedef T type; };

template <class V> struct vector_of {
  typedef typename bare<decltype(V{}[0])>::type type;
  static constexpr int count = sizeof(V) / sizeof(type);
};
#define FL_NUMBER(T) \
  template <> struct vector_of<T> { typedef T type; static constexpr int count = 0; };
FL_NUMBER(f32) FL_NUMBER(f64) FL_NUMBER(i8) FL_NUMBER(u8) FL_NUMBER(i16) FL_NUMBER(i32)
FL_NUMBER(i64)
#undef FL_NUMBER
template <class E, int N> struct vector_with {
  typedef E type __attribute__((vector_size(sizeof(E) * N)));
  static_assert(sizeof(type) == sizeof(E) * N);
};

template <class V> using lane = typename vector_of<V>::type;
template <class V> static constexpr int lanes_of = vector_of<V>::count;
template <class E, int N> using lanes = typename vector_with<E, N>::type;

template <class T, class S> FL_INLINE T to(S x) { return (T)x; }
template <class T, class S> FL_INLINE T bits_as(S x) {
  T r;
  static_assert(sizeof r == sizeof x);
  __builtin_memcpy(&r, &x, sizeof r);
  return r;
}

}  // namespace fl
