/* Feeds a stream to the request parser in pieces and compares the result with the model and with the same stream in
 * one piece.
 *
 * Input: one byte that chooses the limits and the state of the list, one byte with the number of piece sizes in its
 * low four bits, the sizes (less one, used in turn), the stream. */
#include "resp_transcript.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static const struct resp_limits limit_choices[] = {
    {RESP_MAX_ARGS_DEFAULT, RESP_MAX_BULK_DEFAULT, RESP_MAX_INLINE_DEFAULT},
    {RESP_MAX_ARGS_NOAUTH, RESP_MAX_BULK_NOAUTH, RESP_MAX_INLINE_DEFAULT},
    {3, 8, 16},
    {1, 0, 0},
};

struct pieces {
    const uint8_t *sizes;
    size_t n, next;
};

static size_t next_piece(void *ctx, size_t arrived)
{
    struct pieces *pieces = ctx;

    (void)arrived;
    return (size_t)pieces->sizes[pieces->next++ % pieces->n] + 1;
}

static void require_equal(const char *what, struct transcript expected, struct transcript got)
{
    if (!transcript_equal(&expected, &got)) {
        fprintf(stderr, "%s\n---- expected\n%s\n---- got\n%s\n", what, expected.text, got.text);
        abort();
    }
    transcript_deinit(&got);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > TRANSCRIPT_STREAM_MAX)
        return 0;

    struct transcript_options options = {
        .limits = limit_choices[data[0] % 4], .noauth = data[0] & 4, .warm = data[0] & 8};
    struct pieces pieces = {.sizes = data + 2, .n = data[1] & 15};
    if (size < 2 + pieces.n)
        return 0;
    const char *stream = (const char *)data + 2 + pieces.n;
    size_t len = size - 2 - pieces.n;

    struct transcript expected = transcript_model(stream, len, &options);
    require_equal("in one piece", expected, transcript_parse(stream, len, &options));
    if (pieces.n > 0) {
        options.next_piece = next_piece;
        options.ctx = &pieces;
        require_equal("in pieces", expected, transcript_parse(stream, len, &options));
    }
    transcript_deinit(&expected);
    return 0;
}
