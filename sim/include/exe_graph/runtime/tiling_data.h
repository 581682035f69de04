// Buffer for the tiling bytes that travel to the kernel.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "graph/ge_error_codes.h"

namespace gert {

class TilingData {
 public:
    // CANN reuses such buffers between calls, so bytes that tiling forgets are not zero there; nor here.
    static constexpr uint8_t kPoison = 0xA5;

    explicit TilingData(size_t capacity) : bytes_(capacity, kPoison) {}
    size_t GetCapacity() const { return bytes_.size(); }
    size_t GetDataSize() const { return size_; }
    void SetDataSize(size_t size) { size_ = size; }
    void* GetData() { return bytes_.data(); }
    const void* GetData() const { return bytes_.data(); }
    void* Expand(size_t size) {
        if (size > bytes_.size() - size_) return nullptr;
        void* begin = bytes_.data() + size_;
        size_ += size;
        return begin;
    }
    template <typename T, std::enable_if_t<std::is_standard_layout_v<T>, int> = 0>
    ge::graphStatus Append(const T& data) {
        return Append(&data, 1);
    }
    template <typename T, std::enable_if_t<std::is_standard_layout_v<T>, int> = 0>
    ge::graphStatus Append(const T* data, size_t count) {
        void* place = Expand(sizeof(T) * count);
        if (place == nullptr) return ge::GRAPH_FAILED;
        std::memcpy(place, data, sizeof(T) * count);
        return ge::GRAPH_SUCCESS;
    }

 private:
    std::vector<uint8_t> bytes_;
    size_t size_ = 0;
};

}  // namespace gert
