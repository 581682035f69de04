// Sums of the counts in front of each expert.
#ifndef HYBRID_OPS_HYBRID_MOE_INIT_ROUTING_COUNT_SCAN_H_
#define HYBRID_OPS_HYBRID_MOE_INIT_ROUTING_COUNT_SCAN_H_

#include "../hybrid_moe_init_routing_tiling.h"

#include "../common/buffers.h"

namespace hybrid_ops {
namespace routing {

class CountScan {
    using IntTensor = AscendC::LocalTensor<int32_t>;

 public:
    // On the vector unit where local memory has room for it.
    __aicore__ inline void Init(AscendC::TPipe& pipe, uint32_t pitch) {
        pitch_ = pitch;
        if (!Scans()) return;
        for (uint32_t i = 0; i < 2; ++i) Reserve(pipe, buffers_[i], sums_[i], pitch + kBlock);
        Reserve(pipe, buffers_[2], index_, pitch);
        Reserve(pipe, buffers_[3], from_, pitch);
    }
    // offsets <- sums of the counts before each; ready for the vector unit.
    __aicore__ inline void Run(const IntTensor& offsets, const IntTensor& counts) {
        if (Scans()) {
            Order<AscendC::HardEvent::S_V>();
            Scan(offsets, counts);
            return;
        }
        int32_t sum = 0;
        for (uint32_t e = 0; e < pitch_; ++e) {
            offsets.SetValue(e, sum);
            sum += counts.GetValue(e);
        }
        Order<AscendC::HardEvent::S_V>();
    }

 private:
    static constexpr uint32_t kMostScanned = 1088;  // counts of 1024 experts

    __aicore__ inline bool Scans() const { return pitch_ <= kMostScanned; }
    // From sums of ever more neighbours; indices before the first
    // meet a block of zeros.
    __aicore__ inline void Scan(const IntTensor& offsets, const IntTensor& counts) {
        const int32_t n = int32_t(pitch_);
        IntTensor src = sums_[0], dst = sums_[1];
        AscendC::Duplicate(src, 0, int32_t(kBlock));
        AscendC::Duplicate(dst, 0, int32_t(kBlock));
        AscendC::Adds(src[kBlock], counts, 0, n);
        AscendC::CreateVecIndex(index_, int32_t(kBlock), uint32_t(n));
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Muls(index_, index_, int32_t(sizeof(int32_t)), n);
        AscendC::PipeBarrier<PIPE_V>();
        for (int32_t apart = 1; apart < n; apart *= 2) {
            AscendC::Adds(from_, index_, -apart * int32_t(sizeof(int32_t)), n);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Maxs(from_, from_, 0, n);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Gather(dst[kBlock], src, from_.ReinterpretCast<uint32_t>(), uint32_t(0), uint32_t(n));
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Add(dst[kBlock], dst[kBlock], src[kBlock], n);
            AscendC::PipeBarrier<PIPE_V>();
            const IntTensor swap = src;
            src = dst;
            dst = swap;
        }
        AscendC::Sub(offsets, src[kBlock], counts, n);
        AscendC::PipeBarrier<PIPE_V>();
    }

    Buffer buffers_[4];
    IntTensor sums_[2], index_, from_;
    uint32_t pitch_ = 0;
};

}  // namespace routing
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_HYBRID_MOE_INIT_ROUTING_COUNT_SCAN_H_
