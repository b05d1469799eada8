/* cuckoo_model: cuckoo filters as simple arrays of fingerprints, with a copy to undo evictions. In RedisBloom's
 * layout, or, with `bits`, in ours, which keeps a rate. */
#pragma once

#include "model_hash.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MODEL_LAYERS 64

struct model {
    unsigned n, bucket_size, iterations;
    unsigned bits, most; /* ours: of a slot, and layers; otherwise 0 */
    uint64_t expansion, deletes;
    uint64_t buckets[MODEL_LAYERS], items[MODEL_LAYERS];
    uint16_t *slots[MODEL_LAYERS];
};

static inline uint64_t model_slots(const struct model *model, unsigned layer)
{
    return model->buckets[layer] * model->bucket_size;
}

/* The bytes of a layer, bit after bit. */
static inline uint64_t model_bytes(const struct model *model, unsigned layer)
{
    return model_slots(model, layer) * (model->bits ? model->bits : 8) / 8;
}

static inline void model_put(const struct model *model, unsigned layer, unsigned char *bytes)
{
    unsigned bits = model->bits ? model->bits : 8;

    memset(bytes, 0, model_bytes(model, layer));
    for (uint64_t i = 0; i < model_slots(model, layer); i++)
        for (unsigned b = 0; b < bits; b++)
            bytes[(i * bits + b) / 8] |= (unsigned char)((model->slots[layer][i] >> b & 1) << (i * bits + b) % 8);
}

/* Layers of our layout take 95 %. */
static inline bool model_is_full(const struct model *model, unsigned layer)
{
    return model->bits && (model->items[layer] + 1) * 20 > model_slots(model, layer) * 19;
}

static inline void model_grow(struct model *model)
{
    if (model->n)
        model->buckets[model->n] = model->buckets[model->n - 1] * model->expansion;
    model->slots[model->n] = calloc(model_slots(model, model->n), sizeof(uint16_t));
    model->items[model->n] = 0;
    model->n++;
}

static inline void model_init(struct model *model, uint64_t capacity, unsigned bucket_size, unsigned iterations,
                              uint64_t expansion)
{
    *model = (struct model){.bucket_size = bucket_size, .iterations = iterations, .buckets = {1}};
    while (model->buckets[0] < capacity / bucket_size)
        model->buckets[0] *= 2;
    for (model->expansion = expansion ? 1 : 0; model->expansion < expansion;)
        model->expansion *= 2;
    model_grow(model);
}

/* In our layout: the first layer has this many slots. */
static inline void model_init_rate(struct model *model, uint64_t slots, unsigned bits, unsigned iterations,
                                   uint64_t expansion, unsigned most)
{
    *model = (struct model){.bucket_size = 4, .iterations = iterations, .bits = bits, .most = most};
    model->buckets[0] = slots / 4;
    for (model->expansion = expansion ? 1 : 0; model->expansion < expansion;)
        model->expansion *= 2;
    model_grow(model);
}

static inline void model_free(struct model *model)
{
    while (model->n)
        free(model->slots[--model->n]);
}

/* The two buckets of an item, or of a fingerprint and one of its buckets, in a layer. */
static inline void model_buckets(const struct model *model, unsigned layer, uint64_t hash, unsigned fingerprint,
                                 uint64_t out[2])
{
    uint64_t n = model->buckets[layer], sum = fingerprint * UINT64_C(0x9e3779b97f4a7c15);

    sum = (sum ^ sum >> 32) * UINT64_C(0xbf58476d1ce4e5b9) >> 16;
    if (model->bits) {
        out[0] = hash % (UINT64_C(1) << 48) % n;
        out[1] = (sum % n + n - out[0]) % n;
        return;
    }
    out[0] = hash % model->buckets[layer];
    out[1] = (hash ^ fingerprint * UINT64_C(0x5bd1e995)) % model->buckets[layer];
}

/* The first slot with this value in two buckets, or NULL. */
static inline uint16_t *model_find(const struct model *model, unsigned layer, const uint64_t buckets[2], unsigned value)
{
    for (unsigned b = 0; b < 2; b++)
        for (unsigned s = 0; s < model->bucket_size; s++)
            if (model->slots[layer][buckets[b] * model->bucket_size + s] == value)
                return &model->slots[layer][buckets[b] * model->bucket_size + s];
    return NULL;
}

