/* lzf: the compressed form of strings in RDB files (LibLZF's format).
 *
 * A control byte c below 32 is followed by c + 1 bytes as they are. Any other byte copies from the output so far. The
 * length is (c >> 5) + 2; 7 in these bits means that a byte to add to 7 follows. Then follow the low 8 bits of the
 * distance less one; its high 5 bits are those of c.
 *
 * The decoder takes its input in pieces of any size and hands out its output in pieces, so that a string of gigabytes
 * needs no memory next to it.
 *
 * Thread: any, on distinct objects. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LZF_REACH 8192 /* the largest distance */
#define LZF_PIECE 16384

/* Takes the next bytes. 0; or -errno or 1, which end the decoding and are passed on. */
typedef int bytes_sink_fn(void *ctx, const unsigned char *bytes, size_t len);

enum lzf_status {
    LZF_OK = 0,
    LZF_BAD = 2, /* a distance leads before the beginning, there is more output than announced, or too little; no status
                    of a sink */
};

/* Internal, but in the caller's storage. */
struct lzf_decoder {
    uint64_t left; /* output bytes to come */
    uint64_t made; /* output bytes so far */
    enum { LZF_CONTROL, LZF_LITERAL, LZF_LENGTH, LZF_DISTANCE } state;
    size_t count; /* bytes of the literal or of the copy */
    size_t high;  /* of the distance */
    size_t fill;  /* of `out` */
    size_t sent;  /* of `out` */
    unsigned char out[LZF_REACH + LZF_PIECE];
};

/* For an output of `len` bytes. */
void lzf_decoder_init(struct lzf_decoder *decoder, uint64_t len);

/* LZF_OK, LZF_BAD, or the status of the sink. */
int lzf_decoder_feed(struct lzf_decoder *decoder, const unsigned char *in, size_t len, bytes_sink_fn *sink, void *ctx)
    __attribute__((warn_unused_result));

/* The input has ended: hands out the rest. LZF_BAD: the output is not complete. */
int lzf_decoder_end(struct lzf_decoder *decoder, bytes_sink_fn *sink, void *ctx) __attribute__((warn_unused_result));
