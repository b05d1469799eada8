/* resp_transcript: the meaning of a byte stream as requests, written down as text, twice: by the parser under test,
 * fed in pieces, and by a model that always has all the bytes, shares no code with the parser and prefers plain to
 * fast. Tests and fuzz targets compare the texts.
 *
 * A transcript has a line "command <argc>" for each command, followed by "<len>:<bytes>" for each argument, and ends
 * with "need more, <n> pending" or "malformed, <error text>".
 *
 * Both abort with a message when the parser breaks its contract (consumed more than it was given, asks for less than
 * it already has, ...). Thread: one at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "resp_parse.h"

struct transcript {
    char *text; /* NUL-terminated, may contain NULs */
    size_t len;
};

void transcript_deinit(struct transcript *transcript);
bool transcript_equal(const struct transcript *a, const struct transcript *b);

struct transcript_options {
    struct resp_limits limits;
    int noauth;
    bool warm; /* the list of arguments has been used before, as in a thread that has been serving for a while */
    /* Size of the next piece of the stream, >= 1, after `arrived` bytes; NULL: all at once. */
    size_t (*next_piece)(void *ctx, size_t arrived);
    void *ctx;
};

/* The stream (at most TRANSCRIPT_STREAM_MAX bytes) is handed over with its end at the end of a page before an
 * unreadable one, at another address each time; bytes of an array that the parser has seen already are overwritten
 * before it gets them again, which it must not notice. */
#define TRANSCRIPT_STREAM_MAX ((size_t)8 * 1024 * 1024)
struct transcript transcript_parse(const char *stream, size_t len, const struct transcript_options *options);

struct transcript transcript_model(const char *stream, size_t len, const struct transcript_options *options);
