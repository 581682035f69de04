// Which lanes one vector call touches: (mask, repeat, block stride, repeat stride) turned into contiguous
// runs. Rules: asc-devkit docs, "SIMD计算说明/掩码" and "高维切分".
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

namespace ascsim {

constexpr uint32_t kBlock = 32;  // bytes of a DataBlock, the unit of all strides
constexpr uint32_t kBlocksPerRepeat = 8;
constexpr uint32_t kRepeatBytes = kBlock * kBlocksPerRepeat;
constexpr uint32_t kMaxRepeat = 255;  // repeat is 8 bits wide

// Active lanes of a call. `lanes` elements of the widest operand make one repeat; a prefix mask activates the
// first `active` of them in every repeat but the last, which activates `last`.
struct Lanes {
    uint32_t repeats = 0;
    uint32_t lanes = 0;
    bool prefix = true;
    uint32_t active = 0;
    uint32_t last = 0;
    uint64_t bits[2] = {0, 0};  // when not a prefix; lane i of a repeat is bit i

    bool Nothing() const {
        return repeats == 0 || (prefix ? last == 0 && (active == 0 || repeats == 1) : !(bits[0] | bits[1]));
    }
    uint32_t Active(uint32_t repeat) const { return repeat + 1 == repeats ? last : active; }
    bool On(uint32_t repeat, uint32_t lane) const {
        return prefix ? lane < Active(repeat) : (bits[lane >> 6] >> (lane & 63)) & 1u;
    }
    uint64_t Total() const {
        if (repeats == 0) return 0;
        if (prefix) return static_cast<uint64_t>(repeats - 1) * active + last;
        return static_cast<uint64_t>(repeats) * (std::popcount(bits[0]) + std::popcount(bits[1]));
    }
};

inline Lanes PrefixLanes(uint32_t lanes, uint32_t active, uint32_t repeats) {
    return Lanes{repeats, lanes, true, active, active, {0, 0}};
}

// Counter mode: `count` elements in all, repeats follow from it.
inline Lanes CountLanes(uint32_t lanes, uint64_t count) {
    Lanes r{static_cast<uint32_t>((count + lanes - 1) / lanes), lanes, true, lanes, lanes, {0, 0}};
    if (r.repeats) r.last = static_cast<uint32_t>(count - static_cast<uint64_t>(r.repeats - 1) * lanes);
    return r;
}

inline Lanes BitLanes(uint32_t lanes, uint64_t low, uint64_t high, uint32_t repeats) {
    if (lanes <= 64) high = 0;
    if (lanes < 64) low &= (uint64_t{1} << lanes) - 1;
    const uint32_t ones = std::countr_one(low) == 64 ? 64 + std::countr_one(high) : std::countr_one(low);
    if (ones == static_cast<uint32_t>(std::popcount(low) + std::popcount(high)))
        return PrefixLanes(lanes, ones, repeats);
    return Lanes{repeats, lanes, false, 0, 0, {low, high}};
}

// Address pattern of one operand, strides in bytes.
struct Stride {
    uint64_t block = kBlock;
    uint64_t repeat = kRepeatBytes;
};

// One operand as the loops see it: host address, strides; `size` bytes per element.
template <uint32_t size_>
struct Lane {
    static constexpr uint32_t size = size_;
    static constexpr uint32_t per_block = kBlock / size_;
    uint8_t* base;
    Stride stride;

    uint8_t* At(uint64_t repeat, uint32_t lane) const {
        return base + repeat * stride.repeat + (lane / per_block) * stride.block + (lane % per_block) * size;
    }
    bool DenseRepeat(uint32_t lanes) const { return lanes <= per_block || stride.block == kBlock; }
    bool Dense(uint32_t lanes) const {
        return DenseRepeat(lanes) && stride.repeat == static_cast<uint64_t>(lanes) * size;
    }
};

// Calls run(n, pointer…) for maximal contiguous stretches of active lanes, in instruction order. Runs end at
// a block of the widest operand unless all operands are contiguous.
template <typename Run, typename... Operand>
inline __attribute__((always_inline)) void ForEachRun(const Lanes& lanes, Run&& run,
                                                      const Operand&... operand) {
    if (lanes.repeats == 0) return;
    constexpr uint32_t per_block = [] {
        uint32_t n = kBlock;
        ((n = Operand::per_block < n ? Operand::per_block : n), ...);
        return n;
    }();
    if (lanes.prefix) {
        const bool full = lanes.active == lanes.lanes || lanes.repeats == 1;
        if (full && (... && operand.Dense(lanes.lanes))) {
            run(static_cast<uint32_t>(lanes.Total()), operand.base...);
            return;
        }
        if ((... && operand.DenseRepeat(lanes.lanes))) {
            for (uint32_t r = 0; r < lanes.repeats; ++r) {
                if (const uint32_t n = lanes.Active(r)) run(n, operand.base + r * operand.stride.repeat...);
            }
            return;
        }
        for (uint32_t r = 0; r < lanes.repeats; ++r) {
            const uint32_t n = lanes.Active(r);
            uint32_t lane = 0;
            for (; lane + per_block <= n; lane += per_block)
                run(std::integral_constant<uint32_t, per_block>(), operand.At(r, lane)...);
            if (lane < n) run(n - lane, operand.At(r, lane)...);
        }
        return;
    }
    for (uint32_t r = 0; r < lanes.repeats; ++r) {
        for (uint32_t lane = 0; lane < lanes.lanes;) {
            if (!lanes.On(r, lane)) {
                ++lane;
                continue;
            }
            const uint32_t begin = lane;
            const uint32_t limit = (lane / per_block + 1) * per_block;
            while (lane < limit && lanes.On(r, lane)) ++lane;
            run(lane - begin, operand.At(r, begin)...);
        }
    }
}

}  // namespace ascsim
