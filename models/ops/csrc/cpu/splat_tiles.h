// The list of Gaussians of each tile in depth order. Tiles are processed in groups, so that the memory of the lists is
// proportional to the number of Gaussians.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>
#include "splat_forms.h"

namespace neus {

constexpr int TILE = 16;  // pixels along a side
constexpr long PAIRS_FOR_EACH = 4, PAIRS_FOR_ALL = 1 << 16;  // pairs of a Gaussian and a tile in a group

// The visible Gaussians in depth order, ties by index. A radix sort of the bits of positive floats, which have the same
// order.
inline std::vector<int> by_depth(long count, const float *depths, const int *radii) {
    std::vector<std::pair<uint32_t, int>> entries, sorted;
    entries.reserve(count);
    for (long n = 0; n < count; n++)
        if (radii[2 * n] > 0) {
            uint32_t bits;
            std::memcpy(&bits, depths + n, sizeof(bits));
            entries.emplace_back(bits, (int)n);
        }
    sorted.resize(entries.size());
    constexpr int DIGITS = 11, VALUES = 1 << DIGITS;
    for (int shift = 0; shift < 32; shift += DIGITS) {
        std::vector<long> starts(VALUES + 1);
        for (const auto &entry : entries) starts[(entry.first >> shift & (VALUES - 1)) + 1]++;
        for (int v = 0; v < VALUES; v++) starts[v + 1] += starts[v];
        for (const auto &entry : entries) sorted[starts[entry.first >> shift & (VALUES - 1)]++] = entry;
        entries.swap(sorted);
    }
    std::vector<int> order(entries.size());
    for (size_t k = 0; k < entries.size(); k++) order[k] = entries[k].second;
    return order;
}

// A range of tiles, first to last - 1 in row order, with the ranks of their Gaussians: those of tile t are
// ranks[starts[t - first]] to ranks[starts[t - first + 1]].
struct Group {
    int first, last;
    std::vector<long> starts;
    std::vector<int> ranks;
};

// The number of Gaussians per tile, from the corners of their windows: the cost does not depend on the window size.
inline std::vector<long> tile_counts(const std::vector<Window> &windows, int across, int down) {
    std::vector<long> counts((long)(across + 1) * (down + 1));
    const auto at = [&](int x, int y) -> long & { return counts[(long)y * (across + 1) + x]; };
    for (const Window &w : windows) {
        if (w.is_empty()) continue;
        const int left = w.left / TILE, top = w.top / TILE, right = w.right / TILE + 1, bottom = w.bottom / TILE + 1;
        at(left, top)++, at(right, top)--, at(left, bottom)--, at(right, bottom)++;
    }
    std::vector<long> found((long)across * down);
    for (int y = 0; y < down; y++)
        for (int x = 0; x < across; x++) {
            long &here = at(x, y);
            if (x > 0) here += at(x - 1, y);
            if (y > 0) here += at(x, y - 1);
            if (x > 0 && y > 0) here -= at(x - 1, y - 1);
            found[(long)y * across + x] = here;
        }
    return found;
}

// The lists of a range of tiles.
inline void fill(Group &group, const std::vector<Window> &windows, const std::vector<long> &counts, int across) {
    const int tiles = group.last - group.first;
    group.starts.assign(tiles + 1, 0);
    for (int t = 0; t < tiles; t++) group.starts[t + 1] = group.starts[t] + counts[group.first + t];
    group.ranks.resize(group.starts[tiles]);
    std::vector<long> next(group.starts.begin(), group.starts.end() - 1);
    const int top = group.first / across, bottom = (group.last - 1) / across;
    for (size_t rank = 0; rank < windows.size(); rank++) {
        const Window &w = windows[rank];
        if (w.is_empty()) continue;
        for (int y = std::max(top, w.top / TILE); y <= std::min(bottom, w.bottom / TILE); y++) {
            const int start = std::max(group.first, y * across + w.left / TILE);
            const int end = std::min(group.last, y * across + w.right / TILE + 1);
            for (int t = start; t < end; t++) group.ranks[next[t - group.first]++] = (int)rank;
        }
    }
}

// Call `work(group)` for all tiles of an image, group by group; groups do not depend on the number of threads.
template <typename Work>
inline void in_groups(const std::vector<Window> &windows, int width, int height, const Work &work) {
    const int across = (width + TILE - 1) / TILE, down = (height + TILE - 1) / TILE, tiles = across * down;
    const std::vector<long> counts = tile_counts(windows, across, down);
    const long most = PAIRS_FOR_ALL + PAIRS_FOR_EACH * (long)windows.size();
    Group group;
    for (group.first = 0; group.first < tiles; group.first = group.last) {
        long pairs = counts[group.first];
        group.last = group.first + 1;
        while (group.last < tiles && pairs + counts[group.last] <= most) pairs += counts[group.last++];
        fill(group, windows, counts, across);
        work(group);
    }
}

}  // namespace neus
