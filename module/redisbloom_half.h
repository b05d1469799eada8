/* redisbloom_half: a filter that BF.LOADCHUNK is loading from RedisBloom's chunks, which come in any order. It is a
 * value of the module's own type until all bits have come: RedisBloom's encoding has no such state. It is saved,
 * replicated and migrated with what has come.
 *
 * Lifetime: half_make() to half_release(), within a value. Thread: as value.h. */
#ifndef BLOOMERY_MODULE_REDISBLOOM_HALF_H
#define BLOOMERY_MODULE_REDISBLOOM_HALF_H

#include "engine.h"
#include "redisbloom_dump.h"
#include "value.h"

struct redisbloom_half {
    struct redisbloom_load load;
    size_t header_len;
    unsigned char header[]; /* as it came */
};

/* Reads a header: what it announces is in (*half_out)->load.plan. DUMP_OK, DUMP_BAD with the reason, or -ENOMEM. */
int half_make(const void *header, size_t len, struct redisbloom_half **half_out, struct errbuf *err);
struct redisbloom_half *half_copy(const struct redisbloom_half *half); /* NULL without memory */
void half_release(struct redisbloom_half *half);                       /* NULL is fine */
size_t half_memory(const struct redisbloom_half *half);

/* Of a value that has one. */
void half_save(struct engine_io *io, const struct value *value);
void half_rewrite(struct engine_io *io, struct engine_string *key, const struct value *value);
void half_digest(struct engine_digest *digest, const struct value *value);

/* What half_save() wrote, behind the mark that says so. NULL with the reason. */
struct value *half_load(struct engine_io *io, struct errbuf *err);

#endif
