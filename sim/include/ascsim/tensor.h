// LocalTensor and GlobalTensor: fat pointers that know their allocation, and the Access builders on them.
#pragma once
#include <algorithm>

#include "ascsim/types.h"

namespace AscendC {

using ascsim::Loc;

// FreeTensor call that gave this buffer back to its queue; null while it is in use, and for buffers of no
// queue.
const Loc* GivenBack(TBufHandle buffer);

// Reference to one element that is read or written by the scalar unit, so that both are seen as S operations.
template <typename Tensor, typename T>
class ScalarRef {
 public:
    ScalarRef(const Tensor& tensor, uint64_t index, Loc loc) : tensor_(tensor), index_(index), loc_(loc) {}
    operator T() const { return tensor_.GetValue(index_, loc_); }
    template <typename U>
    const ScalarRef& operator=(const U& v) const {
        tensor_.SetValue(index_, static_cast<T>(v), loc_);
        return *this;
    }
    const ScalarRef& operator=(const ScalarRef& v) const { return *this = static_cast<T>(v); }
    template <typename U>
    const ScalarRef& operator+=(const U& v) const {
        return *this = static_cast<T>(T(*this) + v);
    }
    template <typename U>
    const ScalarRef& operator-=(const U& v) const {
        return *this = static_cast<T>(T(*this) - v);
    }
    template <typename U>
    const ScalarRef& operator*=(const U& v) const {
        return *this = static_cast<T>(T(*this) * v);
    }

 private:
    Tensor tensor_;
    uint64_t index_;
    Loc loc_;
};

constexpr uint32_t K_MAX_SHAPE_DIM = 8;
enum class DataFormat : uint8_t { ND = 0, NZ, NCHW, NC1HWC0, NHWC, NCDHW, NDC1HWC0, FRACTAL_Z_3D };
struct ShapeInfo {
    ShapeInfo() = default;
    ShapeInfo(uint8_t dims, const uint32_t in[], uint8_t original_dims, const uint32_t original[],
              DataFormat format)
        : shapeDim(dims), originalShapeDim(original_dims), dataFormat(format) {
        std::copy_n(in, std::min<uint32_t>(dims, K_MAX_SHAPE_DIM), shape);
        std::copy_n(original, std::min<uint32_t>(original_dims, K_MAX_SHAPE_DIM), originalShape);
    }
    ShapeInfo(uint8_t dims, const uint32_t in[], DataFormat format = DataFormat::ND)
        : ShapeInfo(dims, in, dims, in, format) {}
    uint8_t shapeDim = 0;
    uint8_t originalShapeDim = 0;
    uint32_t shape[K_MAX_SHAPE_DIM] = {};
    uint32_t originalShape[K_MAX_SHAPE_DIM] = {};
    DataFormat dataFormat = DataFormat::ND;
};

template <typename T>
class LocalTensor {
 public:
    using PrimType = T;
    LocalTensor() = default;
    // Static allocation: `addr` and `bytes_len` in bytes of the memory behind `position`; length in elements.
    LocalTensor(TPosition position, uint32_t addr, uint32_t elements) {
        address_.logicPos = uint8_t(position);
        address_.bufferAddr = addr;
        address_.dataLen = uint32_t(BytesOf<T>(elements));
        alloc_begin_ = addr;
        alloc_end_ = addr + address_.dataLen;
    }

    // What the engine and the API headers use.
    ascsim::Mem mem() const { return MemOf(TPosition(address_.logicPos)); }
    uint64_t offset() const { return address_.bufferAddr; }  // bytes
    T* Ptr() const { return reinterpret_cast<T*>(ascsim::Local(mem(), address_.bufferAddr)); }
    uint64_t limit() const {
        return std::min<uint64_t>(uint64_t(address_.bufferAddr) + address_.dataLen, alloc_end_);
    }
    void BindAllocation(uint32_t begin, uint32_t end) {
        alloc_begin_ = begin;
        alloc_end_ = end;
    }
    uint32_t alloc_begin() const { return alloc_begin_; }
    uint32_t alloc_end() const { return alloc_end_; }

    T* GetPhyAddr() const { return Ptr(); }
    T* GetPhyAddr(uint32_t offset) const { return Ptr() + offset; }
    T GetValue(uint32_t index, Loc loc = Loc::Here()) const;
    template <typename U>
    void SetValue(uint32_t index, U value, Loc loc = Loc::Here()) const;
    ScalarRef<LocalTensor, T> operator()(uint32_t index, Loc loc = Loc::Here()) const {
        return {*this, index, loc};
    }

    // dst = src0 - src1 and its like (ascsim/operators.h): the expression computes into this tensor.
    template <typename Expression>
        requires requires { typename Expression::WholeTensor; }
    void operator=(const Expression& e) {
        e.Assign(*this);
    }

