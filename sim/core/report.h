// Hazards of one launch, grouped by root cause.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "core/engine.h"
#include "core/json.h"

namespace ascsim {

struct SourceSite {
    const char* api = "";
    const char* file = "";
    uint32_t line = 0;
};

struct Hazard {
    std::string rule;
    Severity severity = Severity::Error;
    SourceSite site;
    std::string pipe;
    std::string tensor;
    uint64_t begin = 0, end = 0;
    uint32_t core = 0;
    bool has_other = false;
    SourceSite other;
    std::string other_pipe;
    std::string message;
    uint64_t count = 1;
};

class Reporter {
 public:
    // Same rule, call sites and tensor: counted, not repeated.
    void Add(Hazard hazard);
    bool HasError() const { return errors_ > 0; }
    void Write(Json& out) const;

 private:
    using Key = std::tuple<std::string, const char*, uint32_t, const char*, uint32_t, std::string>;
    std::map<Key, size_t> index_;
    std::vector<Hazard> hazards_;
    uint64_t errors_ = 0;
};

}  // namespace ascsim
