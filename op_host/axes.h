// Axis rules: words separated by blanks ("T NV DK"), alternatives by " | " and told apart by rank. A word is
// an axis letter, a number, or an axis with +n or *n. The first use of an axis binds it, later uses must
// agree. Words of outputs may also be products of two axes ("T*K"), and name attributes that are whole
// numbers.
#pragma once
#include <cctype>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "refusal.h"

namespace hybrid_ops {

constexpr int64_t kUnknown = -1;  // a dimension that shape inference does not know yet

// Parts between separators, without blanks at their ends; empty parts are dropped.
inline std::vector<std::string> Split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    std::string part;
    auto flush = [&] {
        while (!part.empty() && part.back() == ' ') part.pop_back();
        if (!part.empty()) parts.push_back(part);
        part.clear();
    };
    for (char c : text) {
        if (c == separator) {
            flush();
        } else if (c != ' ' || !part.empty()) {
            part += c;
        }
    }
    flush();
    return parts;
}

struct Word {
    std::string text;
    std::string axis;    // empty: a plain number
    std::string factor;  // the other axis of a product
    char sign = '+';
    int64_t figure = 0;

    explicit Word(const std::string& word) : text(word) {
        if (std::isdigit(static_cast<unsigned char>(word[0]))) {
            figure = std::stoll(word);
            return;
        }
        const size_t end = word.find_first_of("+*");
        axis = word.substr(0, end);
        if (end != std::string::npos) {
            sign = word[end];
            const bool number = std::isdigit(static_cast<unsigned char>(word[end + 1]));
            number ? void(figure = std::stoll(word.substr(end + 1))) : void(factor = word.substr(end + 1));
        }
    }
    int64_t SizeFor(int64_t bound) const {
        if (axis.empty()) return figure;
        return sign == '*' ? bound * figure : bound + figure;
    }
    // The axis that gives this size; false when no whole number does.
    bool Solve(int64_t size, int64_t* bound) const {
        if (sign == '*' && (figure == 0 || size % figure != 0)) return false;
        *bound = sign == '*' ? size / figure : size - figure;
        return true;
    }
};

using Rule = std::vector<Word>;

inline std::vector<Rule> ParseRules(std::string_view axes) {
    std::vector<Rule> rules;
    for (const std::string& rule : Split(axes, '|')) {
        Rule& words = rules.emplace_back();
        for (const std::string& word : Split(rule, ' ')) words.emplace_back(word);
    }
    return rules;
}

// "[T, NV] or [T, NV, DK]"
inline std::string RuleText(const std::vector<Rule>& rules) {
    std::string text;
    for (const Rule& rule : rules) {
        text += text.empty() ? "[" : " or [";
        for (size_t i = 0; i < rule.size(); ++i) text += (i == 0 ? "" : ", ") + rule[i].text;
        text += "]";
    }
    return text;
}

// Sizes of axes. Names are views of rules, which live as long as the process.
class Axes {
 public:
    bool Has(std::string_view axis) const { return Find(axis) != nullptr; }
    // Size of an axis; `absent` for one that only an absent optional argument would bind.
    int64_t Size(std::string_view axis, int64_t absent = 0) const {
        const Bound* bound = Find(axis);
        return bound == nullptr ? absent : bound->size;
    }

    // Binds the axes of one argument. False: `fault` says what does not fit.
    bool Bind(const char* argument, const std::vector<Rule>& rules, const std::vector<int64_t>& shape,
              Fault* fault) {
        for (const Rule& rule : rules) {
            if (rule.size() == shape.size()) return BindRule(argument, rule, shape, fault);
        }
        *fault = {argument, "wrong rank",
                  "rank " + std::to_string(shape.size()) + " (shape " + ShapeText(shape) + ")",
                  RuleText(rules), ""};
        return false;
    }

    // A value that is no axis, for limits to name: an attribute, or 1 for a given input.
    void Set(std::string_view name, int64_t value) { bound_.push_back({name, value, ""}); }

    // Shape that a rule stands for; an unbound axis gives kUnknown.
    std::vector<int64_t> Shape(const Rule& rule) const {
        std::vector<int64_t> shape;
        for (const Word& word : rule) {
            const Bound* bound = Find(word.axis);
            const Bound* factor = Find(word.factor);
            if (!word.factor.empty()) {
                const bool known = bound != nullptr && factor != nullptr;
                shape.push_back(known ? bound->size * factor->size : kUnknown);
                continue;
            }
            const bool known = word.axis.empty() || bound != nullptr;
            shape.push_back(known ? word.SizeFor(bound == nullptr ? 0 : bound->size) : kUnknown);
        }
        return shape;
    }

 private:
    struct Bound {
        std::string_view axis;
        int64_t size;
        const char* argument;  // that bound it
    };

    const Bound* Find(std::string_view axis) const {
        for (const Bound& bound : bound_) {
            if (bound.axis == axis) return &bound;
        }
        return nullptr;
    }

    bool BindRule(const char* argument, const Rule& rule, const std::vector<int64_t>& shape, Fault* fault) {
        for (size_t i = 0; i < rule.size(); ++i) {
            const Word& word = rule[i];
            if (shape[i] == kUnknown) continue;
            const Bound* bound = Find(word.axis);
            int64_t solved = 0;
            if (!word.axis.empty() && bound == nullptr && word.Solve(shape[i], &solved)) {
                bound_.push_back({word.axis, solved, argument});
                continue;
            }
            const bool known = word.axis.empty() || bound != nullptr;
            const int64_t wanted = known ? word.SizeFor(bound == nullptr ? 0 : bound->size) : 0;
            if (known && wanted == shape[i]) continue;
            const std::string& text = word.text;
            fault->argument = argument;
            fault->wrong = bound == nullptr
                               ? "axis " + text + " is wrong"
                               : "axis " + text + " differs from " + text + " of " + bound->argument;
            fault->got = text + "=" + std::to_string(shape[i]) + " (shape " + ShapeText(shape) + ")";
            fault->allowed = text + "=" + (known ? std::to_string(wanted) : text);
            return false;
        }
        return true;
    }

    std::vector<Bound> bound_;
};

}  // namespace hybrid_ops