    LocalTensor operator[](uint32_t elements) const {
        LocalTensor r = *this;
        const uint32_t bytes = uint32_t(BytesOf<T>(elements));
        r.address_.bufferAddr += bytes;
        r.address_.dataLen -= std::min(bytes, address_.dataLen);
        return r;
    }
    template <typename U>
    LocalTensor<U> ReinterpretCast() const {
        LocalTensor<U> r;
        r.address_ = address_;
        r.BindAllocation(alloc_begin_, alloc_end_);
        return r;
    }
    // Moves this tensor to `src` plus `offset` elements of src.
    template <typename U>
    void SetAddrWithOffset(LocalTensor<U>& src, uint32_t offset) {
        address_ = src.address_;
        address_.bufferAddr += uint32_t(BytesOf<U>(offset));
        address_.dataLen -= std::min(uint32_t(BytesOf<U>(offset)), address_.dataLen);
        BindAllocation(src.alloc_begin(), src.alloc_end());
    }
    void SetAddr(const TBuffAddr& a) {
        address_ = a;
        BindAllocation(a.bufferAddr, a.bufferAddr + a.dataLen);
    }
    // Legacy manual placement: byte offset and element count in the memory of the current logicPos.
    void InitBuffer(uint32_t buffer_offset, uint32_t elements) {
        address_.bufferAddr = buffer_offset;
        address_.dataLen = uint32_t(BytesOf<T>(elements));
        BindAllocation(buffer_offset, buffer_offset + address_.dataLen);
    }
    TBufHandle GetBufferHandle() const { return address_.bufferHandle; }
    int32_t GetPosition() const { return address_.logicPos; }
    void SetSize(uint32_t elements) { address_.dataLen = uint32_t(BytesOf<T>(elements)); }
    uint32_t GetSize() const {
        if constexpr (std::is_same_v<T, int4b_t>)
            return address_.dataLen * 2;
        else
            return address_.dataLen / sizeof(T);
    }
    uint32_t GetLength() const { return address_.dataLen; }
    void SetBufferLen(uint32_t bytes) { address_.dataLen = bytes; }
    void SetUserTag(TTagType tag) { tag_ = tag; }
    TTagType GetUserTag() const { return tag_; }
    void SetShapeInfo(const ShapeInfo& s) { shapeInfo_ = s; }
    ShapeInfo GetShapeInfo() const { return shapeInfo_; }

    TBuffAddr address_;
    ShapeInfo shapeInfo_;

 private:
    uint32_t alloc_begin_ = 0;
    uint32_t alloc_end_ = 0;
    TTagType tag_ = 0;
};

enum class CacheMode {
    CACHE_MODE_DISABLE = 0,
    CACHE_MODE_NORMAL = 1,
    CACHE_MODE_LAST = 2,
    CACHE_MODE_PERSISTENT = 4
};
enum class CacheRwMode { READ = 1, WRITE = 2, RW = 3 };

template <typename T>
class GlobalTensor {
 public:
    using PrimType = T;
    GlobalTensor() = default;
    void SetGlobalBuffer(__gm__ T* buffer, uint64_t elements) {
        address_ = oriAddress_ = buffer;
        bufferSize_ = elements;
        end_ = buffer + elements;
    }
    void SetGlobalBuffer(__gm__ T* buffer) {
        address_ = oriAddress_ = buffer;
        bufferSize_ = 0;
        end_ = nullptr;
    }
    T* Ptr() const { return address_; }
    const __gm__ T* GetPhyAddr() const { return address_; }
    __gm__ T* GetPhyAddr(uint64_t offset) const { return address_ + offset; }
    T GetValue(uint64_t index, Loc loc = Loc::Here()) const;
    void SetValue(uint64_t index, T value, Loc loc = Loc::Here()) const;
    ScalarRef<GlobalTensor, T> operator()(uint64_t index, Loc loc = Loc::Here()) const {
        return {*this, index, loc};
    }
    GlobalTensor operator[](uint64_t elements) const {
        GlobalTensor r = *this;
        r.address_ = reinterpret_cast<T*>(reinterpret_cast<uint8_t*>(address_) + BytesOf<T>(elements));
        return r;
    }
    void SetAddr(uint64_t elements) {
        address_ += elements;
        oriAddress_ += elements;
    }
    uint64_t GetSize() const { return bufferSize_; }
    void SetShapeInfo(const ShapeInfo& s) { shapeInfo_ = s; }
    ShapeInfo GetShapeInfo() const { return shapeInfo_; }
    template <CacheRwMode mode = CacheRwMode::RW>
    void SetL2CacheHint(CacheMode cache) {
        cacheMode_ = cache;
    }
    const T* end() const { return end_; }

