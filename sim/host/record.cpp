// Writes recorded OpDefs as the document of contract.json.
#include "record.h"

#include <vector>

#include "json.h"
#include "names.h"
#include "register/op_def_registry.h"

namespace hostsim {
namespace {

std::string NoteOf(const ops::OpDef& def, const std::string& kind, const std::string& name,
                   const std::string& key) {
    for (const ops::OpNote& note : def.notes()) {
        if (note.kind == kind && note.name == name && note.key == key) return note.text;
    }
    return "";
}

std::string Rules(const std::string& axes) {
    std::vector<std::string> rules;
    size_t begin = 0;
    while (!axes.empty()) {
        const size_t bar = axes.find('|', begin);
        std::string rule = axes.substr(begin, bar == std::string::npos ? bar : bar - begin);
        while (!rule.empty() && rule.front() == ' ') rule.erase(0, 1);
        while (!rule.empty() && rule.back() == ' ') rule.pop_back();
        rules.push_back(Quote(rule));
        if (bar == std::string::npos) break;
        begin = bar + 1;
    }
    return List(rules);
}

// How often DataTypeList multiplies the columns: CANN combines each listed dtype with every column.
std::vector<ge::DataType> ColumnsOf(const std::vector<ops::OpParamDef>& params, size_t index) {
    size_t columns = 1;
    for (const ops::OpParamDef& param : params) {
        if (!param.types().empty()) columns = param.types().size();
    }
    std::vector<std::vector<ge::DataType>> all(params.size());
    for (size_t p = 0; p < params.size(); ++p) {
        if (!params[p].types().empty()) {
            all[p] = params[p].types();
        } else if (params[p].type_list().empty()) {
            all[p].assign(columns, ge::DT_UNDEFINED);
        }
    }
    for (size_t p = 0; p < params.size(); ++p) {
        const std::vector<ge::DataType>& list = params[p].type_list();
        if (list.empty()) continue;
        const size_t before = columns;
        columns *= list.size();
        for (size_t other = 0; other < params.size(); ++other) {
            const std::vector<ge::DataType> base = all[other];
            if (other == p || base.empty()) continue;
            all[other].clear();
            for (size_t i = 0; i < list.size(); ++i)
                all[other].insert(all[other].end(), base.begin(), base.end());
        }
        for (ge::DataType type : list) all[p].insert(all[p].end(), before, type);
    }
    const ops::OpParamDef& asked = params[index];
    if (!asked.follow().empty() && asked.types().empty() && asked.type_list().empty()) {
        for (size_t p = 0; p < params.size(); ++p) {
            if (p != index && params[p].name() == asked.follow()) return all[p];
        }
    }
    return all[index];
}

std::string Dtypes(const ops::OpDef& def, size_t index) {
    Object socs;
    for (const auto& [soc, config] : def.aicore().configs()) {
        std::vector<ops::OpParamDef> params;
        for (size_t i = 0; i < def.inputs().size(); ++i) params.push_back(def.MergedInput(i, config));
        for (size_t i = 0; i < def.outputs().size(); ++i) params.push_back(def.MergedOutput(i, config));
        std::vector<std::string> names;
        for (ge::DataType type : ColumnsOf(params, index)) names.push_back(Quote(DtypeName(type)));
        socs.Add(soc, List(names));
    }
    return socs.str();
}

std::string Input(const ops::OpDef& def, size_t index) {
    const ops::OpParamDef& param = def.inputs()[index];
    Object object;
    object.Add("name", Quote(param.name())).Add("required", Boolean(param.type() != ops::OPTIONAL));
    if (param.type() == ops::DYNAMIC) object.Add("dynamic", "true");
    object.Add("format", Quote(param.formats().empty() ? "ND" : FormatName(param.formats()[0])))
        .Add("axes", Rules(NoteOf(def, "input", param.name(), "axes")))
        .Add("dtypes", Dtypes(def, index))
        .Add("note", Quote(NoteOf(def, "input", param.name(), "note")));
    return object.str();
}

std::string Output(const ops::OpDef& def, size_t index) {
    const ops::OpParamDef& param = def.outputs()[index];
    std::string in_place = "null";
    for (const ops::OpParamDef& input : def.inputs()) {
        if (input.name() == param.name()) in_place = Quote(param.name());
    }
    Object object;
    object.Add("name", Quote(param.name()))
        .Add("axes", Rules(NoteOf(def, "output", param.name(), "axes")))
        .Add("dtypes", Dtypes(def, def.inputs().size() + index))
        .Add("inplace", in_place)
        .Add("note", Quote(NoteOf(def, "output", param.name(), "note")));
    return object.str();
}

struct DefaultText {
    std::string operator()(std::monostate) const { return "null"; }
    std::string operator()(bool value) const { return Boolean(value); }
    std::string operator()(double value) const { return Number(value); }
    std::string operator()(int64_t value) const { return Number(value); }
    std::string operator()(const std::string& value) const { return Quote(value); }
    template <typename T>
    std::string operator()(const std::vector<T>& values) const {
        std::vector<std::string> items;
        for (const T value : values) items.push_back((*this)(value));
        return List(items);
    }
};

std::string AttrObject(const ops::OpDef& def, const ops::OpAttrDef& attr) {
    static constexpr const char* kNames[] = {"none",   "bool",      "float",      "int",
                                             "string", "list_bool", "list_float", "list_int"};
    Object object;
    object.Add("name", Quote(attr.name()))
        .Add("type", Quote(kNames[static_cast<size_t>(attr.kind())]))
        .Add("required", Boolean(attr.required()))
        .Add("default", std::visit(DefaultText{}, attr.value()))
        .Add("note", Quote(NoteOf(def, "attr", attr.name(), "note")));
    return object.str();
}

std::string OpObject(const ops::OpDef& def) {
    std::vector<std::string> socs, inputs, outputs, attrs, limits;
    Object configs;
    for (const auto& [soc, config] : def.aicore().configs()) {
        socs.push_back(Quote(soc));
        Object flags;
        for (const auto& [key, value] : config.flags()) flags.Add(key, Quote(value));
        configs.Add(soc, flags.str());
    }
    for (size_t i = 0; i < def.inputs().size(); ++i) inputs.push_back(Input(def, i));
    for (size_t i = 0; i < def.outputs().size(); ++i) outputs.push_back(Output(def, i));
    for (const ops::OpAttrDef& attr : def.attrs()) attrs.push_back(AttrObject(def, attr));
    for (const ops::OpNote& note : def.notes()) {
        if (note.kind != "limit") continue;
        limits.push_back(Object().Add("rule", Quote(note.name)).Add("text", Quote(note.text)).str());
    }
    return Object()
        .Add("name", Quote(SnakeCase(def.type())))
        .Add("summary", Quote(NoteOf(def, "op", "", "summary")))
        .Add("socs", List(socs))
        .Add("inputs", List(inputs))
        .Add("outputs", List(outputs))
        .Add("attrs", List(attrs))
        .Add("limits", List(limits))
        .Add("config", configs.str())
        .str();
}

}  // namespace

std::string SnakeCase(const std::string& type) {
    std::string name;
    for (size_t i = 0; i < type.size(); ++i) {
        const bool upper = type[i] >= 'A' && type[i] <= 'Z';
        if (upper && i != 0) name += '_';
        name += upper ? static_cast<char>(type[i] - 'A' + 'a') : type[i];
    }
    return name;
}

std::string ContractJson() {
    Object all;
    for (const std::string& type : ops::OpDefFactory::AllTypes())
        all.Add(type, OpObject(*ops::OpDefFactory::Find(type)));
    return Object().Add("schema", "1").Add("ops", all.str()).str();
}

}  // namespace hostsim
