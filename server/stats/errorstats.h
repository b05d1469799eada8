/* errorstats: the number of error replies by code, the first word of the text ("ERR", "NOAUTH").
 *
 * Thread rule: one thread counts, any thread may read meanwhile. */
#ifndef BLOOMERY_ERRORSTATS_H
#define BLOOMERY_ERRORSTATS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Codes are the server's own words, so there are few. Codes without a free row count under ERRORSTATS_REST, so that a
 * bug that begins an error with a client's words cannot fill memory. */
#define ERRORSTATS_MAX  64
#define ERRORSTATS_CODE 32 /* bytes, with the NUL; longer ones are cut */
#define ERRORSTATS_REST "OTHER"

struct errorstats_row {
    char code[ERRORSTATS_CODE]; /* constant once the row is in use */
    _Atomic uint64_t count;
};

/* Zero-initialise. Rows keep their places. */
struct errorstats {
    _Atomic size_t used;
    struct errorstats_row rows[ERRORSTATS_MAX];
};

/* Counts an error reply; `text` begins after its '-', and `len` bytes of it are readable. Thread: the one that
 * counts. */
void errorstats_count(struct errorstats *errors, const char *text, size_t len);

/* Adds the counts of `from` to `sum`, and the reverse. */
void errorstats_sum(struct errorstats *sum, const struct errorstats *from);
void errorstats_subtract(struct errorstats *sum, const struct errorstats *base);

#endif
