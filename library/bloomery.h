/* bloomery: Bloom filters where the program runs. Reads, asks, builds, unites and writes the Filter.db files of Apache
 * Cassandra, ScyllaDB and Bloomery, and the layers of RedisBloom's filters.
 *
 *     bloomery_filter *filter;
 *     char text[BLOOMERY_TEXT];
 *     if (bloomery_open("nb-1-big-Filter.db", NULL, &filter, text, sizeof(text)) != BLOOMERY_OK)
 *         return fprintf(stderr, "%s\n", text);
 *     if (!bloomery_has(filter, "key", 3))
 *         ...  the key is certainly not in the table
 *     bloomery_free(filter);
 *
 * Threads: any number of threads may ask one filter and its numbers at the same time, without a lock. A call that
 * changes a filter (its argument is not const) needs it alone. Different filters have nothing in common: the library
 * has no state of its own.
 *
 * Errors: a call that can fail returns an enum bloomery_status. Then its outputs and the filter are unchanged. `text`,
 * of `size` bytes, has the reason as a line of ASCII with a NUL, truncated to fit; NULL and 0: no text. No bytes and no
 * arguments that follow this header end the process.
 *
 * Layouts: "na" (Cassandra 4.0 and later), "me" (Cassandra 3.x, ScyllaDB mc to mt), "ka" (before); "redisbloom", and
 * "redisbloom32" of very old versions of RedisBloom, which is read but not created; "valkey", whose filters have a
 * random seed each, and no union unless one is a copy of the other. Their bytes: docs/FORMAT.md.
 *
 * Items are bytes of any number; NULL is fine where there are none. */
#ifndef BLOOMERY_H
#define BLOOMERY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __GNUC__
#pragma GCC visibility push(default) /* exports the names of the library, with any setting of the compiler */
#endif

#define BLOOMERY_TEXT 512 /* bytes for any reason */

enum bloomery_status {
    BLOOMERY_OK = 0,
    BLOOMERY_MALFORMED = 1, /* the bytes are no filter of this layout */
    BLOOMERY_REFUSED = 2,   /* the arguments ask for something impossible */
    BLOOMERY_NO_MEMORY = 3,
    BLOOMERY_KEYED = 4, /* the filter's items are hashed under a key: only its server can be asked */
    BLOOMERY_FULL = 5,  /* the filter has taken the items that it was made for */
    BLOOMERY_SYSTEM = 6 /* a file cannot be opened, read or written */
};

typedef struct bloomery_filter bloomery_filter;

struct bloomery_item {
    const void *data;
    size_t size;
};

const char *bloomery_version(void); /* of the library: "1.0.0" */

/* ---- making one, and its end ---- */

/* The filter in these bytes: one or more files, one after the other, which are its layers. `layers` is the required
 * number of layers, from the field Bloomery-Layers of GET /filters/NAME. It may be 0: a window that has forgotten all;
 * -1: one or more. The bytes are copied. */
int bloomery_read(const void *data, size_t bytes, const char *layout, int layers, bloomery_filter **filter_out,
                  char *text, size_t size);

/* Reads a filter from a file. `layout` NULL: that of the SSTable version in its name, as in nb-1-big-Filter.db. */
int bloomery_open(const char *path, const char *layout, bloomery_filter **filter_out, char *text, size_t size);

/* An empty filter of one layer, which keeps to the rate of false positives 0 < error < 1 up to `capacity` items. */
int bloomery_create(double error, uint64_t capacity, const char *layout, bloomery_filter **filter_out, char *text,
                    size_t size);

void bloomery_free(bloomery_filter *filter); /* NULL is fine */

/* ---- asking and adding ---- */

/* 1: the item may be in the filter; 0: it certainly is not. */
int bloomery_has(const bloomery_filter *filter, const void *item, size_t size);

/* Asks for n items; answers[i] becomes 0 or 1. In filters beyond the cache many times as fast as one by one: the
 * memory of later items is fetched while earlier ones are answered. */
void bloomery_has_many(const bloomery_filter *filter, const struct bloomery_item *items, size_t n,
                       unsigned char *answers);

/* Adds an item; *added_out (may be NULL) is 1, or 0 if it seemed to be there. A created filter takes its capacity of
 * items and is BLOOMERY_FULL then. Others take any number into their newest layer; in RedisBloom's layout they get new
 * layers as in RedisBloom, by the growth in the file. Adds raise their rate. BLOOMERY_OK, _FULL, _REFUSED of a filter
 * without layers, _NO_MEMORY. */
int bloomery_add(bloomery_filter *filter, const void *item, size_t item_size, int *added_out, char *text, size_t size);

/* Adds items in their order until one cannot be added. *done_out is the number before that one, or n; *added_out is the
 * number of new ones among these. Both are set in any case; may be NULL. */
int bloomery_add_many(bloomery_filter *filter, const struct bloomery_item *items, size_t n, size_t *done_out,
                      uint64_t *added_out, char *text, size_t size);

/* Adds all items of `from`, whose layers must have the shapes of the filter's oldest ones: equal hashes, bits and hash
 * functions. Layouts na and me go together. BLOOMERY_OK or _REFUSED. */
int bloomery_merge(bloomery_filter *filter, const bloomery_filter *from, char *text, size_t size);

/* ---- writing ---- */

/* Bytes that bloomery_write() writes: those of the files of all layers. */
uint64_t bloomery_bytes(const bloomery_filter *filter);

/* Writes the layers as files one after the other, in the form for bloomery_read(). Of a filter that was read and not
 * changed they are the bytes that were read. BLOOMERY_REFUSED if `room` is less than bloomery_bytes(). */
int bloomery_write(const bloomery_filter *filter, void *out, size_t room, char *text, size_t size);

/* Writes the filter to a file, in place of an existing one. It appears when it is whole and on the disk. */
int bloomery_save(const bloomery_filter *filter, const char *path, char *text, size_t size);

/* ---- numbers ---- */

const char *bloomery_layout(const bloomery_filter *filter);
unsigned bloomery_layers(const bloomery_filter *filter);
uint64_t bloomery_layer_bits(const bloomery_filter *filter, unsigned layer);   /* layer < bloomery_layers(); 0 is the */
unsigned bloomery_layer_hashes(const bloomery_filter *filter, unsigned layer); /* oldest. Others: 0 */

/* Computed from all bits, in a millisecond per 10 MB: the number of set bits; the present rate of false positives; the
 * number of distinct items. */
uint64_t bloomery_bits_set(const bloomery_filter *filter);
double bloomery_rate(const bloomery_filter *filter);
double bloomery_estimate(const bloomery_filter *filter);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
