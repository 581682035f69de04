// What the tiling functions of all operators share: one call checked against its contract, figures of the
// chip, and the way results leave.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "checks.h"
#include "contract.h"
#include "exe_graph/runtime/tiling_context.h"
#include "tiling/platform/platform_ascendc.h"

namespace hybrid_ops {

// What a planner may know of the chip.
struct Chip {
    std::string soc;
    uint32_t vector_cores = 0;
    uint32_t cube_cores = 0;
    uint64_t ub_bytes = 0;
    uint64_t l1_bytes = 0;
    uint64_t l0a_bytes = 0;
    uint64_t l0c_bytes = 0;
    uint64_t l2_bytes = 0;
    uint32_t library_workspace = 0;  // bytes that CANN's own calls expect in front of the kernel's workspace
};

inline Chip ReadChip(fe::PlatFormInfos* info) {
    using platform_ascendc::CoreMemType;
    const platform_ascendc::PlatformAscendC platform(info);
    Chip chip;
    switch (platform.GetSocVersion()) {
        case platform_ascendc::SocVersion::ASCEND310P:
            chip.soc = "ascend310p";
            break;
        case platform_ascendc::SocVersion::ASCEND910B:
            chip.soc = "ascend910b";
            break;
        default:
            break;
    }
    chip.vector_cores = platform.GetCoreNumAiv();
    chip.cube_cores = platform.GetCoreNumAic();
    platform.GetCoreMemSize(CoreMemType::UB, chip.ub_bytes);
    platform.GetCoreMemSize(CoreMemType::L1, chip.l1_bytes);
    platform.GetCoreMemSize(CoreMemType::L0_A, chip.l0a_bytes);
    platform.GetCoreMemSize(CoreMemType::L0_C, chip.l0c_bytes);
    platform.GetCoreMemSize(CoreMemType::L2, chip.l2_bytes);
    chip.library_workspace = platform.GetLibApiWorkSpaceSize();
    return chip;
}

// A call that passed every check of its contract.
class Call {
 public:
    Call(const Operator& op, gert::TilingContext* context)
        : op_(op), context_(context), given_(op.inputs.size) {}

    // GRAPH_FAILED: a fault has been reported and the tiling function must return at once.
    ge::graphStatus Check() {
        if (context_->GetPlatformInfo() == nullptr) {
            return Refuse({"soc", "no platform information", "None", op_.socs, ""});
        }
        chip_ = ReadChip(context_->GetPlatformInfo());
        const std::vector<std::string> socs = Split(op_.socs, ' ');
        size_t soc = 0;
        while (soc < socs.size() && socs[soc] != chip_.soc) ++soc;
        if (soc == socs.size()) {
            const std::string known =
                chip_.soc.empty() ? "not a known SoC" : Name() + " is not available on this SoC";
            return Refuse({"soc", known, "'" + chip_.soc + "'", Words(socs), ""});
        }
        for (size_t i = 0; i < given_.size(); ++i) Read(i);
        Fault fault;
        const bool legal = CheckPresent(op_, given_, soc, &fault) &&
                           CheckDtypes(op_, given_, soc, &column_, &fault) &&
                           CheckFormats(op_, given_, &fault) && CheckShapes(op_, given_, &axes_, &fault) &&
                           CheckAttrs(op_, context_->GetAttrs(), &fault);
        return legal ? ge::GRAPH_SUCCESS : Refuse(fault);
    }

    ge::graphStatus Refuse(const Fault& fault) {
        return hybrid_ops::Refuse(context_, Name(), fault, chip_.soc);
    }

    std::string Name() const { return SnakeName(op_.type); }
    const Chip& chip() const { return chip_; }
    const Axes& axes() const { return axes_; }
    int64_t Size(const char* axis, int64_t absent = 0) const { return axes_.Size(axis, absent); }
    bool Has(const char* input) const { return given_[Index(input)].present; }
    size_t Rank(const char* input) const { return given_[Index(input)].shape.size(); }
    ge::DataType Dtype(const char* input) const { return given_[Index(input)].dtype; }
    float Float(const char* attr) const { return *context_->GetAttrs()->GetFloat(AttrIndex(attr)); }
    int64_t Int(const char* attr) const { return *context_->GetAttrs()->GetInt(AttrIndex(attr)); }
    bool Bool(const char* attr) const { return *context_->GetAttrs()->GetBool(AttrIndex(attr)); }

    // Hands over tiling bytes, tiling key, number of cores and the kernel's workspace (bytes, without the
    // library's).
    template <class Data>
    ge::graphStatus Launch(const Data& data, uint64_t key, uint32_t block_dim, uint64_t workspace) {
        Data* target = context_->GetTilingData<Data>();
        size_t* sizes = context_->GetWorkspaceSizes(1);
        if (target == nullptr || sizes == nullptr) {
            return Refuse({"tiling", "no room for the tiling data", std::to_string(sizeof(Data)) + " bytes",
                           "what the runtime offers", ""});
        }
        std::memcpy(target, &data, sizeof(Data));
        sizes[0] = static_cast<size_t>(chip_.library_workspace + workspace);
        context_->SetTilingKey(key);
        context_->SetBlockDim(block_dim);
        return ge::GRAPH_SUCCESS;
    }

 private:
    void Read(size_t i) {
        const gert::StorageShape* shape = context_->GetOptionalInputShape(i);
        const gert::CompileTimeTensorDesc* desc = context_->GetOptionalInputDesc(i);
        if (shape == nullptr || desc == nullptr) return;
        given_[i] = {true, Dims(shape->GetOriginShape()), desc->GetDataType(), desc->GetStorageFormat()};
    }
    size_t Index(const char* input) const {
        size_t i = 0;
        while (i + 1 < op_.inputs.size && std::string(op_.inputs[i].name) != input) ++i;
        return i;
    }
    size_t AttrIndex(const char* attr) const {
        size_t i = 0;
        while (i + 1 < op_.attrs.size && std::string(op_.attrs[i].name) != attr) ++i;
        return i;
    }

    const Operator& op_;
    gert::TilingContext* context_;
    std::vector<Given> given_;
    Chip chip_;
    Axes axes_;
    size_t column_ = 0;
};

}  // namespace hybrid_ops
