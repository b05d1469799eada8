/* RDB files. The first byte is the size of the pieces in which the file is read: the result does not depend on it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "rdb_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct source {
    const uint8_t *bytes;
    size_t left;
};

static int hand_out(void *ctx, void *buf, size_t len, size_t *n_out)
{
    struct source *source = ctx;
    size_t n = source->left < len ? source->left : len;

    memcpy(buf, source->bytes, n);
    source->bytes += n;
    source->left -= n;
    *n_out = n;
    return 0;
}

static int see(void *ctx, const struct rdb_key *key)
{
    uint64_t *sum = ctx;

    CHECK(key->name_len <= RDB_MAX_NAME && strlen(key->kind) > 0);
    for (size_t i = 0; i < key->name_len; i++)
        *sum = *sum * 31 + (unsigned char)key->name[i];
    *sum = *sum * 31 + key->at + key->db + key->module + (uint64_t)key->expires_ms;
    return 0;
}

static int walk(const uint8_t *data, size_t size, size_t piece, uint64_t *sum, struct rdb_summary *summary,
                struct errbuf *err)
{
    struct source source = {data, size};
    struct rdb_reader reader;
    uint8_t buffer[256];

    *sum = 0;
    *err = (struct errbuf){""};
    if (piece > 0)
        rdb_reader_stream(&reader, hand_out, &source, buffer, piece, 0, err);
    else
        rdb_reader_memory(&reader, data, size, err);
    return rdb_file_walk(&reader, see, sum, summary);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rdb_summary whole, pieces;
    struct errbuf whole_err, pieces_err;
    uint64_t whole_sum, pieces_sum;

    if (size == 0)
        return 0;
    int rc = walk(data + 1, size - 1, 0, &whole_sum, &whole, &whole_err);
    CHECK(rc == RDB_OK || rc == RDB_BAD);
    CHECK((rc == RDB_OK) == (whole_err.text[0] == '\0'));
    CHECK(walk(data + 1, size - 1, data[0], &pieces_sum, &pieces, &pieces_err) == rc);
    size_t text_len = strcspn(whole_err.text, ",");
    CHECK(whole_sum == pieces_sum && text_len == strcspn(pieces_err.text, ",") &&
          memcmp(whole_err.text, pieces_err.text, text_len) == 0);
    CHECK(rc != RDB_OK || (whole.end == pieces.end && whole.end <= size - 1));
    return 0;
}
