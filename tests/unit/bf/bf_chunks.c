/* Kinds of chunks of BF.LOADCHUNK, before they are checked. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "bf_chunks.h"

static struct slice word_at(const void *words, size_t i)
{
    return ((const struct slice *)words)[i];
}

/* RedisBloom takes a chunk of any size, and logs it unchanged. */
Test(bf_chunks, a_chunk_of_a_log_or_a_primary_may_have_any_size)
{
    const size_t len = REDISBLOOM_CHUNK_MAX + 1;
    char *data = calloc(1, len);
    cr_assert(data);
    const struct slice words[] = {{"bf.loadchunk", 12}, {"f", 1}, {"16777218", 8}, {data, len}};
    const struct bf_args args = {4, word_at, words, "bf.loadchunk"};
    struct bf_chunk chunk;
    struct errbuf error = {""};
    cr_expect_not(bf_read_chunk(&args, false, &chunk, &error), "from a client");
    cr_expect_str_eq(error.text, "ERR received bad data: a chunk has at most 16777216 bytes");
    cr_expect(bf_read_chunk(&args, true, &chunk, &error), "%s", error.text);
    cr_expect_eq(chunk.data.len, len);
    free(data);
}
