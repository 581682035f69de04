// Minimal JSON text builder: the caller keeps braces balanced, the builder places commas and escapes.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace ascsim {

class Json {
 public:
    Json& Open(char brace) {
        Comma();
        text_ += brace;
        first_ = true;
        return *this;
    }
    Json& Close(char brace) {
        text_ += brace;
        first_ = false;
        return *this;
    }
    Json& Key(std::string_view k) {
        Comma();
        Quote(k);
        text_ += ':';
        first_ = true;
        return *this;
    }
    Json& Str(std::string_view v) {
        Comma();
        Quote(v);
        return *this;
    }
    Json& Int(int64_t v) {
        Comma();
        text_ += std::to_string(v);
        return *this;
    }
    Json& Bool(bool v) {
        Comma();
        text_ += v ? "true" : "false";
        return *this;
    }
    Json& Null() {
        Comma();
        text_ += "null";
        return *this;
    }
    Json& Raw(std::string_view v) {
        Comma();
        text_ += v;
        return *this;
    }
    Json& Num(double v) {
        if (!std::isfinite(v)) return Null();
        char buffer[32];
        std::snprintf(buffer, sizeof buffer, "%.9g", v);
        return Raw(buffer);
    }
    const std::string& text() const { return text_; }

 private:
    void Comma() {
        if (!first_) text_ += ',';
        first_ = false;
    }
    void Quote(std::string_view v) {
        text_ += '"';
        for (unsigned char c : v) {
            if (c == '"' || c == '\\')
                (text_ += '\\') += char(c);
            else if (c == '\n')
                text_ += "\\n";
            else if (c < 0x20) {
                char buffer[8];
                std::snprintf(buffer, sizeof buffer, "\\u%04x", c);
                text_ += buffer;
            } else
                text_ += char(c);
        }
        text_ += '"';
    }
    std::string text_;
    bool first_ = true;
};

}  // namespace ascsim
