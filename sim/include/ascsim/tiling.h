// Tiling data and task type: the struct is copied out of the launch's tiling argument.
#pragma once
#include <array>
#include <cstring>

#include "ascsim/types.h"
#include "core/frame.h"

enum KernelMetaType {
    KERNEL_TYPE_AIV_ONLY,
    KERNEL_TYPE_AIC_ONLY,
    KERNEL_TYPE_MIX_AIV_1_0,
    KERNEL_TYPE_MIX_AIC_1_0,
    KERNEL_TYPE_MIX_AIC_1_1,
    KERNEL_TYPE_MIX_AIC_1_2,
    KERNEL_TYPE_AICORE,
    KERNEL_TYPE_VECTORCORE,
    KERNEL_TYPE_MIX_AICORE,
    KERNEL_TYPE_MIX_VECTOR_CORE,
    KERNEL_TYPE_MAX,
};

namespace ascsim {

template <typename T>
T TilingCopy(const void* p, const char* name, Loc loc) {
    static_assert(std::is_trivially_copyable_v<T>, "tiling data must be a plain struct");
    const uint64_t have = p ? TilingBytes(p) : 0;
    if (have < sizeof(T))
        Fail(CallSite("GET_TILING_DATA", loc), "tiling.size",
             "%s needs %llu bytes, the launch's tiling has %llu", name, (unsigned long long)sizeof(T),
             (unsigned long long)have);
    T value;
    std::memcpy(&value, p, sizeof(T));
    return value;
}

}  // namespace ascsim

#define __tiling_data_ptr__
// The registered struct is what a plain GET_TILING_DATA of the same scope copies.
#define REGISTER_TILING_DEFAULT(tiling_struct) using AscsimDefaultTiling [[maybe_unused]] = tiling_struct
#define REGISTER_TILING_FOR_TILINGKEY(expression, tiling_struct) static_assert(sizeof(tiling_struct) > 0)
#define REGISTER_NONE_TILING

#define GET_TILING_DATA_WITH_STRUCT(tiling_struct, name, pointer) \
    tiling_struct name = ::ascsim::TilingCopy<tiling_struct>(pointer, #tiling_struct, ::ascsim::Loc::Here())
#define GET_TILING_DATA(name, pointer) \
    AscsimDefaultTiling name =         \
        ::ascsim::TilingCopy<AscsimDefaultTiling>(pointer, "tiling data", ::ascsim::Loc::Here())
#define GET_TILING_DATA_MEMBER(tiling_struct, member, name, pointer) \
    auto name = ::ascsim::TilingCopy<tiling_struct>(pointer, #tiling_struct, ::ascsim::Loc::Here()).member
#define GET_TILING_DATA_PTR_WITH_STRUCT(tiling_struct, name, pointer)                        \
    tiling_struct name##_ascsim =                                                            \
        ::ascsim::TilingCopy<tiling_struct>(pointer, #tiling_struct, ::ascsim::Loc::Here()); \
    tiling_struct* name = &name##_ascsim
#define COPY_TILING_WITH_STRUCT(tiling_struct, source, name) \
    tiling_struct name##_ascsim = (source);                  \
    tiling_struct* name = &name##_ascsim
#define COPY_TILING_WITH_ARRAY(type, count, source, name)                                                   \
    std::array<type, count> name##_ascsim;                                                                  \
    for (size_t i_ascsim = 0; i_ascsim < (count); ++i_ascsim) name##_ascsim[i_ascsim] = (source)[i_ascsim]; \
    auto* name = &name##_ascsim

#define TILING_KEY_VAR (::ascsim::TilingKey())
#define TILING_KEY_IS(k) (TILING_KEY_VAR == uint64_t(k))
// Read from the text; CANN's compiler drops them too, so the type's name need not be a declared one.
#define KERNEL_TASK_TYPE(key, value)
#define KERNEL_TASK_TYPE_DEFAULT(value)
#define ENABLE_DETERMINISTIC()
#define ENABLE_PRINTF()
#define ENABLE_ASSERT()
#define ENABLE_PRINTF_DUMP_SIZE()
#define ENABLE_ASSERT_DUMP_SIZE()
