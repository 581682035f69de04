#include "core/config.h"

#include <cstdlib>

namespace ascsim {
namespace {

std::string_view Trim(std::string_view s) {
    const auto b = s.find_first_not_of(" \t\r\"");
    if (b == std::string_view::npos) return {};
    return s.substr(b, s.find_last_not_of(" \t\r\"") - b + 1);
}

}  // namespace

ConfigText::ConfigText(std::string_view text) {
    while (!text.empty()) {
        const auto eol = text.find('\n');
        std::string_view line = text.substr(0, eol);
        text = eol == std::string_view::npos ? std::string_view{} : text.substr(eol + 1);
        if (const auto hash = line.find('#'); hash != std::string_view::npos) line = line.substr(0, hash);
        const auto eq = line.find('=');
        if (eq == std::string_view::npos) continue;
        values_[std::string(Trim(line.substr(0, eq)))] = std::string(Trim(line.substr(eq + 1)));
    }
}

double ConfigText::Number(std::string_view key, double fallback) const {
    const auto it = values_.find(key);
    if (it == values_.end()) return fallback;
    if (it->second == "true") return 1;
    if (it->second == "false") return 0;
    char* end = nullptr;
    const double v = std::strtod(it->second.c_str(), &end);
    return end == it->second.c_str() ? fallback : v;
}

std::string ConfigText::Text(std::string_view key, std::string_view fallback) const {
    const auto it = values_.find(key);
    return std::string(it == values_.end() ? fallback : std::string_view(it->second));
}

}  // namespace ascsim
