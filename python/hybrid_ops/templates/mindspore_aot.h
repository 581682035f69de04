// Runs one operator in the simulator behind MindSpore's interface for ahead-of-time compiled custom
// operators. Compile with -D_GLIBCXX_USE_CXX11_ABI=0: MindSpore passes std::string by value.
#pragma once
#include <dlfcn.h>
#include <sys/stat.h>
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/abi.h"
#include "host/abi.h"
#include "mindspore_json.h"

// What MindSpore passes as `extra`. The order of the virtual functions is the interface.
class AotExtra {
 public:
    virtual ~AotExtra() = default;
    virtual bool HasAttr(std::string name) = 0;
    virtual bool GetAttrBool(std::string name) = 0;
    virtual int64_t GetAttrInt(std::string name) = 0;
    virtual float GetAttrFloat(std::string name) = 0;
    virtual std::string GetAttrStr(std::string name) = 0;
    virtual std::vector<int64_t> GetAttrIntVec(std::string name) = 0;
    virtual std::vector<float> GetAttrFloatVec(std::string name) = 0;
};

namespace hybrid_ops {

struct AttrRule {
    const char* name;
    char kind;  // f float, i int, b bool, s string, I list of int, F list of float
};

struct OutputRule {
    const char* name;
    int in_place;  // index of the input that the kernel overwrites, -1: none
};

struct Column {  // one legal combination of dtypes, and the library of its kernel
    const char* family;
    std::vector<const char*> dtypes;  // of the inputs
    const char* kernel;
};

struct Chip {
    const char* name;  // lower case, without "ascend"
    const char* family;
    const char* figures;  // for the simulator core
    const char* tiling;   // for the tiling function
};

struct Operator {
    const char* name;
    const char* type;
    std::vector<const char*> inputs;
    std::vector<OutputRule> outputs;
    std::vector<AttrRule> attrs;
    std::vector<Column> columns;
    std::vector<Chip> chips;
    std::vector<std::pair<const char*, const char*>> default_chip;  // dtype of the first input -> chip
    const char* core;
    const char* host;
};

struct Call {  // what MindSpore passed
    int nparam;
    void** params;
    int* ndims;
    int64_t** shapes;
    const char** dtypes;
    AotExtra* extra;

    bool Absent(size_t i) const { return std::strcmp(dtypes[i], "none") == 0; }
    uint64_t Bytes(size_t i) const;
};

inline uint64_t ItemSize(const std::string& dtype) {
    if (dtype == "float16" || dtype == "bfloat16" || dtype == "int16" || dtype == "uint16") return 2;
    if (dtype == "float32" || dtype == "int32" || dtype == "uint32") return 4;
    if (dtype == "float64" || dtype == "int64" || dtype == "uint64") return 8;
    return 1;
}

inline uint64_t Call::Bytes(size_t i) const {
    uint64_t count = ItemSize(dtypes[i]);
    for (int d = 0; d < ndims[i]; ++d) count *= static_cast<uint64_t>(shapes[i][d]);
    return count;
}

inline std::string Lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
}

// A library by file name: beside this one, then where hybrid_ops keeps and looks for libraries.
inline void* Open(const char* file, int mode) {
    std::vector<std::string> folders;
    Dl_info self;
    if (dladdr(reinterpret_cast<void*>(&ItemSize), &self) != 0 && self.dli_fname != nullptr) {
        const std::string path = self.dli_fname;
        folders.push_back(path.substr(0, path.rfind('/') + 1));
    }
    const char* prebuilt = std::getenv("HYBRID_OPS_PREBUILT");
    std::string list = prebuilt ? prebuilt : "";
    while (!list.empty()) {
        const size_t end = std::min(list.find(':'), list.size());
        folders.push_back(list.substr(0, end) + "/");
        list.erase(0, end + 1);
    }
    if (const char* cache = std::getenv("HYBRID_OPS_CACHE")) folders.push_back(std::string(cache) + "/");
    for (const std::string& folder : folders) {
        struct stat found;
        const std::string path = folder + file;
        if (stat(path.c_str(), &found) != 0) continue;
        if (void* handle = dlopen(path.c_str(), mode)) return handle;
        throw std::runtime_error("hybrid_ops: library: cannot be loaded: got " + path + ": " + dlerror());
    }
    const std::string first = folders.empty() ? "?" : folders.front();
    throw std::runtime_error(std::string("hybrid_ops: library: not found: got no ") + file + " in " + first +
                             "; allowed the libraries of one build in one folder; run hybrid-ops build");
}

