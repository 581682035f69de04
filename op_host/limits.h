// Limits of a contract: Python expressions over axis letters with whole numbers, + - * // %, (chained)
// comparisons, and, or, not, parentheses. Division and remainder round down as in Python. Parsed once,
// evaluated per call.
#pragma once
#include <cctype>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "axes.h"

namespace hybrid_ops {

class Limit {
 public:
    Limit(const char* rule, const char* wrong) : rule_(rule), wrong_(wrong) {
        root_ = Parse(0);
        Skip();
        malformed_ = malformed_ || at_ != rule_.size() || letters_.empty();
    }
    const std::string& rule() const { return rule_; }
    const std::string& wrong() const { return wrong_; }
    bool malformed() const { return malformed_; }
    // Axis letters in order of appearance.
    const std::vector<std::string>& letters() const { return letters_; }
    // False when a letter is unbound: its argument is absent and the limit says nothing.
    bool Applies(const Axes& axes) const {
        for (const std::string& letter : letters_) {
            if (!axes.Has(letter)) return false;
        }
        return true;
    }
    bool Holds(const Axes& axes) const { return Value(root_, axes) != 0; }

 private:
    struct Node {
        std::string_view op;  // "" number, "axis", or an operator; "chain": comparisons that must all hold
        int64_t number = 0;   // value, or index of a letter
        std::vector<size_t> operands;
    };

    void Skip() {
        while (at_ < rule_.size() && rule_[at_] == ' ') ++at_;
    }
    static bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
    bool Take(std::string_view token) {
        Skip();
        if (rule_.compare(at_, token.size(), token) != 0) return false;
        const size_t end = at_ + token.size();
        if (IsWord(token[0]) && end < rule_.size() && IsWord(rule_[end])) return false;
        at_ = end;
        return true;
    }
    std::string_view TakeOne(std::initializer_list<std::string_view> tokens) {
        for (std::string_view token : tokens) {
            if (Take(token)) return token;
        }
        return {};
    }
    size_t Add(std::string_view op, int64_t number, std::vector<size_t> operands) {
        nodes_.push_back({op, number, std::move(operands)});
        return nodes_.size() - 1;
    }

    // Precedence levels, loosest first: or, and, not, comparison, sum, product, atom.
    size_t Parse(int level) {
        if (level == 2) return Take("not") ? Add("not", 0, {Parse(2)}) : Parse(3);
        if (level == 3) return Comparison();
        if (level == 6) return Atom();
        size_t left = Parse(level + 1);
        while (true) {
            const std::string_view op = level == 0   ? TakeOne({"or"})
                                        : level == 1 ? TakeOne({"and"})
                                        : level == 4 ? TakeOne({"+", "-"})
                                                     : TakeOne({"//", "%", "*"});
            if (op.empty()) return left;
            left = Add(op, 0, {left, Parse(level + 1)});
        }
    }
    size_t Comparison() {
        size_t left = Parse(4);
        std::vector<size_t> links;
        while (true) {
            const std::string_view op = TakeOne({"<=", ">=", "==", "!=", "<", ">"});
            if (op.empty()) break;
            const size_t right = Parse(4);
            links.push_back(Add(op, 0, {left, right}));
            left = right;
        }
        return links.empty() ? left : Add("chain", 0, links);
    }
    size_t Atom() {
        if (Take("(")) {
            const size_t inner = Parse(0);
            malformed_ = malformed_ || !Take(")");
            return inner;
        }
        if (Take("-")) return Add("negative", 0, {Atom()});
        Skip();
        const size_t begin = at_;
        while (at_ < rule_.size() && IsWord(rule_[at_])) ++at_;
        const std::string token = rule_.substr(begin, at_ - begin);
        if (token.empty()) {
            malformed_ = true;
            return Add("", 0, {});
        }
        if (std::isdigit(static_cast<unsigned char>(token[0]))) return Add("", std::stoll(token), {});
        size_t index = 0;
        while (index < letters_.size() && letters_[index] != token) ++index;
        if (index == letters_.size()) letters_.push_back(token);
        return Add("axis", static_cast<int64_t>(index), {});
    }

    static int64_t FloorDivide(int64_t a, int64_t b) {
        if (b == 0) return 0;  // a limit that divides by a size must itself ask for more than 0 first
        return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
    }
    int64_t Value(size_t index, const Axes& axes) const {
        const Node& node = nodes_[index];
        if (node.op.empty()) return node.number;
        if (node.op == "axis") return axes.Size(letters_[static_cast<size_t>(node.number)]);
        if (node.op == "chain") {
            for (size_t link : node.operands) {
                if (Value(link, axes) == 0) return 0;
            }
            return 1;
        }
        const int64_t a = Value(node.operands[0], axes);
        if (node.op == "not") return a == 0;
        if (node.op == "negative") return -a;
        if (node.op == "or" && a != 0) return 1;
        if (node.op == "and" && a == 0) return 0;
        const int64_t b = Value(node.operands[1], axes);
        if (node.op == "or" || node.op == "and") return b != 0;
        if (node.op == "+") return a + b;
        if (node.op == "-") return a - b;
        if (node.op == "*") return a * b;
        if (node.op == "//") return FloorDivide(a, b);
        if (node.op == "%") return a - FloorDivide(a, b) * b;
        if (node.op == "<=") return a <= b;
        if (node.op == ">=") return a >= b;
        if (node.op == "==") return a == b;
        if (node.op == "!=") return a != b;
        return node.op == "<" ? a < b : a > b;
    }

    std::string rule_;
    std::string wrong_;
    std::vector<std::string> letters_;
    std::vector<Node> nodes_;
    size_t root_ = 0;
    size_t at_ = 0;
    bool malformed_ = false;
};

}  // namespace hybrid_ops
