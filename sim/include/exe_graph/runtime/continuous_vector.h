// Fixed-capacity vectors that CANN hands to host functions (list attributes, workspace sizes).
#pragma once
#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "graph/ge_error_codes.h"

namespace gert {

template <typename T>
class TypedContinuousVector {
 public:
    explicit TypedContinuousVector(size_t capacity = 0)
        : capacity_(capacity), data_(std::make_unique<T[]>(capacity)) {}
    explicit TypedContinuousVector(const std::vector<T>& values) : TypedContinuousVector(values.size()) {
        std::copy(values.begin(), values.end(), data_.get());
        size_ = values.size();
    }
    size_t GetSize() const { return size_; }
    size_t GetCapacity() const { return capacity_; }
    ge::graphStatus SetSize(size_t size) {
        if (size > capacity_) return ge::GRAPH_PARAM_OUT_OF_RANGE;
        size_ = size;
        return ge::GRAPH_SUCCESS;
    }
    const T* GetData() const { return data_.get(); }
    T* MutableData() { return data_.get(); }

 private:
    size_t capacity_ = 0;
    size_t size_ = 0;
    std::unique_ptr<T[]> data_;
};

}  // namespace gert
