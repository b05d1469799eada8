#include "items.h"

#include <endian.h>
#include <math.h>
#include <string.h>

#define ABSENT (UINT64_C(1) << 62) /* numbers from here on are never loaded */

/* splitmix64 (Steele, Lea, Flood 2014): one multiplication chain per number, any seed is good. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t items_random(struct items *items)
{
    return mix(items->state += UINT64_C(0x9e3779b97f4a7c15));
}

static uint64_t below(struct items *items, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)items_random(items) * n) >> 64);
}

static double fraction(struct items *items)
{
    return (double)(items_random(items) >> 11) * 0x1p-53;
}

/* ---- Zipf ---- */

/* W. Hormann, G. Derflinger, "Rejection-inversion to generate variates from monotone discrete distributions" (1996):
 * constant time per number and no table, however many items there are. h is the integral of x^-skew. */
static double h(const struct items *items, double x)
{
    return pow(x, 1 - items->options.skew) / (1 - items->options.skew);
}

static double h_inverse(const struct items *items, double x)
{
    return pow(x * (1 - items->options.skew), 1 / (1 - items->options.skew));
}

static void zipf_init(struct items *items)
{
    items->h_first = h(items, 1.5) - 1;
    items->h_last = h(items, (double)items->options.count + 0.5);
    items->shift = 2 - h_inverse(items, h(items, 2.5) - pow(2, -items->options.skew));
}

static uint64_t zipf_next(struct items *items)
{
    for (;;) {
        double u = items->h_last + fraction(items) * (items->h_first - items->h_last);
        double x = h_inverse(items, u);
        double k = floor(x + 0.5);
        if (k < 1)
            k = 1;
        else if (k > (double)items->options.count)
            k = (double)items->options.count;
        if (k - x <= items->shift || u >= h(items, k + 0.5) - pow(k, -items->options.skew))
            return mix((uint64_t)k) % items->options.count; /* popular items are not neighbours */
    }
}

/* ---- all ---- */

void items_init(struct items *items, const struct items_options *options, unsigned index, unsigned stride)
{
    *items = (struct items){.options = *options, .next = index, .stride = stride};
    items->state = mix(options->seed + index * UINT64_C(0x632be59bd9b4e019));
    items->hit_threshold = options->hits >= 1 ? UINT64_MAX : (uint64_t)(options->hits * 0x1p64);
    if (options->order == ITEMS_ZIPF)
        zipf_init(items);
}

uint64_t items_next(struct items *items)
{
    uint64_t number;

    if (items->hit_threshold != UINT64_MAX && items_random(items) >= items->hit_threshold)
        return ABSENT + (items_random(items) >> 3);
    switch (items->options.order) {
    case ITEMS_SEQUENTIAL:
        number = items->next;
        items->next += items->stride;
        break;
    case ITEMS_ZIPF:
        number = zipf_next(items);
        break;
    default:
        number = below(items, items->options.count);
        break;
    }
    return items->options.start + number;
}

/* The eight hexadecimal digits of a number, the lowest first, one in each byte from the lowest on. */
static uint64_t hex_digits(uint32_t number)
{
    uint64_t v = number;
    v = (v | v << 16) & UINT64_C(0x0000ffff0000ffff);
    v = (v | v << 8) & UINT64_C(0x00ff00ff00ff00ff);
    v = (v | v << 4) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    uint64_t letters = (v + UINT64_C(0x0606060606060606)) >> 4 & UINT64_C(0x0101010101010101);
    return v + UINT64_C(0x3030303030303030) + letters * ('a' - '0' - 10);
}

size_t items_size(const struct items *items, uint64_t number)
{
    unsigned span = items->options.max_size - items->options.min_size + 1;
    return items->options.min_size + (span > 1 ? (unsigned)(mix(number) % span) : 0);
}

size_t items_bytes(const struct items *items, uint64_t number, char *out)
{
    size_t size = items_size(items, number);
    /* The low digits first, so that short items differ as long as they can. */
    uint64_t low = htole64(hex_digits((uint32_t)number)), high = htole64(hex_digits((uint32_t)(number >> 32)));

    if (size >= 16) { /* without an array: a load of sixteen bytes would wait for the two stores of eight before it */
        memcpy(out, &low, 8);
        memcpy(out + 8, &high, 8);
        if (size > 16)
            memset(out + 16, '.', size - 16);
    } else {
        char digits[16];
        memcpy(digits, &low, 8);
        memcpy(digits + 8, &high, 8);
        memcpy(out, digits, size);
    }
    return size;
}
