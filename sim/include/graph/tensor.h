// ge::Shape as far as host sources of custom operators meet it; the contexts use gert::Shape.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "graph/ge_error_codes.h"
#include "graph/types.h"

namespace ge {

class Shape {
 public:
    Shape() = default;
    explicit Shape(std::vector<int64_t> dims) : dims_(std::move(dims)) {}
    size_t GetDimNum() const { return dims_.size(); }
    int64_t GetDim(size_t index) const { return index < dims_.size() ? dims_[index] : 0; }
    graphStatus SetDim(size_t index, int64_t size) {
        if (index >= dims_.size()) return GRAPH_FAILED;
        dims_[index] = size;
        return GRAPH_SUCCESS;
    }
    std::vector<int64_t> GetDims() const { return dims_; }
    // Elements; -1 when a dimension is unknown, 0 for rank 0 as CANN counts it.
    int64_t GetShapeSize() const {
        if (dims_.empty()) return 0;
        int64_t size = 1;
        for (int64_t dim : dims_) {
            if (dim < 0) return -1;
            size *= dim;
        }
        return size;
    }

 private:
    std::vector<int64_t> dims_;
};

}  // namespace ge
