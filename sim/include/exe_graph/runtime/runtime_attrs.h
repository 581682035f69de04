// Attribute values in the order of the OpDef; an attribute of the wrong type or an index past the end is
// nullptr.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "exe_graph/runtime/continuous_vector.h"

namespace gert {

class RuntimeAttrs {
 public:
    template <typename T>
    const T* GetAttrPointer(size_t index) const {
        return index < values_.size() ? static_cast<const T*>(values_[index].get()) : nullptr;
    }
    const int64_t* GetInt(size_t index) const { return GetAttrPointer<int64_t>(index); }
    const float* GetFloat(size_t index) const { return GetAttrPointer<float>(index); }
    const bool* GetBool(size_t index) const { return GetAttrPointer<bool>(index); }
    const char* GetStr(size_t index) const { return GetAttrPointer<char>(index); }
    const TypedContinuousVector<int64_t>* GetListInt(size_t index) const {
        return GetAttrPointer<TypedContinuousVector<int64_t>>(index);
    }
    const TypedContinuousVector<float>* GetListFloat(size_t index) const {
        return GetAttrPointer<TypedContinuousVector<float>>(index);
    }
    size_t GetAttrNum() const { return values_.size(); }

    // Not in CANN: how the host simulator fills the list.
    template <typename T>
    void Append(const T& value) {
        if constexpr (std::is_same_v<T, std::string>) {
            auto text = std::make_shared<std::string>(value);
            values_.emplace_back(text, text->data());
        } else {
            values_.push_back(std::make_shared<T>(value));
        }
    }
    template <typename T>
    void AppendList(const std::vector<T>& values) {
        values_.push_back(std::make_shared<TypedContinuousVector<T>>(values));
    }

 private:
    std::vector<std::shared_ptr<const void>> values_;
};

}  // namespace gert
