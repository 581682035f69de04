// gert::Tensor: shape, format, dtype and, for value-dependent inputs only, an address on the host.
#pragma once
#include "exe_graph/runtime/storage_format.h"
#include "exe_graph/runtime/storage_shape.h"
#include "graph/ge_error_codes.h"

namespace gert {

class Tensor {
 public:
    Tensor() = default;
    Tensor(const StorageShape& shape, const StorageFormat& format, ge::DataType type, void* address = nullptr)
        : shape_(shape), format_(format), type_(type), address_(address) {}
    int64_t GetShapeSize() const { return shape_.GetStorageShape().GetShapeSize(); }
    template <class T>
    const T* GetData() const {
        return static_cast<const T*>(address_);
    }
    const void* GetAddr() const { return address_; }
    size_t GetSize() const {
        const int64_t elements = GetShapeSize();
        return elements < 0 ? 0 : static_cast<size_t>(elements) * ge::GetSizeByDataType(type_);
    }
    ge::DataType GetDataType() const { return type_; }
    const Shape& GetStorageShape() const { return shape_.GetStorageShape(); }
    const Shape& GetOriginShape() const { return shape_.GetOriginShape(); }
    const StorageShape& GetShape() const { return shape_; }
    StorageShape& GetShape() { return shape_; }
    ge::Format GetStorageFormat() const { return format_.GetStorageFormat(); }
    ge::Format GetOriginFormat() const { return format_.GetOriginFormat(); }
    const StorageFormat& GetFormat() const { return format_; }

 private:
    StorageShape shape_;
    StorageFormat format_;
    ge::DataType type_ = ge::DT_UNDEFINED;
    void* address_ = nullptr;
};

}  // namespace gert
