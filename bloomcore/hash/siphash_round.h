/* siphash_round: the constants and the round of SipHash, written once for one number and for vectors: a lane is an
 * input of its own. Internal to the files that hash by it. */
#pragma once

#include <stdint.h>

#define INIT0 UINT64_C(0x736f6d6570736575)
#define INIT1 UINT64_C(0x646f72616e646f6d)
#define INIT2 UINT64_C(0x6c7967656e657261)
#define INIT3 UINT64_C(0x7465646279746573)

#define ROTATE(x, by) ((x) << (by) | (x) >> (64 - (by)))

#define ROUND(v0, v1, v2, v3)         \
    do {                              \
        (v0) += (v1);                 \
        (v2) += (v3);                 \
        (v1) = ROTATE(v1, 13) ^ (v0); \
        (v3) = ROTATE(v3, 16) ^ (v2); \
        (v0) = ROTATE(v0, 32);        \
        (v2) += (v1);                 \
        (v0) += (v3);                 \
        (v1) = ROTATE(v1, 17) ^ (v2); \
        (v3) = ROTATE(v3, 21) ^ (v0); \
        (v2) = ROTATE(v2, 32);        \
    } while (0)