template <typename Function>
Function Symbol(void* library, const char* name) {
    void* found = dlsym(library, name);
    if (found == nullptr) throw std::runtime_error(std::string("hybrid_ops: library: no symbol ") + name);
    return reinterpret_cast<Function>(found);
}

// Memory of one kernel argument: aligned as aclrtMalloc aligns, with a guard zone on each side.
class Buffer {
 public:
    // Copies `bytes` from `data`; without data fills with 0xFF, NaN in every float type.
    Buffer(const void* data, uint64_t bytes) : bytes_(bytes), memory_(bytes + 3 * kGuard, kPattern) {
        const auto address = reinterpret_cast<uintptr_t>(memory_.data());
        begin_ = kGuard + (kGuard - address % kGuard) % kGuard;
        if (data != nullptr) {
            std::memcpy(this->data(), data, bytes);
        } else {
            std::memset(this->data(), 0xFF, bytes);
        }
    }

    uint8_t* data() { return memory_.data() + begin_; }
    uint64_t bytes() const { return bytes_; }

    bool Overrun() const {
        const auto changed = [](uint8_t byte) { return byte != kPattern; };
        return std::any_of(memory_.begin(), memory_.begin() + begin_, changed) ||
               std::any_of(memory_.begin() + begin_ + bytes_, memory_.end(), changed);
    }

 private:
    static constexpr uint64_t kGuard = 512;
    static constexpr uint8_t kPattern = 0xA5;
    uint64_t bytes_;
    uint64_t begin_ = 0;
    std::vector<uint8_t> memory_;
};

class AttrValues {  // attributes in the form of the host library
 public:
    AttrValues(const Operator& op, AotExtra* extra) {
        values_.reserve(op.attrs.size());  // `list` keeps pointers into the members
        for (const AttrRule& rule : op.attrs) {
            if (!extra->HasAttr(rule.name)) continue;
            values_.emplace_back();
            Read(rule, extra, &values_.back());
        }
        for (Value& value : values_) list.push_back(value.plain);
    }
    std::vector<HostopsAttr> list;

 private:
    struct Value {
        HostopsAttr plain{};
        std::string text;
        std::vector<int64_t> ints;
        std::vector<double> floats;
    };

    static void Read(const AttrRule& rule, AotExtra* extra, Value* value) {
        HostopsAttr& plain = value->plain;
        plain.name = rule.name;
        if (rule.kind == 'f') plain.float_value = extra->GetAttrFloat(rule.name);
        if (rule.kind == 'i') plain.int_value = extra->GetAttrInt(rule.name);
        if (rule.kind == 'b') plain.int_value = extra->GetAttrBool(rule.name);
        if (rule.kind == 's') value->text = extra->GetAttrStr(rule.name);
        if (rule.kind == 'I') value->ints = extra->GetAttrIntVec(rule.name);
        if (rule.kind == 'F') {
            const std::vector<float> read = extra->GetAttrFloatVec(rule.name);
            value->floats.assign(read.begin(), read.end());
        }
        plain.string_value = value->text.c_str();
        plain.ints = value->ints.data();
        plain.floats = value->floats.data();
        plain.count = static_cast<int32_t>(value->ints.size() + value->floats.size());
    }

    std::vector<Value> values_;
};

inline std::string OptionOf(const Call& call, const char* name) {
    return call.extra != nullptr && call.extra->HasAttr(name) ? call.extra->GetAttrStr(name) : "";
}

inline const Chip& ChipOf(const Operator& op, const Call& call) {
    std::string wanted = Lower(OptionOf(call, "soc"));
    if (wanted.rfind("ascend", 0) == 0) wanted.erase(0, 6);
    for (const auto& entry : op.default_chip) {
        if (wanted.empty() && std::strcmp(entry.first, call.dtypes[0]) == 0) wanted = entry.second;
    }
    for (const Chip& chip : op.chips) {
        if (wanted == chip.name) return chip;
    }
    throw std::runtime_error(std::string(op.name) + ": soc: not a known SoC: got '" + wanted +
                             "' for a first input of " + call.dtypes[0]);
}

