// Flattened SoC description: lines "section.key = value", '#' starts a comment.
#pragma once
#include <map>
#include <string>
#include <string_view>

namespace ascsim {

class ConfigText {
 public:
    explicit ConfigText(std::string_view text = {});
    double Number(std::string_view key, double fallback) const;
    std::string Text(std::string_view key, std::string_view fallback) const;
    bool Has(std::string_view key) const { return values_.find(key) != values_.end(); }
    const std::map<std::string, std::string, std::less<>>& values() const { return values_; }

 private:
    std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace ascsim
