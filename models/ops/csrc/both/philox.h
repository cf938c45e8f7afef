// Counter-based random numbers: each depends only on its index and a key. The reference is ops/draw.py.
#pragma once
#include <cstdint>
#include "device.h"

namespace neus {

// The words of counter (place, 0, 0, 0): Philox4x32.
__device__ inline void philox(uint32_t place, uint32_t first_key, uint32_t second_key, uint32_t *words) {
    uint32_t a = place, b = 0, c = 0, d = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t left = (uint64_t)(uint32_t)MULTIPLIER_0 * a, right = (uint64_t)(uint32_t)MULTIPLIER_1 * c;
        a = (uint32_t)(right >> 32) ^ b ^ first_key, c = (uint32_t)(left >> 32) ^ d ^ second_key;
        b = (uint32_t)right, d = (uint32_t)left;
        first_key += (uint32_t)STEP_OF_KEY_0, second_key += (uint32_t)STEP_OF_KEY_1;
    }
    words[0] = a, words[1] = b, words[2] = c, words[3] = d;
}

// Two standard normal numbers of two words (Box and Muller).
__device__ inline void normals(const uint32_t *words, float *drawn) {
    constexpr float SHARE = 1.f / (1 << BITS), TURN = 3.14159265f * 2 * SHARE;
    const int high = (int)(words[0] >> (32 - BITS)), around = (int)(words[1] >> (32 - BITS)) - (1 << (BITS - 1));
    const float radius = sqrtf(-2.f * logf((float)(high + 1) * SHARE)), angle = (float)around * TURN;
    drawn[0] = radius * cosf(angle), drawn[1] = radius * sinf(angle);
}

}  // namespace neus
