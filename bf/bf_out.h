/* bf_out: the interface through which BF.* commands reply. A host implements its few calls for its protocol: the daemon
 * with its reply writer, a module with its engine's. This library decides the elements of a reply, the host their
 * encoding.
 *
 * An aggregate begins with its number of elements; the elements follow. No call fails; a host that runs out of memory
 * handles that when the reply is complete. Thread: the caller's, one reply at a time. */
#ifndef BLOOMERY_BF_OUT_H
#define BLOOMERY_BF_OUT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errbuf.h"

struct bf_out_ops {
    void (*status)(void *ctx, const char *text);
    void (*error)(void *ctx, const char *text); /* begins with a code ("ERR") where RedisBloom's does */
    void (*integer)(void *ctx, int64_t value);
    void (*real)(void *ctx, double value);
    void (*boolean)(void *ctx, bool value);
    void (*null)(void *ctx);
    void (*bytes)(void *ctx, const void *bytes, size_t n); /* a bulk string */
    void (*array)(void *ctx, size_t n);
    void (*map)(void *ctx, size_t pairs);
};

struct bf_out {
    const struct bf_out_ops *ops;
    void *ctx;
    const char *limits; /* the host's settings that bound filters, as named in errors */
    bool maps;          /* the protocol knows maps (RESP3) */
};

void bf_out_text(const struct bf_out *out, const char *text); /* a bulk string */

/* An error. An end of line in it, which a name may have, becomes a space. */
void bf_out_errorf(const struct bf_out *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void bf_out_verrorf(const struct bf_out *out, const char *format, va_list args) __attribute__((format(printf, 2, 0)));

/* The error of a filter that cannot be made: the text of a status of bloomcore, BLOOM_REFUSED, BLOOM_LIMIT or an
 * -errno, which represents -ENOMEM. */
void bf_reply_not_made(const struct bf_out *out, int status, const struct errbuf *err);

/* Writes a count as an integer, at most INT64_MAX. */
void bf_out_count(const struct bf_out *out, uint64_t value);

/* A field of a map: its name, then its value. */
void bf_out_named_count(const struct bf_out *out, const char *name, uint64_t value);
void bf_out_named_real(const struct bf_out *out, const char *name, double value);

#endif
