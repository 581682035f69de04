// Shape as the user sees it (origin) and as memory holds it (storage); equal for ND.
#pragma once
#include "exe_graph/runtime/shape.h"

namespace gert {

struct StorageShape {
 public:
    StorageShape() = default;
    StorageShape(const std::initializer_list<int64_t>& origin, const std::initializer_list<int64_t>& storage)
        : origin_(origin), storage_(storage) {}
    const Shape& GetOriginShape() const { return origin_; }
    const Shape& GetStorageShape() const { return storage_; }
    Shape& MutableOriginShape() { return origin_; }
    Shape& MutableStorageShape() { return storage_; }
    bool operator==(const StorageShape& o) const { return origin_ == o.origin_ && storage_ == o.storage_; }
    bool operator!=(const StorageShape& o) const { return !(*this == o); }

 private:
    Shape origin_;
    Shape storage_;
};

}  // namespace gert
