// High-level activations, built from the basic calls in the order the library uses them, so that rounding and
// temporary space follow. Docs: "高阶API/激活函数/Sigmoid", "高阶API/激活函数/Silu".
#pragma once
#include "ascsim/event.h"
#include "ascsim/fill.h"
#include "ascsim/tpipe.h"

namespace ascsim {

// dst = 1 + exp(-src) over the lanes, one vector call per step with a barrier behind each.
template <typename T>
void OnePlusExpMinus(Site site, const Lanes& lanes, const AscendC::LocalTensor<T>& dst,
                     const AscendC::LocalTensor<T>& src) {
    const auto step = [&](auto&& call) {
        call();
        PipeBarrierOf(site.api, Pipe::V, site.loc);
    };
    step([&] { RunUnary<"Muls">(site, lanes, dst, src, {}, Bind<MulFn>(static_cast<T>(-1.0f))); });
    step([&] { RunUnary<"Exp">(site, lanes, dst, dst, {}, ExpFn<T>{}); });
    step([&] { RunUnary<"Adds">(site, lanes, dst, dst, {}, Bind<AddFn>(static_cast<T>(1.0f))); });
}

template <typename T>
void CheckDistinct(Site site, const char* a_name, const AscendC::LocalTensor<T>& a, const char* b_name,
                   uint64_t b, uint64_t b_bytes, uint64_t a_bytes) {
    if (a.offset() < b + b_bytes && b < a.offset() + a_bytes) {
        WarnAt(site, Severity::Error, "param.overlap", "%s overlaps %s: this call allows no overlap", a_name,
               b_name);
    }
}

}  // namespace ascsim

namespace AscendC {

// dst = 1 / (1 + exp(-src)); sharedTmpBuffer holds ones for as many elements as it has room for, and the call
// works in pieces of that size.
template <typename T, bool isReuseSource = false>
void Sigmoid(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor,
             const LocalTensor<uint8_t>& sharedTmpBuffer, const uint32_t calCount, Loc loc = Loc::Here()) {
    ascsim::support::Sigmoid<T>();
    const ascsim::Site site{"Sigmoid", loc};
    const uint32_t piece =
        sharedTmpBuffer.GetSize() / sizeof(T) / (ascsim::kBlock / sizeof(T)) * (ascsim::kBlock / sizeof(T));
    if (piece == 0) {
        ascsim::Fail(ascsim::CallSite("Sigmoid", loc, ascsim::Pipe::V), "param.tmp_size",
                     "sharedTmpBuffer: too small: got %u bytes; allowed %u and above",
                     sharedTmpBuffer.GetSize(), ascsim::kBlock);
    }
    const uint64_t bytes = calCount * sizeof(T);
    ascsim::CheckDistinct(site, "dst", dstTensor, "src", srcTensor.offset(), bytes, bytes);
    ascsim::CheckDistinct(site, "src", srcTensor, "sharedTmpBuffer", sharedTmpBuffer.offset(),
                          std::min<uint64_t>(bytes, piece * sizeof(T)), bytes);
    ascsim::CheckDistinct(site, "dst", dstTensor, "sharedTmpBuffer", sharedTmpBuffer.offset(),
                          std::min<uint64_t>(bytes, piece * sizeof(T)), bytes);
    const LocalTensor<T> ones = sharedTmpBuffer.template ReinterpretCast<T>();
    for (uint32_t at = 0; at < calCount; at += piece) {
        const uint32_t n = std::min(piece, calCount - at);
        const ascsim::Lanes lanes = ascsim::CountLanes(ascsim::LanesPerRepeat(sizeof(T)), n);
        ascsim::OnePlusExpMinus(site, lanes, dstTensor[at], srcTensor[at]);
        ascsim::RunDuplicate<T>(site, lanes, ones, static_cast<T>(1.0f), 1, 8);
        ascsim::PipeBarrierOf("Sigmoid", ascsim::Pipe::V, loc);
        ascsim::RunBinary<"Div", ascsim::DivFn>(site, lanes, dstTensor[at], ones, dstTensor[at], {});
        ascsim::PipeBarrierOf("Sigmoid", ascsim::Pipe::V, loc);
    }
    ascsim::WriteMask(site, false, ~uint64_t{0}, ~uint64_t{0});
}
template <typename T, bool isReuseSource = false>
void Sigmoid(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const uint32_t calCount,
             Loc loc = Loc::Here()) {
    LocalTensor<uint8_t> rest;
    PopStackBuffer<uint8_t, TPosition::LCM>(rest);
    Sigmoid<T, isReuseSource>(dstTensor, srcTensor, rest, calCount, loc);
}
template <typename T, bool isReuseSource = false>
void Sigmoid(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor,
             const LocalTensor<uint8_t>& sharedTmpBuffer, Loc loc = Loc::Here()) {
    Sigmoid<T, isReuseSource>(dstTensor, srcTensor, sharedTmpBuffer, srcTensor.GetSize(), loc);
}
template <typename T, bool isReuseSource = false>
void Sigmoid(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, Loc loc = Loc::Here()) {
    Sigmoid<T, isReuseSource>(dstTensor, srcTensor, srcTensor.GetSize(), loc);
}

// dst = src / (1 + exp(-src)); no temporary space, source and destination apart.
template <typename T, bool isReuseSource = false>
void Silu(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal, uint32_t dataSize,
          Loc loc = Loc::Here()) {
    ascsim::support::Silu<T>();
    const ascsim::Site site{"Silu", loc};
    ascsim::CheckDistinct(site, "dst", dstLocal, "src", srcLocal.offset(), dataSize * sizeof(T),
                          dataSize * sizeof(T));
    const ascsim::Lanes lanes = ascsim::CountLanes(ascsim::LanesPerRepeat(sizeof(T)), dataSize);
    ascsim::OnePlusExpMinus(site, lanes, dstLocal, srcLocal);
    ascsim::RunBinary<"Div", ascsim::DivFn>(site, lanes, dstLocal, srcLocal, dstLocal, {});
    ascsim::PipeBarrierOf("Silu", ascsim::Pipe::V, loc);
    ascsim::WriteMask(site, false, dataSize, 0);  // the library leaves its element total in the mask register
}

}  // namespace AscendC
