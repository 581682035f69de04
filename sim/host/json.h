// Just enough JSON to write: objects and lists in the order given.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace hostsim {

inline std::string Quote(std::string_view text) {
    std::string out = "\"";
    for (char c : text) {
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            char code[8];
            std::snprintf(code, sizeof(code), "\\u%04x", c);
            out += code;
        } else {
            out += c;
        }
    }
    return out + "\"";
}

// Shortest text that reads back as the same float; OpDef defaults are single precision.
inline std::string Number(double value) {
    char text[32];
    for (int digits = 1; digits <= 9; ++digits) {
        std::snprintf(text, sizeof(text), "%.*g", digits, value);
        float back = 0;
        if (std::sscanf(text, "%f", &back) == 1 && back == static_cast<float>(value)) break;
    }
    std::string out = text;
    return out.find_first_of(".eni") == std::string::npos ? out + ".0" : out;
}
inline std::string Number(int64_t value) { return std::to_string(value); }
inline std::string Boolean(bool value) { return value ? "true" : "false"; }

class Object {
 public:
    Object& Add(std::string_view key, const std::string& json) {
        text_ += (text_.empty() ? "" : ", ") + Quote(key) + ": " + json;
        return *this;
    }
    std::string str() const { return "{" + text_ + "}"; }

 private:
    std::string text_;
};

inline std::string List(const std::vector<std::string>& items) {
    std::string text = "[";
    for (size_t i = 0; i < items.size(); ++i) text += (i == 0 ? "" : ", ") + items[i];
    return text + "]";
}

}  // namespace hostsim
