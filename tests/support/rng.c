#include "rng.h"

#include <string.h>

void rng_init(struct rng *rng, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        uint64_t x = seed += UINT64_C(0x9e3779b97f4a7c15);

        x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
        rng->state[i] = x ^ x >> 31;
    }
}

void rng_fill(struct rng *rng, void *buf, size_t len)
{
    unsigned char *p = buf;

    while (len > 0) {
        uint64_t x = rng_next(rng);
        size_t n = len < sizeof(x) ? len : sizeof(x);

        memcpy(p, &x, n);
        p += n;
        len -= n;
    }
}
