// Shapes and types of Custom outputs for the converter's inference: output i is like wired input k.
//
// The environment says which, per operator type: HYBRID_OPS_LITE_INFER="Type:2,4;Other:0" (the driver derives
// it from the operators' contract). Without an entry the converter leaves float32 and no shape.

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "lite_abi.h"

namespace hybrid_ops {
namespace {

class LikeInputs : public mindspore::kernel::KernelInterface {
 public:
    explicit LikeInputs(std::vector<size_t> sources) : sources_(std::move(sources)) {}

    mindspore::Status Infer(std::vector<mindspore::MSTensor>* inputs,
                            std::vector<mindspore::MSTensor>* outputs,
                            const mindspore::schema::Primitive*) override {
        for (size_t i = 0; i < outputs->size() && i < sources_.size(); ++i) {
            if (sources_[i] >= inputs->size()) continue;
            const mindspore::MSTensor& source = (*inputs)[sources_[i]];
            (*outputs)[i].SetDataType(source.DataType());
            (*outputs)[i].SetShape(source.Shape());
        }
        return mindspore::Status::OK();
    }

 private:
    std::vector<size_t> sources_;
};

int RegisterAll() {
    const char* text = std::getenv("HYBRID_OPS_LITE_INFER");
    std::istringstream table(text ? text : "");
    const std::string provider = "hybrid_ops";
    for (std::string entry; std::getline(table, entry, ';');) {
        const size_t colon = entry.find(':');
        if (colon == std::string::npos) continue;
        std::istringstream list(entry.substr(colon + 1));
        std::vector<size_t> sources;
        for (std::string index; std::getline(list, index, ',');)
            sources.push_back(std::strtoul(index.c_str(), nullptr, 10));
        mindspore::registry::RegisterKernelInterface::CustomReg(
            {provider.begin(), provider.end()},
            {entry.begin(), entry.begin() + static_cast<ptrdiff_t>(colon)},
            [sources] { return std::make_shared<LikeInputs>(sources); });
    }
    return 0;
}

const int registered = RegisterAll();

}  // namespace
}  // namespace hybrid_ops
