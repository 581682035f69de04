// Runs one operator in the simulator behind MindSpore's interface for ahead-of-time compiled custom
// operators.
#pragma once
#include <dlfcn.h>
#include <sys/stat.h>
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/abi.h"
#include "host/abi.h"
#include "mindspore_call.h"
#include "mindspore_json.h"
#include "mindspore_report.h"

namespace hybrid_ops {

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
    const Cores& cores = column.OfKey(request.tiling_key);
    const char* text = nullptr;
    if (cores.cubes == 0) {
        text = launch(&request);
    } else {
        static const auto launch_mixed = Symbol<decltype(&ascsim_launch_mixed)>(core, "ascsim_launch_mixed");
        void* cube = Open(column.cube, RTLD_NOW | RTLD_LOCAL);
        const AscsimMixed mixed{Symbol<void (*)(void**)>(cube, "ascsim_kernel"), cores.vectors};
        text = launch_mixed(&request, &mixed);
    }
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