inline const Column& ColumnOf(const Operator& op, const Call& call, const char* family) {
    std::string got;
    for (const Column& column : op.columns) {
        bool fits = std::strcmp(column.family, family) == 0;
        for (size_t i = 0; i < op.inputs.size(); ++i) {
            fits = fits && (call.Absent(i) || std::strcmp(column.dtypes[i], call.dtypes[i]) == 0);
        }
        if (fits) return column;
    }
    for (size_t i = 0; i < op.inputs.size(); ++i) {
        if (!call.Absent(i))
            got += std::string(got.empty() ? "" : " + ") + op.inputs[i] + " " + call.dtypes[i];
    }
    throw std::runtime_error(std::string(op.name) + ": inputs: dtypes do not go together: got " + got +
                             "; allowed the columns of `hybrid-ops ops` on " + family);
}

inline Json Tile(const Operator& op, const Call& call, const Chip& chip) {
    static void* library = Open(op.host, RTLD_NOW | RTLD_LOCAL);
    static const auto tiling = Symbol<decltype(&hostops_tiling)>(library, "hostops_tiling");
    static const auto release = Symbol<decltype(&hostops_free)>(library, "hostops_free");
    std::vector<HostopsTensor> tensors;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
        if (call.Absent(i)) continue;
        tensors.push_back({static_cast<int32_t>(i), call.dtypes[i], "ND", call.ndims[i], call.shapes[i]});
    }
    const AttrValues attrs(op, call.extra);
    const char* text =
        tiling(op.type, chip.family, chip.tiling, tensors.data(), static_cast<int32_t>(tensors.size()),
               attrs.list.data(), static_cast<int32_t>(attrs.list.size()));
    Json answer = JsonReader(text).Read();
    release(text);
    if (!answer["ok"].IsTrue()) throw std::runtime_error(answer["error"].text);
    return answer;
}

inline std::vector<uint8_t> Unhex(const std::string& text) {
    std::vector<uint8_t> bytes;
    for (size_t i = 0; i + 1 < text.size(); i += 2) {
        bytes.push_back(static_cast<uint8_t>(std::strtoul(text.substr(i, 2).c_str(), nullptr, 16)));
    }
    return bytes;
}

inline std::string Describe(const Operator& op, const Chip& chip, const Json& report) {
    std::string text = std::string(op.name) + ": kernel: ";
    text += report["error"].IsNull() ? "breaks rules of the hardware" : report["error"].text;
    size_t shown = 0;
    for (const Json& hazard : report["hazards"].items) {
        if (hazard["severity"].text != "error" || shown++ == 5) continue;
        text += "\n  " + hazard["kernel_file"].text + ":" + hazard["line"].text + ": " + hazard["rule"].text +
                ": " + hazard["message"].text + ": tensor " + hazard["tensor"].text;
    }
    return text + " (on " + chip.family + ")";
}

inline void Launch(const Operator& op, const Call& call, const Chip& chip, const Column& column,
                   const Json& tiling, const std::vector<AscsimArg>& args) {
    static void* core = Open(op.core, RTLD_NOW | RTLD_GLOBAL);  // kernels resolve their calls in it
    static const auto launch = Symbol<decltype(&ascsim_launch)>(core, "ascsim_launch");
    static const auto release = Symbol<decltype(&ascsim_free)>(core, "ascsim_free");
    void* kernel = Open(column.kernel, RTLD_NOW | RTLD_LOCAL);
    if (Symbol<unsigned (*)()>(kernel, "ascsim_kernel_args")() != args.size()) {
        throw std::runtime_error(std::string(op.name) + ": kernel: wrong number of arguments on " +
                                 chip.family);
    }
    AscsimLaunch request{};
    request.op = op.name;
    request.soc_config = chip.figures;
    request.kernel = Symbol<void (*)(void**)>(kernel, "ascsim_kernel");
    request.args = args.data();
    request.n_args = static_cast<int32_t>(args.size());
    request.block_dim = static_cast<uint32_t>(tiling["block_dim"].Unsigned());
    request.tiling_key = tiling["tiling_key"].Unsigned();
    request.checks = OptionOf(call, "checks") == "full";
    request.auto_sync = 1;
    const char* text = launch(&request);
    const Json report = JsonReader(text).Read();
    release(text);
    if (!report["ok"].IsTrue()) throw std::runtime_error(Describe(op, chip, report));
}

