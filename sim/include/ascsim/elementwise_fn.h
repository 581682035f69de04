// One functor per elementwise API; each accepts the compute type and its 32-byte vector. fp16 results are
// rounded once, when they are stored. NaN: Max, Min and the Relu family hand it on.
#pragma once
#include "ascsim/simd.h"

namespace ascsim {

template <typename V>
inline V Choose(auto condition, V yes, V no) {
    return condition ? yes : no;
}

// Integer overflow wraps; for scalars the sum is taken unsigned because signed overflow is undefined in C++.
template <typename V>
inline V WrapAdd(V a, V b) {
    if constexpr (std::is_integral_v<V>)
        return static_cast<V>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
    else
        return a + b;
}
template <typename V>
inline V WrapSub(V a, V b) {
    if constexpr (std::is_integral_v<V>)
        return static_cast<V>(static_cast<uint32_t>(a) - static_cast<uint32_t>(b));
    else
        return a - b;
}
template <typename V>
inline V WrapMul(V a, V b) {
    if constexpr (std::is_integral_v<V>)
        return static_cast<V>(static_cast<uint32_t>(a) * static_cast<uint32_t>(b));
    else
        return a * b;
}
template <typename V>
inline V Positive(V a) {
    return Choose((a > V{}) | (a != a), a, V{});
}

struct AddFn {
    template <typename V>
    V operator()(V a, V b) const {
        return WrapAdd(a, b);
    }
};
struct SubFn {
    template <typename V>
    V operator()(V a, V b) const {
        return WrapSub(a, b);
    }
};
struct MulFn {
    template <typename V>
    V operator()(V a, V b) const {
        return WrapMul(a, b);
    }
};
struct DivFn {
    template <typename V>
    V operator()(V a, V b) const {
        return a / b;
    }
};
struct MaxFn {
    template <typename V>
    V operator()(V a, V b) const {
        return Choose((a > b) | (a != a), a, b);
    }
};
struct MinFn {
    template <typename V>
    V operator()(V a, V b) const {
        return Choose((a < b) | (a != a), a, b);
    }
};
struct AndFn {
    template <typename V>
    V operator()(V a, V b) const {
        return a & b;
    }
};
struct OrFn {
    template <typename V>
    V operator()(V a, V b) const {
        return a | b;
    }
};
struct AddReluFn {
    template <typename V>
    V operator()(V a, V b) const {
        return Positive(WrapAdd(a, b));
    }
};
struct SubReluFn {
    template <typename V>
    V operator()(V a, V b) const {
        return Positive(WrapSub(a, b));
    }
};
// The product of two fp16 numbers is exact in fp32; whether the fp32 forms fuse is undocumented: they round
// twice here.
struct MulAddDstFn {
    template <typename V>
    V operator()(V dst, V a, V b) const {
        return a * b + dst;
    }
};
struct FusedMulAddFn {
    template <typename V>
    V operator()(V dst, V a, V b) const {
        return a * dst + b;
    }
};
struct FusedMulAddReluFn {
    template <typename V>
    V operator()(V dst, V a, V b) const {
        return Positive(a * dst + b);
    }
};

struct ReluFn {
    template <typename V>
    V operator()(V a) const {
        return Positive(a);
    }
};
struct NotFn {
    template <typename V>
    V operator()(V a) const {
        return ~a;
    }
};
struct AbsFn {
    float operator()(float a) const { return std::fabs(a); }
    V8f operator()(V8f a) const {
        return reinterpret_cast<V8f>(reinterpret_cast<V8i>(a) & (V8i{} + 0x7fffffff));
    }
};
struct SqrtFn {
    float operator()(float a) const { return std::sqrt(a); }
    V8f operator()(V8f a) const {
#if defined(__AVX__)
        return reinterpret_cast<V8f>(_mm256_sqrt_ps(reinterpret_cast<__m256>(a)));
#else
        for (int i = 0; i < 8; ++i) a[i] = std::sqrt(a[i]);
        return a;
#endif
    }
};
struct LeakyReluFn {
    template <typename V>
    V operator()(V a, V s) const {
        return Choose(a >= V{}, a, a * s);
    }
};

// Results with more bits than the operand type: evaluated in fp64, rounded once. Docs state only error bounds
// for these.
template <typename T>
struct ExpFn {
    ComputeType<T> operator()(ComputeType<T> x) const {
        return RoundOnce<T>(std::exp(static_cast<double>(x)));
    }
};
template <typename T>
struct LnFn {
    ComputeType<T> operator()(ComputeType<T> x) const {
        return RoundOnce<T>(std::log(static_cast<double>(x)));
    }
};
template <typename T>
struct RsqrtFn {
    ComputeType<T> operator()(ComputeType<T> x) const {
        return RoundOnce<T>(1.0 / std::sqrt(static_cast<double>(x)));
    }
};
template <typename T>
struct ReciprocalFn {
    ComputeType<T> operator()(ComputeType<T> x) const { return RoundOnce<T>(1.0 / static_cast<double>(x)); }
};

// Second operand fixed to a scalar.
template <typename Fn, typename C>
struct Bound {
    C scalar;
    typename VectorOf<C>::Type vector = SplatTo<typename VectorOf<C>::Type>(scalar);
    C operator()(C a) const { return Fn{}(a, scalar); }
    typename VectorOf<C>::Type operator()(typename VectorOf<C>::Type a) const { return Fn{}(a, vector); }
};

}  // namespace ascsim