static inline uint64_t model_count(const struct model *model, uint64_t hash)
{
    unsigned fingerprint = model_fingerprint(model->bits, hash);
    uint64_t count = 0, buckets[2];

    for (unsigned i = 0; i < model->n; i++) {
        model_buckets(model, i, hash, fingerprint, buckets);
        for (unsigned b = 0; b < 2; b++)
            for (unsigned s = 0; s < model->bucket_size; s++)
                count += model->slots[i][buckets[b] * model->bucket_size + s] == fingerprint;
    }
    return count;
}

static inline uint64_t model_items(const struct model *model)
{
    uint64_t items = 0;

    for (unsigned i = 0; i < model->n; i++)
        items += model->items[i];
    return items;
}

static inline bool model_evict(struct model *model, uint64_t hash)
{
    unsigned layer = model->n - 1, v = 0;
    uint16_t *slots = model->slots[layer], hand = model_fingerprint(model->bits, hash);
    uint64_t bytes = model_slots(model, layer) * sizeof(slots[0]), both[2];
    uint16_t *before = malloc(bytes);

    memcpy(before, slots, bytes);
    model_buckets(model, layer, hash, hand, both);
    for (unsigned i = 0; i < model->iterations; i++) {
        if (model->bits)
            v = (unsigned)((hash + i * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xbf58476d1ce4e5b9) >> 62);
        uint16_t evicted = slots[both[0] * model->bucket_size + v];
        slots[both[0] * model->bucket_size + v] = hand;
        hand = evicted;
        model_buckets(model, layer, both[0], hand, both);
        both[0] = both[1];
        uint16_t *empty = model_find(model, layer, both, 0);
        if (empty) {
            *empty = hand;
            model->items[layer]++;
            free(before);
            return true;
        }
        v = (v + 1) % model->bucket_size;
    }
    memcpy(slots, before, bytes);
    free(before);
    return false;
}

/* False: the filter is full. */
static inline bool model_add(struct model *model, uint64_t hash)
{
    for (;;) {
        for (unsigned i = model->n; i-- > 0;) {
            uint64_t buckets[2];
            model_buckets(model, i, hash, model_fingerprint(model->bits, hash), buckets);
            uint16_t *empty = model_is_full(model, i) ? NULL : model_find(model, i, buckets, 0);
            if (empty) {
                *empty = model_fingerprint(model->bits, hash);
                model->items[i]++;
                return true;
            }
        }
        if (!model_is_full(model, model->n - 1) && model_evict(model, hash))
            return true;
        if (model->expansion == 0 || model->n == model->most)
            return false;
        model_grow(model);
    }
}

/* Returns whether all fingerprints of a layer have found a place in older layers. */
static inline bool model_empty_layer(struct model *model, unsigned layer)
{
    bool all = true;

    for (uint64_t at = 0; at < model_slots(model, layer); at++) {
        uint16_t fingerprint = model->slots[layer][at], *empty = NULL;
        uint64_t buckets[2];
        for (unsigned to = 0; fingerprint && !empty && to < layer; to++) {
            model_buckets(model, to, at / model->bucket_size, fingerprint, buckets);
            empty = model_is_full(model, to) ? NULL : model_find(model, to, buckets, 0);
            model->items[to] += empty != NULL;
        }
        if (empty) {
            model->items[layer]--;
            *empty = fingerprint;
            model->slots[layer][at] = 0;
        }
        all = all && (empty || !fingerprint);
    }
    return all;
}

static inline void model_compact(struct model *model, bool go_on)
{
    for (unsigned i = model->n; i-- > 1;) {
        bool all = model_empty_layer(model, i);
        if (all && i == model->n - 1)
            free(model->slots[--model->n]);
        if (!all && !go_on)
            break;
    }
    model->deletes = 0;
}

static inline bool model_is_sparse(const struct model *model)
{
    return model->n > 1 && (double)model->deletes > 0.10 * (double)model_items(model);
}

/* Deletes one item, without the compaction that may follow. */
static inline bool model_delete(struct model *model, uint64_t hash)
{
    for (unsigned i = model->n; i-- > 0;) {
        uint64_t buckets[2];
        model_buckets(model, i, hash, model_fingerprint(model->bits, hash), buckets);
        uint16_t *taken = model_find(model, i, buckets, model_fingerprint(model->bits, hash));
        if (taken) {
            *taken = 0;
            model->items[i]--;
            model->deletes++;
            return true;
        }
    }
    return false;
}
