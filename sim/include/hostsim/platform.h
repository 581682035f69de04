// The configuration behind fe::PlatFormInfos: lines "section.key = value" of a flattened sim/soc/<soc>.toml.
#pragma once
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>

namespace fe {

class PlatFormInfos {
 public:
    // Throws std::invalid_argument for a line that is not "key = value".
    PlatFormInfos(std::string soc, const std::string& config);
    const std::string& soc() const { return soc_; }
    // Throws std::out_of_range naming the key when the configuration lacks it.
    double Figure(const std::string& key) const;
    uint64_t Size(const std::string& key) const { return static_cast<uint64_t>(Figure(key)); }

 private:
    std::string soc_;
    std::map<std::string, std::string> values_;
};

}  // namespace fe