    __gm__ T* address_ = nullptr;
    __gm__ T* oriAddress_ = nullptr;
    uint64_t bufferSize_ = 0;
    ShapeInfo shapeInfo_;
    CacheMode cacheMode_ = CacheMode::CACHE_MODE_NORMAL;

 private:
    const T* end_ = nullptr;  // one past the last declared element; null = not declared
};

}  // namespace AscendC

namespace ascsim {

// Strided footprint in bytes, see Access: repeats x blocks x block_bytes.
struct Shape {
    uint32_t block_bytes = 0;
    uint32_t blocks = 1;
    uint64_t block_stride = 0;
    uint32_t repeats = 1;
    uint64_t repeat_stride = 0;
};

// Access of an operand of an API: `shape` starts at the tensor's first byte.
template <typename T>
Access Operand(const AscendC::LocalTensor<T>& t, bool write, const char* operand, const Shape& shape) {
    Access a;
    a.mem = t.mem();
    a.write = write;
    a.base = t.offset();
    a.block_bytes = shape.block_bytes;
    a.blocks = shape.blocks;
    a.block_stride = shape.block_stride;
    a.repeats = shape.repeats;
    a.repeat_stride = shape.repeat_stride;
    const uint64_t end = t.limit();
    // An empty extent must not read as "unknown" (0): any access then fails.
    a.tensor_base = end > a.base ? a.base : ~0ull - 1;
    a.tensor_bytes = end > a.base ? end - a.base : 1;
    a.operand = operand;
    a.freed = AscendC::GivenBack(t.GetBufferHandle());
    return a;
}
// Contiguous access of `bytes` bytes.
template <typename T>
Access Operand(const AscendC::LocalTensor<T>& t, bool write, const char* operand, uint64_t bytes) {
    return Operand(t, write, operand, Shape{uint32_t(bytes)});
}
// GM access; bounds come from the launch's argument map.
template <typename T>
Access Operand(const AscendC::GlobalTensor<T>& t, bool write, const char* operand, const Shape& shape) {
    Access a;
    a.mem = Mem::GM;
    a.write = write;
    a.base = reinterpret_cast<uint64_t>(t.Ptr());
    a.block_bytes = shape.block_bytes;
    a.blocks = shape.blocks;
    a.block_stride = shape.block_stride;
    a.repeats = shape.repeats;
    a.repeat_stride = shape.repeat_stride;
    if (t.end()) {
        a.tensor_base = a.base;
        const uint64_t end = reinterpret_cast<uint64_t>(t.end());
        a.tensor_bytes = end > a.base ? end - a.base : 1;
    }
    a.operand = operand;
    return a;
}
template <typename T>
Access Operand(const AscendC::GlobalTensor<T>& t, bool write, const char* operand, uint64_t bytes) {
    return Operand(t, write, operand, Shape{uint32_t(bytes)});
}

}  // namespace ascsim

namespace AscendC {

template <typename T>
T LocalTensor<T>::GetValue(uint32_t index, Loc loc) const {
    ascsim::Op op;
    op.name = "GetValue";
    op.kind = ascsim::OpKind::Scalar;
    op.work.cost = "Scalar.ub_get";
    op.loc = loc;
    op.Add(ascsim::Operand((*this)[index], false, "tensor", sizeof(T)));
    ascsim::Issue(op);
    return Ptr()[index];
}

template <typename T>
template <typename U>
void LocalTensor<T>::SetValue(uint32_t index, U value, Loc loc) const {
    ascsim::Op op;
    op.name = "SetValue";
    op.kind = ascsim::OpKind::Scalar;
    op.work.cost = "Scalar.ub_set";
    op.loc = loc;
    op.Add(ascsim::Operand((*this)[index], true, "tensor", sizeof(T)));
    ascsim::Issue(op);
    Ptr()[index] = static_cast<T>(value);
}

template <typename T>
T GlobalTensor<T>::GetValue(uint64_t index, Loc loc) const {
    ascsim::Op op;
    op.name = "GetValue";
    op.kind = ascsim::OpKind::Scalar;
    op.work.cost = "Scalar.gm_get";
    op.loc = loc;
    op.Add(ascsim::Operand((*this)[index], false, "tensor", sizeof(T)));
    ascsim::Issue(op);
    return address_[index];
}

template <typename T>
void GlobalTensor<T>::SetValue(uint64_t index, T value, Loc loc) const {
    ascsim::Op op;
    op.name = "SetValue";
    op.kind = ascsim::OpKind::Scalar;
    op.work.cost = "Scalar.gm_set";
    op.loc = loc;
    op.Add(ascsim::Operand((*this)[index], true, "tensor", sizeof(T)));
    ascsim::Issue(op);
    address_[index] = value;
}

}  // namespace AscendC
