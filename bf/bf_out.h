/* bf_out: the interface through which BF.* commands reply. A host implements its few calls for its protocol: the daemon
 * with its reply writer, a module with its engine's. This library decides the elements of a reply, the host their
 * encoding.
 *
 * An aggregate begins with its number of elements; the elements follow. No call fails; a host that runs out of memory
 * handles that when the reply is complete. Thread: the caller's, one reply at a time. */
#pragma once

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

/* An error. An end of line in it, which a name may have, becomes a space. False, for the caller to return. */
bool bf_out_errorf(const struct bf_out *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void bf_out_verrorf(const struct bf_out *out, const char *format, va_list args) __attribute__((format(printf, 2, 0)));

/* The error of a filter that cannot be made: the text of a status of bloomcore, BLOOM_REFUSED, BLOOM_LIMIT or an
 * -errno, which represents -ENOMEM. */
void bf_reply_not_made(const struct bf_out *out, int status, const struct errbuf *err);

/* Writes a count as an integer, at most INT64_MAX. */
void bf_out_count(const struct bf_out *out, uint64_t value);

/* A field of a map: its name, then its value. */
void bf_out_named_count(const struct bf_out *out, const char *name, uint64_t value);
void bf_out_named_real(const struct bf_out *out, const char *name, double value);

/* ---- the errors of BF.* that do not follow from a command's words alone: RedisBloom's, where it has them ---- */

#define BF_NOT_FOUND   "ERR not found"
#define BF_EXISTS      "ERR item exists"
#define BF_WRONG_TYPE  "WRONGTYPE Operation against a key holding the wrong kind of value"
#define BF_FULL        "ERR non scaling filter is full"
#define BF_NO_ROOM     "ERR problem inserting into filter: %s" /* the reason */
#define BF_NO_MEMORY   "ERR could not create filter: out of memory"
#define BF_BAD         "ERR received bad data" /* and the reason */
#define BF_KEY_EXISTS  BF_BAD ": the key exists"
#define BF_DROPPED     "; the filter that was being loaded has been dropped"
#define BF_NO_ITERATOR "ERR invalid iterator: begin with 0, go on with what the last reply said"
#define BF_NOT_NUMERIC "Second argument must be numeric"

/* The key of a KEYED filter is not here; without a key in force for new ones. */
#define BF_NO_KEY                                                                                                   \
    "ERR the key %s of this filter is missing: add its line to the key file, then CONFIG SET bf-key-file again or " \
    "SIGHUP"
#define BF_NEW_NO_KEY "ERR there is no key for new filters: set bf-key-file"
