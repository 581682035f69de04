// File helpers that AscendC samples expect beside the runtime.
#pragma once
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

#define INFO_LOG(format, ...) std::fprintf(stdout, "[INFO] " format "\n" __VA_OPT__(, ) __VA_ARGS__)
#define WARN_LOG(format, ...) std::fprintf(stdout, "[WARN] " format "\n" __VA_OPT__(, ) __VA_ARGS__)
#define ERROR_LOG(format, ...) std::fprintf(stdout, "[ERROR] " format "\n" __VA_OPT__(, ) __VA_ARGS__)
#define CHECK_ACL(call)                                                                              \
    do {                                                                                             \
        if (const int error_ = (call)) ERROR_LOG("%s:%d: acl error %d", __FILE__, __LINE__, error_); \
    } while (0)

// Reads the whole file, at most `capacity` bytes; `size` receives its length.
inline bool ReadFile(const std::string& path, size_t& size, void* buffer, size_t capacity) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    if (!file) return ERROR_LOG("cannot open %s", path.c_str()), false;
    size = size_t(file.tellg());
    if (size == 0 || size > capacity)
        return ERROR_LOG("%s: %zu bytes, buffer has %zu", path.c_str(), size, capacity), false;
    file.seekg(0);
    return bool(file.read(static_cast<char*>(buffer), std::streamsize(size)));
}
inline bool WriteFile(const std::string& path, const void* buffer, size_t size) {
    std::ofstream file(path, std::ios::binary);
    if (!file) return ERROR_LOG("cannot open %s", path.c_str()), false;
    return bool(file.write(static_cast<const char*>(buffer), std::streamsize(size)));
}
