// Definitions of the acl runtime shim. Settings come from the environment, written by the .asc runner:
// ASCSIM_SOC_CONFIG (file with the flattened SoC figures), ASCSIM_CHECKS, ASCSIM_AUTO_SYNC, ASCSIM_RECORD,
// ASCSIM_ZERO_MEMORY, and ASCSIM_REPORT (file that gets one JSON report per launch and line).
#include "acl/acl.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/abi.h"

namespace {

constexpr aclError kAiCoreException = 507015;
constexpr size_t kAlign = 512;  // as aclrtMalloc

struct Device {
    std::map<void*, std::pair<std::string, size_t>> buffers;  // address -> name, bytes
    uint32_t allocated = 0;
    bool failed = false;
};
Device g_device;

// Entries of one launch in the source: [0] as compiled for vector or combined cores, [1] for cube cores.
struct Site {
    ascsim::SiteEntry enter[2] = {};
    uint64_t closure_bytes[2] = {};
};
std::map<std::string, Site>& Sites() {
    static std::map<std::string, Site> sites;
    return sites;
}

Site g_site;
void* g_closure = nullptr;

std::string ReadConfig() {
    const char* path = std::getenv("ASCSIM_SOC_CONFIG");
    if (!path) return {};
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

int Setting(const char* name, int fallback) {
    const char* value = std::getenv(name);
    return value ? std::atoi(value) : fallback;
}

}  // namespace

namespace ascsim {

bool RegisterSite(const char* site, bool cube, uint64_t closure_bytes, SiteEntry enter) {
    Site& s = Sites()[site];
    s.enter[cube] = enter;
    s.closure_bytes[cube] = closure_bytes;
    return true;
}

void LaunchClosure(const char* kernel, KernelCores cores, uint32_t blocks, const char* site, void* closure) {
    static const std::string config = ReadConfig();
    std::vector<AscsimArg> args;
    for (const auto& [address, buffer] : g_device.buffers)
        args.push_back({buffer.first.c_str(), address, buffer.second, 2});
    g_site = Sites()[site];
    g_closure = closure;
    AscsimLaunch launch{};
    launch.op = kernel;
    launch.soc_config = config.c_str();
    launch.kernel = [](void**) { g_site.enter[0](g_closure); };
    launch.args = args.data();
    launch.n_args = int32_t(args.size());
    launch.block_dim = blocks;
    launch.checks = Setting("ASCSIM_CHECKS", 1);
    launch.record = Setting("ASCSIM_RECORD", 0);
    launch.auto_sync = Setting("ASCSIM_AUTO_SYNC", 1);
    const bool split = cores.cubes || cores.vectors;
    // The closure was made by one of the libraries; the other one reads it by the same layout.
    const bool both = cores.cubes && cores.vectors;
    if ((cores.cubes && !g_site.enter[1]) || ((cores.vectors || !split) && !g_site.enter[0]) ||
        (both && g_site.closure_bytes[0] != g_site.closure_bytes[1])) {
        std::fprintf(stderr, "%s: launch: no entry for %s cores\n", kernel, cores.cubes ? "cube" : "vector");
        g_device.failed = true;
        return;
    }
    AscsimMixed mixed{};
    if (cores.cubes) mixed.cube_kernel = [](void**) { g_site.enter[1](g_closure); };
    mixed.vectors = cores.vectors;
    const char* json = split ? ascsim_launch_mixed(&launch, &mixed) : ascsim_launch(&launch);
    if (std::strncmp(json, "{\"ok\":true", 10) != 0) g_device.failed = true;
    if (const char* path = std::getenv("ASCSIM_REPORT")) {
        std::ofstream(path, std::ios::app) << json << '\n';
    } else {
        std::fprintf(stderr, "%s: %s\n", kernel, json);
    }
    ascsim_free(json);
}

}  // namespace ascsim

aclError aclInit(const char*) { return ACL_SUCCESS; }
aclError aclFinalize() { return ACL_SUCCESS; }
aclError aclrtSetDevice(int32_t) { return ACL_SUCCESS; }
aclError aclrtResetDevice(int32_t) { return ACL_SUCCESS; }
aclError aclrtGetDeviceCount(uint32_t* count) { return *count = 1, ACL_SUCCESS; }
aclError aclrtCreateContext(aclrtContext* context, int32_t) { return *context = &g_device, ACL_SUCCESS; }
aclError aclrtDestroyContext(aclrtContext) { return ACL_SUCCESS; }
aclError aclrtCreateStream(aclrtStream* stream) { return *stream = &g_device, ACL_SUCCESS; }
aclError aclrtDestroyStream(aclrtStream) { return ACL_SUCCESS; }
aclError aclrtSynchronizeStream(aclrtStream) {
    const bool failed = g_device.failed;
    g_device.failed = false;
    return failed ? kAiCoreException : ACL_SUCCESS;
}
aclError aclrtSynchronizeDevice() { return aclrtSynchronizeStream(nullptr); }

aclError aclrtMalloc(void** pointer, size_t bytes, aclrtMemMallocPolicy) {
    const size_t room =
        (bytes + 2 * kAlign - 1) / kAlign * kAlign;  // never adjacent: overruns leave the argument
    if (posix_memalign(pointer, kAlign, room)) return 207001;
    std::memset(*pointer, Setting("ASCSIM_ZERO_MEMORY", 0) ? 0 : 0xff, room);
    g_device.buffers[*pointer] = {"aclrtMalloc #" + std::to_string(g_device.allocated++), bytes};
    return ACL_SUCCESS;
}
aclError aclrtFree(void* pointer) {
    if (!g_device.buffers.erase(pointer)) return 107000;
    std::free(pointer);
    return ACL_SUCCESS;
}
aclError aclrtMallocHost(void** pointer, size_t bytes) {
    return (*pointer = std::malloc(bytes)) ? ACL_SUCCESS : 207001;
}
aclError aclrtFreeHost(void* pointer) { return std::free(pointer), ACL_SUCCESS; }
aclError aclrtMemset(void* pointer, size_t capacity, int32_t value, size_t bytes) {
    if (bytes > capacity) return 107000;
    std::memset(pointer, value, bytes);
    return ACL_SUCCESS;
}
aclError aclrtMemcpy(void* dst, size_t capacity, const void* src, size_t bytes, aclrtMemcpyKind) {
    if (bytes > capacity) return 107000;
    std::memcpy(dst, src, bytes);
    return ACL_SUCCESS;
}
aclError aclrtMemcpyAsync(void* dst, size_t capacity, const void* src, size_t bytes, aclrtMemcpyKind kind,
                          aclrtStream) {
    return aclrtMemcpy(dst, capacity, src, bytes, kind);
}
const char* aclGetRecentErrMsg() { return ""; }
