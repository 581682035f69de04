// UB bank conflicts. 910B maps a byte address as offset (5 bits), bank group (4), row (7), bank (2); two
// reads of one repeat collide in a bank group, a read and a write in a bank unless they start in the same
// group (then the write follows the read through). Source: asc-devkit sample bank_conflict_ub, eight
// scenarios.
#include <algorithm>
#include <cmath>

#include "core/timing.h"

namespace ascsim {

namespace {

constexpr uint64_t kBlock = 32, kGroups = 16, kBankBytes = 65536;
constexpr double kReadWrite = 0.77;  // lost cycles of a read-write conflict against a read-read one: 51 / 66

struct Touch {
    uint32_t groups[4] = {};  // bank groups hit, by bank
    uint32_t All() const { return groups[0] | groups[1] | groups[2] | groups[3]; }
};

// Address of the operand's part in one of `repeats` repeats; a contiguous operand may be stored as one long
// block, one that every repeat reads again has repeat stride 0.
uint64_t Begin(const Access& a, uint32_t repeat, uint32_t repeats, uint32_t* block_bytes) {
    *block_bytes = std::max<uint32_t>(1, a.block_bytes);
    if (a.repeats <= 1 && a.blocks <= 1 && repeats > 1 && a.repeat_stride != 0) {
        *block_bytes = std::max<uint32_t>(1, a.block_bytes / repeats);
        return a.base + uint64_t(repeat) * *block_bytes;
    }
    return a.base + uint64_t(repeat % std::max<uint32_t>(1, a.repeats)) * a.repeat_stride;
}

Touch TouchOf(const Access& a, uint32_t repeat, uint32_t repeats) {
    Touch touch;
    uint32_t bytes = 0;
    const uint64_t begin = Begin(a, repeat, repeats, &bytes);
    for (uint32_t b = 0; b < std::max<uint32_t>(1, a.blocks); ++b) {
        const uint64_t first = begin + b * a.block_stride;
        for (uint64_t block = first / kBlock; block <= (first + bytes - 1) / kBlock; ++block) {
            touch.groups[block * kBlock / kBankBytes % 4] |= 1u << (block % kGroups);
        }
    }
    return touch;
}

}  // namespace

uint32_t BankConflicts(const Op& op) {
    const Access* reads[2] = {};
    const Access* write = nullptr;
    int n = 0;
    for (uint8_t i = 0; i < op.accesses; ++i) {
        const Access& a = op.access[i];
        if (a.mem != Mem::UB) continue;
        if (a.write) {
            write = write ? write : &a;
        } else if (n < 2) {
            reads[n++] = &a;
        }
    }
    if (n == 0) return 0;
    const uint32_t repeats = std::max<uint32_t>({1, op.work.repeats, reads[0]->repeats});
    double lost = 0;
    for (uint32_t r = 0; r < repeats; ++r) {
        Touch read[2];
        for (int i = 0; i < n; ++i) read[i] = TouchOf(*reads[i], r, repeats);
        if (n == 2 && reads[0]->base != reads[1]->base && (read[0].All() & read[1].All())) {
            lost += 1;
            continue;
        }
        if (!write) continue;
        const Touch written = TouchOf(*write, r, repeats);
        bool collides = false;
        for (int i = 0; i < n && !collides; ++i) {
            uint32_t bytes = 0;
            const uint64_t from = Begin(*reads[i], r, repeats, &bytes),
                           to = Begin(*write, r, repeats, &bytes);
            if (from / kBlock % kGroups == to / kBlock % kGroups) continue;
            for (int bank = 0; bank < 4; ++bank)
                collides |= (read[i].groups[bank] & written.groups[bank]) != 0;
        }
        if (collides) lost += kReadWrite;
    }
    return uint32_t(std::lround(lost));
}

}  // namespace ascsim
