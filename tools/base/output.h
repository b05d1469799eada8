/* output: the results of a subcommand as JSON on stdout, if --json is given: one object, or an array of objects with a
 * line each. Lifetime: caller's storage, output_begin() to output_end(). Thread: one. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "json.h"
#include "tool.h"

struct output {
    bool json;
    /* internal */
    bool array;
    struct buf buf;
};

void output_begin(struct output *out, const struct tool_args *args, bool array);

/* Begins an object, which the caller ends. NULL without --json: the caller prints lines instead. */
struct buf *output_object(struct output *out);

/* Of one object: output_begin() and output_object(). */
struct buf *output_single(struct output *out, const struct tool_args *args);

/* Returns `status`, or TOOL_FAILED after a message if memory ran out. */
int output_end(struct output *out, int status);

/* json_bytes() of a string. */
void output_string(struct buf *json, const char *key, const char *text);

/* progress: a progress line on stderr, if that is a terminal. Thread: one. */

struct progress {
    const char *what;
    uint64_t total; /* bytes; 0: unknown */
    uint64_t done;
    bool shows, shown;
    int64_t begun_ms, last_ms;
};

/* `what` ("reading") is borrowed. */
void progress_begin(struct progress *progress, const char *what, uint64_t total);

/* Tells the bytes done since the beginning. May be called often: the line changes ten times a second. */
void progress_update(struct progress *progress, uint64_t done);
void progress_add(struct progress *progress, uint64_t bytes); /* the same by steps */

/* Erases the line until the next update; for other output. */
void progress_hide(struct progress *progress);
void progress_end(struct progress *progress); /* erases the line */
