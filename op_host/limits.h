// Evaluates the limits of a contract: Python expressions over axis letters with whole numbers, + - * // %,
// (chained) comparisons, and, or, not, parentheses. Division and remainder round down as in Python.
#pragma once
#include <cctype>
#include <cstdint>
#include <string>
#include <vector>

#include "axes.h"

namespace hybrid_ops {

class Limit {
 public:
    Limit(const char* rule, const Axes& axes) : rule_(rule), axes_(axes) {
        value_ = Or();
        Skip();
        if (at_ != rule_.size()) malformed_ = true;
    }
    // Axis letters in order of appearance.
    const std::vector<std::string>& letters() const { return letters_; }
    bool malformed() const { return malformed_; }
    // False when a letter is unbound: its argument is absent and the limit says nothing.
    bool applies() const {
        for (const std::string& letter : letters_) {
            if (!axes_.Has(letter)) return false;
        }
        return true;
    }
    bool holds() const { return value_ != 0; }

 private:
    void Skip() {
        while (at_ < rule_.size() && rule_[at_] == ' ') ++at_;
    }
    bool Take(const char* token) {
        Skip();
        const std::string text = token;
        if (rule_.compare(at_, text.size(), text) != 0) return false;
        const bool word = std::isalpha(static_cast<unsigned char>(text[0])) != 0;
        const size_t end = at_ + text.size();
        if (word && end < rule_.size() &&
            (std::isalnum(static_cast<unsigned char>(rule_[end])) || rule_[end] == '_')) {
            return false;
        }
        at_ = end;
        return true;
    }
    int64_t Or() {
        int64_t value = And();
        while (Take("or")) value = static_cast<int64_t>(And() != 0) | static_cast<int64_t>(value != 0);
        return value;
    }
    int64_t And() {
        int64_t value = Not();
        while (Take("and")) value = static_cast<int64_t>(Not() != 0) & static_cast<int64_t>(value != 0);
        return value;
    }
    int64_t Not() { return Take("not") ? static_cast<int64_t>(Not() == 0) : Comparison(); }
    int64_t Comparison() {
        int64_t left = Sum();
        bool compared = false, result = true;
        while (true) {
            int64_t right = 0;
            if (Take("<=")) {
                right = Sum();
                result = result && left <= right;
            } else if (Take(">=")) {
                right = Sum();
                result = result && left >= right;
            } else if (Take("==")) {
                right = Sum();
                result = result && left == right;
            } else if (Take("!=")) {
                right = Sum();
                result = result && left != right;
            } else if (Take("<")) {
                right = Sum();
                result = result && left < right;
            } else if (Take(">")) {
                right = Sum();
                result = result && left > right;
            } else {
                return compared ? static_cast<int64_t>(result) : left;
            }
            compared = true;
            left = right;
        }
    }
    int64_t Sum() {
        int64_t value = Product();
        while (true) {
            if (Take("+")) {
                value += Product();
            } else if (Take("-")) {
                value -= Product();
            } else {
                return value;
            }
        }
    }
    int64_t Product() {
        int64_t value = Atom();
        while (true) {
            if (Take("//")) {
                value = Divide(value, Atom()).quotient;
            } else if (Take("%")) {
                value = Divide(value, Atom()).remainder;
            } else if (Take("*")) {
                value *= Atom();
            } else {
                return value;
            }
        }
    }
    struct Division {
        int64_t quotient;
        int64_t remainder;
    };
    Division Divide(int64_t a, int64_t b) const {
        if (b == 0) return {0, a};  // x % 0 is x: such a limit is broken, not the process
        Division result{a / b, a % b};
        if (result.remainder != 0 && (result.remainder < 0) != (b < 0)) {
            --result.quotient;
            result.remainder += b;
        }
        return result;
    }
    int64_t Atom() {
        if (Take("(")) {
            const int64_t value = Or();
            if (!Take(")")) malformed_ = true;
            return value;
        }
        if (Take("-")) return -Atom();
        Skip();
        const size_t begin = at_;
        while (at_ < rule_.size() &&
               (std::isalnum(static_cast<unsigned char>(rule_[at_])) || rule_[at_] == '_'))
            ++at_;
        const std::string token = rule_.substr(begin, at_ - begin);
        if (token.empty()) {
            malformed_ = true;
            at_ = rule_.size();
            return 0;
        }
        if (std::isdigit(static_cast<unsigned char>(token[0]))) return std::stoll(token);
        bool seen = false;
        for (const std::string& letter : letters_) seen = seen || letter == token;
        if (!seen) letters_.push_back(token);
        return axes_.Size(token);
    }

    std::string rule_;
    const Axes& axes_;
    size_t at_ = 0;
    int64_t value_ = 0;
    bool malformed_ = false;
    std::vector<std::string> letters_;
};

}  // namespace hybrid_ops
