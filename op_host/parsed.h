// An operator's tables with their texts taken apart, once per process: tiling runs on every call of an
// operator.
#pragma once
#include <string>
#include <vector>

#include "axes.h"
#include "limits.h"
#include "table.h"

namespace hybrid_ops {

struct ParsedArg {
    const char* name;
    bool required;
    std::vector<Rule> rules;
    std::vector<std::vector<std::string>> dtypes;  // per SoC: names by column, every column present
    std::vector<std::vector<ge::DataType>> types;  // the same as CANN's numbers
};

struct Contract {
    const Operator* op;
    std::string name;
    std::vector<std::string> socs;
    std::vector<ParsedArg> inputs;
    std::vector<ParsedArg> outputs;
    std::vector<Limit> limits;

    explicit Contract(const Operator& table)
        : op(&table), name(SnakeName(table.type)), socs(Split(table.socs, ' ')) {
        std::vector<size_t> columns(socs.size(), 1);
        for (const Table<Arg>* side : {&table.inputs, &table.outputs}) {
            for (const Arg& arg : *side) {
                for (size_t soc = 0; soc < socs.size(); ++soc) {
                    const size_t count = Group(arg, soc).size();
                    columns[soc] = count > columns[soc] ? count : columns[soc];
                }
            }
        }
        for (const Arg& arg : table.inputs) inputs.push_back(Parse(arg, columns));
        for (const Arg& arg : table.outputs) outputs.push_back(Parse(arg, columns));
        for (const LimitRule& limit : table.limits) limits.emplace_back(limit.rule, limit.wrong);
    }

    bool InPlace(const std::string& argument) const {
        size_t uses = 0;
        for (const std::vector<ParsedArg>* side : {&inputs, &outputs}) {
            for (const ParsedArg& arg : *side) uses += argument == arg.name ? 1 : 0;
        }
        return uses > 1;
    }

 private:
    static std::vector<std::string> Group(const Arg& arg, size_t soc) {
        const std::vector<std::string> groups = Split(arg.dtypes, '|');
        return Split(groups.size() == 1 ? groups[0] : groups[soc], ' ');
    }
    ParsedArg Parse(const Arg& arg, const std::vector<size_t>& columns) const {
        ParsedArg parsed{arg.name, arg.need == Need::kRequired, ParseRules(arg.axes), {}, {}};
        for (size_t soc = 0; soc < socs.size(); ++soc) {
            std::vector<std::string> names = Group(arg, soc);
            if (names.size() == 1) names.resize(columns[soc], names[0]);
            std::vector<ge::DataType> types;
            for (const std::string& dtype : names) types.push_back(DtypeOf(dtype));
            parsed.dtypes.push_back(names);
            parsed.types.push_back(types);
        }
        return parsed;
    }
};

template <const Operator& kOp>
const Contract& ContractOf() {
    static const Contract contract(kOp);
    return contract;
}

}  // namespace hybrid_ops
