// Device runtime calls for host code that launches kernels itself (.asc files): device memory is host memory,
// every allocation is an argument of every launch, launches run at once in the simulator.
#pragma once
#include <cstddef>
#include <cstdint>

typedef int aclError;
typedef void* aclrtStream;
typedef void* aclrtContext;
typedef void* aclrtEvent;
#define ACL_SUCCESS 0
#define ACL_ERROR_NONE 0

enum aclrtMemMallocPolicy {
    ACL_MEM_MALLOC_HUGE_FIRST,
    ACL_MEM_MALLOC_HUGE_ONLY,
    ACL_MEM_MALLOC_NORMAL_ONLY,
    ACL_MEM_MALLOC_HUGE_FIRST_P2P,
    ACL_MEM_MALLOC_HUGE_ONLY_P2P,
    ACL_MEM_MALLOC_NORMAL_ONLY_P2P,
};
enum aclrtMemcpyKind {
    ACL_MEMCPY_HOST_TO_HOST,
    ACL_MEMCPY_HOST_TO_DEVICE,
    ACL_MEMCPY_DEVICE_TO_HOST,
    ACL_MEMCPY_DEVICE_TO_DEVICE,
};

aclError aclInit(const char* config);
aclError aclFinalize();
aclError aclrtSetDevice(int32_t device);
aclError aclrtResetDevice(int32_t device);
aclError aclrtGetDeviceCount(uint32_t* count);
aclError aclrtCreateContext(aclrtContext* context, int32_t device);
aclError aclrtDestroyContext(aclrtContext context);
aclError aclrtCreateStream(aclrtStream* stream);
aclError aclrtDestroyStream(aclrtStream stream);
// 507015, the runtime's "AI Core exception", when a launch since the last call had errors.
aclError aclrtSynchronizeStream(aclrtStream stream);
aclError aclrtSynchronizeDevice();
aclError aclrtMalloc(void** pointer, size_t bytes, aclrtMemMallocPolicy policy);
aclError aclrtFree(void* pointer);
aclError aclrtMallocHost(void** pointer, size_t bytes);
aclError aclrtFreeHost(void* pointer);
aclError aclrtMemset(void* pointer, size_t capacity, int32_t value, size_t bytes);
aclError aclrtMemcpy(void* dst, size_t capacity, const void* src, size_t bytes, aclrtMemcpyKind kind);
aclError aclrtMemcpyAsync(void* dst, size_t capacity, const void* src, size_t bytes, aclrtMemcpyKind kind,
                          aclrtStream stream);
const char* aclGetRecentErrMsg();

namespace ascsim {

// Cores of one AI Core that run a kernel; both 0: one kind of core, or a combined one.
struct KernelCores {
    uint32_t cubes, vectors;
};
using SiteEntry = void (*)(void* closure);

// A library compiled for cube cores and one for vector cores both know every launch of the source; `site`
// names it.
bool RegisterSite(const char* site, bool cube, uint64_t closure_bytes, SiteEntry enter);
void LaunchClosure(const char* kernel, KernelCores cores, uint32_t blocks, const char* site, void* closure);

#if defined(__DAV_C220_CUBE__)
constexpr bool kCubeLibrary = true;
#else
constexpr bool kCubeLibrary = false;
#endif

template <int number, typename Call>
struct LaunchSite {
    static const char* Name() { return __PRETTY_FUNCTION__; }
    static void Enter(void* closure) { (*static_cast<Call*>(closure))(); }
    static inline const bool registered = RegisterSite(Name(), kCubeLibrary, sizeof(Call), Enter);
};

// Target of a rewritten `kernel<<<blocks, l2, stream>>>(args)`; `number` counts the launches of the source.
template <int number, typename L2, typename Stream, typename Call>
void LaunchKernel(const char* kernel, KernelCores cores, uint32_t blocks, L2, Stream, Call call) {
    using Site = LaunchSite<number, Call>;
    [[maybe_unused]] const bool* known = &Site::registered;  // keeps the registration in the library
    LaunchClosure(kernel, cores, blocks, Site::Name(), &call);
}

}  // namespace ascsim
