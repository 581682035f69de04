#pragma once
#include "graph/types.h"

namespace gert {

struct StorageFormat {
 public:
    StorageFormat() = default;
    StorageFormat(ge::Format origin, ge::Format storage) : origin_(origin), storage_(storage) {}
    ge::Format GetOriginFormat() const { return origin_; }
    ge::Format GetStorageFormat() const { return storage_; }
    void SetOriginFormat(ge::Format format) { origin_ = format; }
    void SetStorageFormat(ge::Format format) { storage_ = format; }
    bool operator==(const StorageFormat& o) const { return origin_ == o.origin_ && storage_ == o.storage_; }
    bool operator!=(const StorageFormat& o) const { return !(*this == o); }

 private:
    ge::Format origin_ = ge::FORMAT_ND;
    ge::Format storage_ = ge::FORMAT_ND;
};

}  // namespace gert
