/* cuckoo_model: RedisBloom's cuckoo filter, written down once more as simply as it can be: arrays of bytes, one thread,
 * a copy to undo evictions. What the daemon's own code is compared with. */
#ifndef BLOOMERY_TEST_CUCKOO_MODEL_H
#define BLOOMERY_TEST_CUCKOO_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MODEL_LAYERS 64

struct model {
    unsigned n, bucket_size, iterations;
    uint64_t expansion, deletes;
    uint64_t buckets[MODEL_LAYERS];
    unsigned char *slots[MODEL_LAYERS];
};

/* MurmurHash64A with seed 0, for machines that put the low byte first. */
static inline uint64_t model_hash(const void *data, size_t len)
{
    const uint64_t m = UINT64_C(0xc6a4a7935bd1e995);
    const unsigned char *at = data;
    uint64_t hash = len * m, word = 0;

    for (; len >= 8; at += 8, len -= 8) {
        memcpy(&word, at, 8);
        word *= m;
        word ^= word >> 47;
        hash = (hash ^ word * m) * m;
    }
    for (size_t i = len; i-- > 0;)
        hash ^= (uint64_t)at[i] << 8 * i;
    if (len)
        hash *= m;
    hash ^= hash >> 47;
    hash *= m;
    return hash ^ hash >> 47;
}

static inline unsigned char model_fingerprint(uint64_t hash)
{
    return (unsigned char)(hash % 255 + 1);
}

static inline uint64_t model_bytes(const struct model *model, unsigned layer)
{
    return model->buckets[layer] * model->bucket_size;
}

static inline void model_grow(struct model *model)
{
    if (model->n)
        model->buckets[model->n] = model->buckets[model->n - 1] * model->expansion;
    model->slots[model->n] = calloc(model_bytes(model, model->n), 1);
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

static inline void model_free(struct model *model)
{
    while (model->n)
        free(model->slots[--model->n]);
}

/* The two buckets of an item, or of a fingerprint and one of its buckets, in a layer. */
static inline void model_buckets(const struct model *model, unsigned layer, uint64_t hash, unsigned char fingerprint,
                                 uint64_t out[2])
{
    out[0] = hash % model->buckets[layer];
    out[1] = (hash ^ fingerprint * UINT64_C(0x5bd1e995)) % model->buckets[layer];
}

/* The first slot with this value in two buckets, or NULL. */
static inline unsigned char *model_find(const struct model *model, unsigned layer, const uint64_t buckets[2],
                                        unsigned char value)
{
    for (unsigned b = 0; b < 2; b++)
        for (unsigned s = 0; s < model->bucket_size; s++)
            if (model->slots[layer][buckets[b] * model->bucket_size + s] == value)
                return &model->slots[layer][buckets[b] * model->bucket_size + s];
    return NULL;
}

static inline uint64_t model_count(const struct model *model, uint64_t hash)
{
    unsigned char fingerprint = model_fingerprint(hash);
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
        for (uint64_t at = 0; at < model_bytes(model, i); at++)
            items += model->slots[i][at] != 0;
    return items;
}

static inline bool model_evict(struct model *model, uint64_t hash)
{
    unsigned layer = model->n - 1, v = 0;
    unsigned char *slots = model->slots[layer], hand = model_fingerprint(hash);
    uint64_t bytes = model_bytes(model, layer), bucket = hash % model->buckets[layer];
    unsigned char *before = malloc(bytes);

    memcpy(before, slots, bytes);
    for (unsigned i = 0; i < model->iterations; i++) {
        unsigned char evicted = slots[bucket * model->bucket_size + v];
        slots[bucket * model->bucket_size + v] = hand;
        hand = evicted;
        bucket = (bucket ^ hand * UINT64_C(0x5bd1e995)) % model->buckets[layer];
        uint64_t both[2] = {bucket, bucket};
        unsigned char *empty = model_find(model, layer, both, 0);
        if (empty) {
            *empty = hand;
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
            model_buckets(model, i, hash, model_fingerprint(hash), buckets);
            unsigned char *empty = model_find(model, i, buckets, 0);
            if (empty) {
                *empty = model_fingerprint(hash);
                return true;
            }
        }
        if (model_evict(model, hash))
            return true;
        if (model->expansion == 0)
            return false;
        model_grow(model);
    }
}

/* Whether all fingerprints of a layer have found a place in older ones. */
static inline bool model_empty_layer(struct model *model, unsigned layer)
{
    bool all = true;

    for (uint64_t at = 0; at < model_bytes(model, layer); at++) {
        unsigned char fingerprint = model->slots[layer][at], *empty = NULL;
        uint64_t buckets[2];
        for (unsigned to = 0; fingerprint && !empty && to < layer; to++) {
            model_buckets(model, to, at / model->bucket_size, fingerprint, buckets);
            empty = model_find(model, to, buckets, 0);
        }
        if (empty) {
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

/* Deletes one, without the compaction that may follow. */
static inline bool model_delete(struct model *model, uint64_t hash)
{
    for (unsigned i = model->n; i-- > 0;) {
        uint64_t buckets[2];
        model_buckets(model, i, hash, model_fingerprint(hash), buckets);
        unsigned char *taken = model_find(model, i, buckets, model_fingerprint(hash));
        if (taken) {
            *taken = 0;
            model->deletes++;
            return true;
        }
    }
    return false;
}

#endif
