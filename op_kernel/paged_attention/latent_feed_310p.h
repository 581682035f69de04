// Latents and rotary keys of a tile on their way to L1 (ascend310p), in steps, so that the vector unit, which
// orders rows of ND pages, does a step between others of its work and moves never wait for it. NZ pages go
// there at once.
#ifndef HYBRID_OPS_KERNEL_PAGED_ATTENTION_LATENT_FEED_310P_H_
#define HYBRID_OPS_KERNEL_PAGED_ATTENTION_LATENT_FEED_310P_H_

#include "block_walk.h"
#include "fractal_stage.h"
#include "pages.h"

namespace hybrid_ops {
namespace paged {

// Keys of a tile in L1.
struct LatentTile {
    CubeTile latents, ropes;
};

template <Layout kLayout>
class LatentFeed310p {
 public:
    __aicore__ inline void Init(const Data& data, const Arguments& a, const Walk& pages, Cube310p& cube,
                                FractalStage& stage) {
        t_ = &data;
        pages_ = &pages;
        cube_ = &cube;
        stage_ = &stage;
        caches_[0].SetGlobalBuffer((__gm__ half*)a.key);
        caches_[1].SetGlobalBuffer((__gm__ half*)a.keyRope);
    }

    // The first rows of the tile are on their way after this; the tile must be done with.
    __aicore__ inline void Begin(const Block& block, const Tile& tile, LatentTile& to) {
        block_ = &block;
        tile_ = tile;
        if constexpr (kLayout == Layout::kNz) {
            LoadColumns(to.latents, 0);
            LoadColumns(to.ropes, 1);
            cube_->Deliver();
        } else {
            to_[0] = &to.latents;
            to_[1] = &to.ropes;
            part_ = 0;
            Open();
            Step();
        }
    }
    // The next rows; the vector unit may wait for those before them.
    __aicore__ inline void Step() {
        if (part_ < kParts) LoadChunk();
    }
    // All rows are on their way. Those asked for last get to L1 with the next Begin, or with Finish: after
    // that the tile can be multiplied.
    __aicore__ inline void Request() {
        while (part_ < kParts) LoadChunk();
    }
    __aicore__ inline void Finish() {
        Request();
        stage_->End();
    }

 private:
    static constexpr uint32_t kParts = 2;
    __aicore__ inline uint32_t Columns(uint32_t part) const { return part == 0 ? t_->keyDim : t_->ropeDim; }

    __aicore__ inline void Open() {
        slot_ = 0;
        stage_->Begin(*to_[part_], Columns(part_));
    }
    __aicore__ inline void LoadChunk() {
        const uint32_t columns = Columns(part_), most = stage_->MostRows();
        for (uint32_t rows = 0, run = 0; rows < most && slot_ < tile_.count; slot_ += run) {
            const uint32_t left = tile_.count - slot_;
            const int64_t slot =
                pages_->Run(block_->item, tile_.begin + slot_, left < most - rows ? left : most - rows, run);
            if (slot < 0) continue;
            stage_->Put(caches_[part_][uint64_t(slot) * columns], run, columns);
            rows += run;
        }
        if (slot_ < tile_.count) return;
        stage_->Close();
        if (++part_ < kParts) Open();
    }
    __aicore__ inline void LoadColumns(CubeTile& to, uint32_t part) {
        const uint32_t columns = Columns(part);
        cube_->BeginColumns(to, tile_.rows, columns);
        uint32_t rows = 0;
        for (uint32_t done = 0, run = 0; done < tile_.count; done += run) {
            const int64_t slot = pages_->Run(block_->item, tile_.begin + done, tile_.count - done, run);
            if (slot < 0) continue;
            LoadNzColumns(to.data[rows * kColumn], caches_[part][RowAt<kLayout>(*t_, slot, 0, columns)], run,
                          columns, t_->pageSize, to.rows);
            rows += run;
        }
        cube_->EndColumns(to);
    }

    const Data* t_;
    const Walk* pages_;
    Cube310p* cube_;
    FractalStage* stage_;
    AscendC::GlobalTensor<half> caches_[kParts];
    const Block* block_ = nullptr;
    CubeTile* to_[kParts];
    Tile tile_;
    uint32_t part_ = kParts;  // latents, ropes, neither
    uint32_t slot_ = 0;       // of the tile, next to be asked for
};

}  // namespace paged
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_PAGED_ATTENTION_LATENT_FEED_310P_H_
