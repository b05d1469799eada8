/* output: the results of a subcommand as JSON on stdout, if --json is given: one object, or an array of objects with a
 * line each. Lifetime: caller's storage, output_begin() to output_end(). Thread: one. */
#ifndef BLOOMERY_TOOL_OUTPUT_H
#define BLOOMERY_TOOL_OUTPUT_H

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

/* Instead of output_end(), for a command that has failed: unwritten output is dropped. */
void output_drop(struct output *out);

/* json_bytes() of a string. */
void output_string(struct buf *json, const char *key, const char *text);

#endif
