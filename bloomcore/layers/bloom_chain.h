/* bloom_chain: the chain of a filter's layers: its contents, for saving, loading and reporting, and its growth. The
 * functions marked "loading" need exclusive access to the filter. Thread: any otherwise. */
#pragma once

#include "bloom_types.h"

const struct bloom_params *bloom_filter_params(const struct bloom_filter *filter);
struct bloom_class *bloom_filter_class_of(const struct bloom_filter *filter); /* borrowed: the filter's own reference */

unsigned bloom_filter_nlayers(const struct bloom_filter *filter);

/* Loading: these bytes of a room, whole unused pages, become zero and take no memory until they are written. */
void bloom_room_empty(unsigned char *from, size_t len);

/* The layer `index` (0 is the oldest), index < bloom_filter_nlayers(), now or at an earlier moment: a cuckoo filter
 * loses layers, which are then empty. */
void bloom_filter_layer(const struct bloom_filter *filter, unsigned index, struct bloom_layer_view *view_out);

/* Loading: all words of the filter will be written soon, by a thread that can wait: huge pages at once. No word has
 * been written yet, except after an earlier call, and no other thread uses the words; views of layers end. */
void bloom_filter_expect_fill(struct bloom_filter *filter);

/* Loading: sets the item count of a layer; appends a zeroed layer of a given shape. 0; BLOOM_REFUSED (no valid shape,
 * or of another variant than the filter's layers); BLOOM_LIMIT; -ENOMEM. bloom_filter_layer() then gives the words. */
void bloom_filter_set_items(struct bloom_filter *filter, unsigned index, uint64_t items);
int bloom_filter_append_layer(struct bloom_filter *filter, const struct bloom_shape *shape, struct errbuf *err);

/* Loading: replays records of a journal's add() for a layer. Sets the bits of n items, and counts those whose ordinal
 * is above `counted`, the layer's count when it was loaded. Neither the order of items nor repetitions matter; only the
 * sum of the counts does. Returns the number of counted items. Several threads may call this at a time. */
uint64_t bloom_filter_replay(struct bloom_filter *filter, unsigned index, uint64_t counted,
                             const struct bloom_replay_item *items, size_t n);

/* ---- the bytes of layers, as files and dumps have them (bloom_shape_bytes()) ---- */

/* Finds a byte of all layers, one after the other: *at becomes its offset in its layer, and *left_out the bytes from
 * there to the layer's end. False: there are fewer bytes. */
bool bloom_filter_find_byte(const struct bloom_filter *filter, uint64_t *at, unsigned *layer_out, uint64_t *left_out);

/* Loading: overwrites the bytes `offset` to offset + len - 1 of a layer. Any order, any repetition. Runs of zeros that
 * are zero already take no memory. */
void bloom_filter_put_bytes(struct bloom_filter *filter, unsigned layer, uint64_t offset, const void *bytes,
                            size_t len);

/* Copies such a range out, word by word. Other threads may add to the filter meanwhile. */
void bloom_filter_get_bytes(const struct bloom_filter *filter, unsigned layer, uint64_t offset, void *out, size_t len);

/* ---- internal to bloomcore ---- */

struct bloom_layer;
struct bloom_chained_layer;

/* Creates a layer of this shape, records it in the journal (may be NULL), of a window with its first turn, and
 * publishes it. The caller excludes other growth. 0, BLOOM_LIMIT, -ENOMEM, or the result of the journal. */
int bloom_filter_push_layer(struct bloom_filter *filter, const struct bloom_shape *shape, uint64_t capacity,
                            double rate, const struct bloom_turn *turn, const struct bloom_journal *journal,
                            struct errbuf *err);

/* The same for a filter that only the caller knows and whose layers state their own parameters; limits of memory do not
 * apply. 0 or -ENOMEM. */
int bloom_filter_push_anyway(struct bloom_filter *filter, const struct bloom_shape *shape, struct errbuf *err);

/* bloom_filter_push_anyway() for a filter of bloom_filter_init_uncharged(). */
int bloom_filter_push_uncharged(struct bloom_filter *filter, const struct bloom_shape *shape, struct errbuf *err);

/* The layer with this index, below bloom_filter_nlayers(). */
struct bloom_layer *bloom_filter_layer_at(const struct bloom_filter *filter, unsigned index);

/* Adds a layer on top of `full`, unless another has; `journal` may be NULL. BLOOM_OK, or the status of the failure. */
int bloom_filter_grow(struct bloom_filter *filter, const struct bloom_layer *full, const struct bloom_journal *journal,
                      struct errbuf *err);

/* Appends a layer of this shape as number `index`, the next one, unless another thread has just done so. Otherwise as
 * bloom_filter_append_layer(). */
int bloom_filter_append_at(struct bloom_filter *filter, unsigned index, const struct bloom_shape *shape,
                           struct errbuf *err);

/* Bytes of the words of all layers, whether they are in memory or not. */
uint64_t bloom_filter_words_bytes(const struct bloom_filter *filter);

/* Frees a layer made by growth, without its words. NULL is fine. */
void bloom_chained_free(const struct bloom_pool *pool, struct bloom_chained_layer *chained);
