// Tiles: consecutive rows of y, of one or more sequences, that are loaded, computed and stored at once.
#ifndef HYBRID_OPS_HYBRID_CAUSAL_CONV1D_TILE_H_
#define HYBRID_OPS_HYBRID_CAUSAL_CONV1D_TILE_H_

#include "parts.h"

namespace hybrid_ops {
namespace conv1d {

enum class History { kCarried, kZeros, kLine, kRows };  // where the W - 1 rows before a segment are

// Rows of a tile that belong to one part. Staged rows are those before the segment, unless carried over from
// the last tile, then its own.
struct Segment {
    uint32_t row, rows;  // of the tile
    uint32_t staged;     // first staged row
    uint32_t base;       // row of the widened buffer that tap 0 of the first row meets
    History history;
    int64_t x;        // row of x
    int64_t line;     // negative: the rows become zero
    int64_t window;   // row of the line
    bool storesLine;  // the staged rows hold all that the line becomes
    bool keep;
    bool startsLong;  // of a sequence longer than a tile: its line is written from x
    int64_t last;     // end of the sequence
};

struct Tile {
    int64_t begin;
    uint32_t rows, staged, count;
    bool storesLines, hasZeros, continues;  // continues: the next tile goes on with the last segment's part
    Segment segments[kMaxSegments];
};

class Tiles {
 public:
    __aicore__ inline Tiles(const Data& t, Parts& parts) : t_(t), parts_(parts) {}

    __aicore__ inline void Begin(int64_t low, int64_t high) {
        parts_.Begin(low, high);
        more_ = parts_.Next(part_);
        at_ = part_.begin;
    }

    // False: no rows are left.
    __aicore__ inline bool Next(Tile& tile) {
        if (!more_) return false;
        tile.begin = at_;
        tile.rows = tile.staged = tile.count = 0;
        tile.storesLines = tile.hasZeros = tile.continues = false;
        while (more_ && tile.rows < t_.tileRows && tile.count < kMaxSegments) {
            const uint32_t n = Fit(tile);
            if (n == 0) break;
            Append(tile, n);
            at_ += n;
            if (at_ < part_.end) {
                tile.continues = part_.line >= 0;
                break;
            }
            more_ = parts_.Next(part_);
            at_ = part_.begin;
        }
        return true;
    }

 private:
    // Rows of the part that go to the tile; 0: the tile is full.
    __aicore__ inline uint32_t Fit(const Tile& tile) const {
        const int64_t left = part_.end - at_;
        uint32_t room = t_.tileRows - tile.rows;
        if (part_.line >= 0) {
            const uint32_t before = at_ == part_.begin ? t_.width - 1 : 0;
            const uint32_t free = t_.stagedRows - tile.staged;
            if (free <= before) return 0;
            if (free - before < room) room = free - before;
            if (before != 0 && Whole() && left > room) return 0;
        }
        return left < room ? uint32_t(left) : room;
    }
    // The part is a sequence that is never cut: a tile has room for all of it.
    __aicore__ inline bool Whole() const {
        return part_.begin == part_.first && part_.end == part_.last &&
               part_.last - part_.first <= int64_t(t_.tileRows);
    }

    __aicore__ inline void Append(Tile& tile, uint32_t n) {
        const uint32_t before = t_.width - 1;
        Segment& s = tile.segments[tile.count++];
        s.row = tile.rows;
        s.rows = n;
        s.line = part_.line;
        s.storesLine = false;
        s.startsLong = false;
        tile.rows += n;
        if (part_.line < 0) {
            tile.hasZeros = true;
            return;
        }
        const bool first = at_ == part_.first;
        s.x = at_;
        s.window = part_.window;
        s.keep = part_.keep;
        s.last = part_.last;
        s.staged = tile.staged;
        s.history = at_ != part_.begin ? History::kCarried
                    : !first           ? History::kRows
                    : part_.window < 0 ? History::kZeros
                                       : History::kLine;
        const bool carried = s.history == History::kCarried;
        s.base = carried ? 0 : before + tile.staged;
        s.storesLine = first && Whole();
        s.startsLong = first && !s.storesLine;
        tile.storesLines = tile.storesLines || s.storesLine;
        tile.staged += n + (carried ? 0 : before);
    }

    const Data& t_;
    Parts& parts_;
    Part part_;
    int64_t at_;
    bool more_;
};

}  // namespace conv1d
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_HYBRID_CAUSAL_CONV1D_TILE_H_
