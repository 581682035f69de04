// Reads the JSON that the host library and the simulator core answer with.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace hybrid_ops {

// Numbers keep their text: a tiling key uses all 64 bits, which a double does not hold.
struct Json {
    std::string text;  // string, number, true, false or null
    std::vector<Json> items;
    std::vector<std::pair<std::string, Json>> fields;

    const Json& operator[](const std::string& key) const {
        static const Json kNone{"null", {}, {}};
        for (const auto& field : fields) {
            if (field.first == key) return field.second;
        }
        return kNone;
    }
    bool IsTrue() const { return text == "true"; }
    bool IsNull() const { return text == "null"; }
    uint64_t Unsigned() const { return std::strtoull(text.c_str(), nullptr, 10); }
    int64_t Signed() const { return std::strtoll(text.c_str(), nullptr, 10); }
};

class JsonReader {
 public:
    explicit JsonReader(const char* text) : at_(text) {}

    Json Read() {
        Skip();
        if (*at_ == '{') return Object();
        if (*at_ == '[') return Array();
        Json value;
        if (*at_ == '"') {
            value.text = String();
        } else {
            while (*at_ != '\0' && *at_ != ',' && *at_ != '}' && *at_ != ']' && !IsBlank(*at_)) {
                value.text += *at_++;
            }
        }
        return value;
    }

 private:
    static bool IsBlank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

    void Skip() {
        while (IsBlank(*at_)) ++at_;
    }

    void Expect(char wanted) {
        Skip();
        if (*at_ != wanted) throw std::runtime_error("hybrid_ops: a library answered text that is not JSON");
        ++at_;
    }

    // Whether another item follows; consumes the comma or the closing bracket.
    bool More(char close) {
        Skip();
        if (*at_ == ',') {
            ++at_;
            return true;
        }
        Expect(close);
        return false;
    }

    bool Empty(char close) {
        Skip();
        if (*at_ != close) return false;
        ++at_;
        return true;
    }

    Json Object() {
        Json value;
        Expect('{');
        if (Empty('}')) return value;
        do {
            Skip();
            std::string key = String();
            Expect(':');
            value.fields.emplace_back(std::move(key), Read());
        } while (More('}'));
        return value;
    }

    Json Array() {
        Json value;
        Expect('[');
        if (Empty(']')) return value;
        do {
            value.items.push_back(Read());
        } while (More(']'));
        return value;
    }

    std::string String() {
        Expect('"');
        std::string text;
        while (*at_ != '"') {
            if (*at_ == '\0') throw std::runtime_error("hybrid_ops: a library answered JSON that ends early");
            if (*at_ != '\\') {
                text += *at_++;
                continue;
            }
            const char kind = *++at_;
            ++at_;
            if (kind == 'u') {  // the writers escape control characters only
                const std::string digits(at_, 4);
                text += static_cast<char>(std::strtoul(digits.c_str(), nullptr, 16));
                at_ += 4;
            } else {
                text += kind == 'n' ? '\n' : kind == 't' ? '\t' : kind == 'r' ? '\r' : kind;
            }
        }
        ++at_;
        return text;
    }

    const char* at_;
};

}  // namespace hybrid_ops
