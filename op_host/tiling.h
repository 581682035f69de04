// What the tiling functions of all operators share: one call checked against its contract, figures of the
// chip, and the way results leave.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "checks.h"
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
    uint32_t library_workspace = 0;  // bytes that CANN's own calls expect in front of the kernel's own
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

// One call: Check() first, then the questions a planner asks, then Launch().
class Call {
 public:
    Call(const Contract& contract, gert::TilingContext* context)
        : contract_(contract), context_(context), given_(contract.inputs.size()) {}

    // GRAPH_FAILED: a fault has been reported and the tiling function must return at once.
    ge::graphStatus Check() {
        const std::vector<std::string>& socs = contract_.socs;
        if (context_->GetPlatformInfo() == nullptr) {
            return Refuse({"soc", "no platform information", "None", Words(socs), ""});
        }
        chip_ = ReadChip(context_->GetPlatformInfo());
        size_t soc = 0;
        while (soc < socs.size() && socs[soc] != chip_.soc) ++soc;
        if (soc == socs.size()) {
            const Fault fault{"soc", contract_.name + " is not available on this SoC", "'" + chip_.soc + "'",
                              Words(socs), ""};
            return hybrid_ops::Refuse(context_, contract_.name, fault, "this package");
        }
        for (size_t i = 0; i < given_.size(); ++i) Read(i);
        BindAttrs(contract_, context_->GetAttrs(), &axes_);
        Fault fault;
        const bool legal =
            CheckPresent(contract_, given_, soc, &fault) && CheckDtypes(contract_, given_, soc, &fault) &&
            CheckFormats(contract_, given_, &fault) && CheckShapes(contract_, given_, &axes_, &fault) &&
            CheckAttrs(contract_, context_->GetAttrs(), &fault);
        return legal ? ge::GRAPH_SUCCESS : Refuse(fault);
    }

    ge::graphStatus Refuse(const Fault& fault) {
        return hybrid_ops::Refuse(context_, contract_.name, fault, chip_.soc);
    }

    const Chip& chip() const { return chip_; }
    const Axes& axes() const { return axes_; }
    int64_t Size(const char* axis, int64_t absent = 0) const { return axes_.Size(axis, absent); }
    bool Has(const char* input) const { return given_[Index(input)].present; }
    size_t Rank(const char* input) const { return given_[Index(input)].shape.size(); }
    ge::DataType Dtype(const char* input) const { return given_[Index(input)].dtype; }
    float Float(const char* attr) const { return *context_->GetAttrs()->GetFloat(AttrIndex(attr)); }
    int64_t Int(const char* attr) const { return *context_->GetAttrs()->GetInt(AttrIndex(attr)); }
    bool Bool(const char* attr) const { return *context_->GetAttrs()->GetBool(AttrIndex(attr)); }

    // Hands over tiling bytes, tiling key, number of cores and workspace bytes; a kernel whose calls need
    // CANN's own workspace adds chip().library_workspace.
    template <class Data>
    ge::graphStatus Launch(const Data& data, uint64_t key, uint32_t block_dim, uint64_t workspace) {
        Data* target = context_->GetTilingData<Data>();
        size_t* sizes = context_->GetWorkspaceSizes(1);
        if (target == nullptr || sizes == nullptr) {
            return Refuse({"tiling", "no room for the tiling data", std::to_string(sizeof(Data)) + " bytes",
                           "what the runtime offers", ""});
        }
        std::memcpy(target, &data, sizeof(Data));
        sizes[0] = static_cast<size_t>(workspace);
        context_->SetTilingKey(key);
        context_->SetBlockDim(block_dim);
        return ge::GRAPH_SUCCESS;
    }

 private:
    void Read(size_t i) {
        const gert::StorageShape* shape = context_->GetOptionalInputShape(i);
        const gert::CompileTimeTensorDesc* desc = context_->GetOptionalInputDesc(i);
        if (shape == nullptr || desc == nullptr) return;
        given_[i].present = true;
        given_[i].shape = Dims(shape->GetOriginShape());
        given_[i].dtype = desc->GetDataType();
        given_[i].format = desc->GetStorageFormat();
    }
    size_t Index(std::string_view input) const {
        size_t i = 0;
        while (i + 1 < contract_.inputs.size() && contract_.inputs[i].name != input) ++i;
        return i;
    }
    size_t AttrIndex(std::string_view attr) const {
        size_t i = 0;
        while (i + 1 < contract_.op->attrs.size && contract_.op->attrs[i].name != attr) ++i;
        return i;
    }

    const Contract& contract_;
    gert::TilingContext* context_;
    std::vector<Given> given_;
    Chip chip_;
    Axes axes_;
};

}  // namespace hybrid_ops
