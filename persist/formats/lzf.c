#include "lzf.h"

#include <string.h>

#define LITERAL_MAX 32
#define COPY_MAX    264 /* 7 + 255 + 2 */

void lzf_decoder_init(struct lzf_decoder *decoder, uint64_t len)
{
    decoder->left = len;
    decoder->made = 0;
    decoder->state = LZF_CONTROL;
    decoder->count = 0;
    decoder->high = 0;
    decoder->fill = 0;
    decoder->sent = 0;
}

static int send_out(struct lzf_decoder *decoder, bytes_sink_fn *sink, void *ctx)
{
    size_t len = decoder->fill - decoder->sent;

    if (len == 0)
        return LZF_OK;
    int rc = sink(ctx, decoder->out + decoder->sent, len);
    decoder->sent = decoder->fill;
    return rc;
}

/* Makes room for the longest copy. Bytes that a later copy may refer to stay. */
static int make_room(struct lzf_decoder *decoder, bytes_sink_fn *sink, void *ctx)
{
    if (decoder->fill + COPY_MAX <= sizeof(decoder->out))
        return LZF_OK;
    int rc = send_out(decoder, sink, ctx);
    memmove(decoder->out, decoder->out + decoder->fill - LZF_REACH, LZF_REACH);
    decoder->fill = LZF_REACH;
    decoder->sent = LZF_REACH;
    return rc;
}

static void count_out(struct lzf_decoder *decoder, size_t len)
{
    decoder->fill += len;
    decoder->made += len;
    decoder->left -= len;
}

static bool copy(struct lzf_decoder *decoder, size_t low)
{
    size_t distance = (decoder->high << 8 | low) + 1;
    unsigned char *to = decoder->out + decoder->fill;

    if (distance > decoder->made || decoder->count > decoder->left)
        return false;
    for (size_t i = 0; i < decoder->count; i++) /* byte by byte: a copy may overlap its own output */
        to[i] = to[(ptrdiff_t)i - (ptrdiff_t)distance];
    count_out(decoder, decoder->count);
    decoder->state = LZF_CONTROL;
    return true;
}

static void control(struct lzf_decoder *decoder, unsigned char c)
{
    if (c < LITERAL_MAX) {
        decoder->count = c + 1u;
        decoder->state = LZF_LITERAL;
        return;
    }
    decoder->count = (c >> 5) + 2u;
    decoder->high = c & 0x1f;
    decoder->state = c >> 5 == 7 ? LZF_LENGTH : LZF_DISTANCE;
}

int lzf_decoder_feed(struct lzf_decoder *decoder, const unsigned char *in, size_t len, bytes_sink_fn *sink, void *ctx)
{
    const unsigned char *end = in + len;

    while (in < end) {
        int rc = make_room(decoder, sink, ctx);

        if (rc != LZF_OK)
            return rc;
        switch (decoder->state) {
        case LZF_CONTROL:
            control(decoder, *in++);
            break;
        case LZF_LITERAL: {
            size_t n = (size_t)(end - in) < decoder->count ? (size_t)(end - in) : decoder->count;

            if (n > decoder->left)
                return LZF_BAD;
            memcpy(decoder->out + decoder->fill, in, n);
            count_out(decoder, n);
            in += n;
            decoder->count -= n;
            if (decoder->count == 0)
                decoder->state = LZF_CONTROL;
            break;
        }
        case LZF_LENGTH:
            decoder->count += *in++;
            decoder->state = LZF_DISTANCE;
            break;
        case LZF_DISTANCE:
            if (!copy(decoder, *in++))
                return LZF_BAD;
            break;
        }
    }
    return LZF_OK;
}

int lzf_decoder_end(struct lzf_decoder *decoder, bytes_sink_fn *sink, void *ctx)
{
    if (decoder->left > 0 || decoder->state != LZF_CONTROL)
        return LZF_BAD;
    return send_out(decoder, sink, ctx);
}
