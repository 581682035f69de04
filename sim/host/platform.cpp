// platform_ascendc over the flattened configuration of one chip.
#include "tiling/platform/platform_ascendc.h"

#include <cctype>
#include <cstdlib>
#include <sstream>

#include "hostsim/platform.h"

namespace fe {
namespace {

std::string Trim(const std::string& text) {
    size_t begin = 0, end = text.size();
    while (begin < end && std::isspace(static_cast<unsigned char>(text[begin]))) ++begin;
    while (end > begin && std::isspace(static_cast<unsigned char>(text[end - 1]))) --end;
    return text.substr(begin, end - begin);
}

}  // namespace

PlatFormInfos::PlatFormInfos(std::string soc, const std::string& config) : soc_(std::move(soc)) {
    std::istringstream lines(config);
    for (std::string line; std::getline(lines, line);) {
        line = Trim(line);
        if (line.empty() || line[0] == '#') continue;
        const size_t equals = line.find('=');
        if (equals == std::string::npos) throw std::invalid_argument("not \"key = value\": " + line);
        values_[Trim(line.substr(0, equals))] = Trim(line.substr(equals + 1));
    }
}

double PlatFormInfos::Figure(const std::string& key) const {
    const auto found = values_.find(key);
    if (found == values_.end()) throw std::out_of_range("the configuration of " + soc_ + " has no " + key);
    return std::strtod(found->second.c_str(), nullptr);
}

}  // namespace fe

namespace platform_ascendc {
namespace {

// platform_ascendc.cpp of the open asc-devkit: bytes of UB and L1 that 910B keeps for itself, and the
// workspace that library calls (cross-core sync among them) use.
constexpr uint64_t kReservedOn910B = 256;
constexpr uint32_t kLibraryWorkspace = 2U << 20;
constexpr uint32_t kLibraryWorkspaceOn910B = 16U << 20;

const char* SizeKey(CoreMemType type) {
    switch (type) {
        case CoreMemType::L0_A:
            return "sizes.l0a";
        case CoreMemType::L0_B:
            return "sizes.l0b";
        case CoreMemType::L0_C:
            return "sizes.l0c";
        case CoreMemType::L1:
            return "sizes.l1";
        case CoreMemType::L2:
            return "sizes.l2";
        case CoreMemType::UB:
            return "sizes.ub";
        default:
            return "sizes.gm";
    }
}

}  // namespace

uint32_t PlatformAscendC::GetCoreNum() const { return GetCoreNumAiv(); }

uint32_t PlatformAscendC::GetCoreNumAic() const {
    return static_cast<uint32_t>(platform_->Size("cores.cube"));
}

uint32_t PlatformAscendC::GetCoreNumAiv() const {
    return static_cast<uint32_t>(platform_->Size("cores.vector"));
}

// The extra vector cores of 310P, which take no part in a plain kernel; zero elsewhere.
uint32_t PlatformAscendC::GetCoreNumVector() const {
    return GetSocVersion() == SocVersion::ASCEND310P
               ? static_cast<uint32_t>(platform_->Size("cores.extra_vector"))
               : 0;
}

uint32_t PlatformAscendC::CalcTschBlockDim(uint32_t slices, uint32_t aic_cores, uint32_t aiv_cores) const {
    if (aic_cores == 0 || aiv_cores == 0 || aic_cores > aiv_cores) return slices;
    const uint32_t ratio = aiv_cores / aic_cores;
    return (slices + ratio - 1) / ratio;
}

uint32_t PlatformAscendC::GetLibApiWorkSpaceSize() const {
    return GetSocVersion() == SocVersion::ASCEND910B ? kLibraryWorkspaceOn910B : kLibraryWorkspace;
}

void PlatformAscendC::GetCoreMemSize(const CoreMemType& type, uint64_t& bytes) const {
    bytes = platform_->Size(SizeKey(type));
    const bool reserved = type == CoreMemType::UB || type == CoreMemType::L1;
    if (reserved && GetSocVersion() == SocVersion::ASCEND910B) bytes -= kReservedOn910B;
}

void PlatformAscendC::GetCoreMemBw(const CoreMemType& type, uint64_t& bytes_per_cycle) const {
    bytes_per_cycle = platform_->Size(type == CoreMemType::L2 ? "rates.l2_read" : "rates.ddr_read");
}

SocVersion PlatformAscendC::GetSocVersion() const {
    const std::string& soc = platform_->soc();
    if (soc.rfind("ascend310p", 0) == 0) return SocVersion::ASCEND310P;
    if (soc.rfind("ascend310b", 0) == 0) return SocVersion::ASCEND310B;
    if (soc.rfind("ascend910b", 0) == 0 || soc.rfind("ascend910_93", 0) == 0) return SocVersion::ASCEND910B;
    if (soc.rfind("ascend910", 0) == 0) return SocVersion::ASCEND910;
    return SocVersion::RESERVED_VERSION;
}

}  // namespace platform_ascendc