// One call: inputs are copied in, outputs copied out, so that the caller's tensors stay as they are.
inline int Run(const Operator& op, const Call& call) {
    const size_t inputs = op.inputs.size();
    if (static_cast<size_t>(call.nparam) != inputs + op.outputs.size()) {
        throw std::runtime_error(std::string(op.name) + ": inputs: wrong number of arguments: got " +
                                 std::to_string(call.nparam) + "; allowed " +
                                 std::to_string(inputs + op.outputs.size()) + " with outputs");
    }
    const Chip& chip = ChipOf(op, call);
    const Column& column = ColumnOf(op, call, chip.family);
    const Json tiling = Tile(op, call, chip);
    enum Role { kInput, kOutput, kInOut, kWorkspace, kTiling };
    std::vector<std::unique_ptr<Buffer>> memory;
    std::vector<AscsimArg> args;
    const auto add = [&](const char* name, int32_t role, const void* data, uint64_t bytes) {
        memory.push_back(std::make_unique<Buffer>(data, bytes));
        args.push_back({name, memory.back()->data(), bytes, role});
    };
    for (size_t i = 0; i < inputs; ++i) {
        const auto mine = [i](const OutputRule& rule) { return rule.in_place == static_cast<int>(i); };
        const bool updated = std::any_of(op.outputs.begin(), op.outputs.end(), mine);
        if (call.Absent(i)) {
            args.push_back({op.inputs[i], nullptr, 0, updated ? kInOut : kInput});
        } else {
            add(op.inputs[i], updated ? kInOut : kInput, call.params[i], call.Bytes(i));
        }
    }
    for (size_t o = 0; o < op.outputs.size(); ++o) {
        const OutputRule& rule = op.outputs[o];
        if (rule.in_place >= 0) {
            args.push_back(args[static_cast<size_t>(rule.in_place)]);
        } else {
            add(rule.name, kOutput, nullptr, call.Bytes(inputs + o));
        }
    }
    uint64_t workspace = 0;
    for (const Json& size : tiling["workspaces"].items) workspace += size.Unsigned();
    add("workspace", kWorkspace, nullptr, workspace);
    const std::vector<uint8_t> plan = Unhex(tiling["tiling"].text);
    add("tiling", kTiling, plan.data(), plan.size());
    Launch(op, call, chip, column, tiling, args);
    for (const auto& buffer : memory) {
        if (buffer->Overrun()) {
            throw std::runtime_error(std::string(op.name) + ": kernel: wrote outside a tensor (on " +
                                     chip.family + ")");
        }
    }
    for (size_t o = 0; o < op.outputs.size(); ++o) {
        std::memcpy(call.params[inputs + o], args[inputs + o].data, call.Bytes(inputs + o));
    }
    return 0;
}

// One axis of an output: `scale` times axis `dim` of input `input`, plus `offset`; input -1: the offset
// alone.
struct Axis {
    int input;
    int dim;
    int64_t scale;
    int64_t offset;
};

// Output shapes for MindSpore: -1 stays unknown. `ranks` holds what MindSpore passes: absent inputs are left
// out, therefore only inputs before the first optional one are looked at. Unknown rank is one axis of -2.
inline std::vector<std::vector<int64_t>> Shapes(const std::vector<std::vector<Axis>>& rules, const int* ranks,
                                                int64_t** shapes) {
    std::vector<std::vector<int64_t>> found;
    for (const std::vector<Axis>& rule : rules) {
        std::vector<int64_t> shape;
        for (const Axis& axis : rule) {
            if (axis.input < 0) {
                shape.push_back(axis.offset);
                continue;
            }
            const bool known = axis.dim < ranks[axis.input] && shapes[axis.input][0] != -2;
            const int64_t size = known ? shapes[axis.input][axis.dim] : -1;
            shape.push_back(size < 0 ? -1 : axis.scale * size + axis.offset);
        }
        found.push_back(shape);
    }
    return found;
}

}  // namespace hybrid_ops
