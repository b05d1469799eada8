/* input: a worker's memory for reading, and the list lent to its parsers. The bytes of an iteration stay in place until
 * the window is flushed, because its commands are slices of them.
 *
 * Thread: the worker's. */
#ifndef BLOOMERY_INPUT_H
#define BLOOMERY_INPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "resp_parse.h"

struct config;
struct worker;

#define INPUT_ARENA_SIZE (1024 * 1024) /* input of one iteration before the window must be flushed */
#define INPUT_READ_SIZE  (64 * 1024)   /* largest read from one connection */

struct input {
    char *arena;
    size_t used;               /* of the arena, by this iteration */
    struct resp_args args;     /* lent to the parsers */
    struct resp_limits limits; /* the settings, copied once per iteration */
    struct resp_limits limits_noauth;
};

int input_init(struct input *input); /* 0 or -ENOMEM; input_deinit() in any case */
void input_deinit(struct input *input);

/* Copies the settings. */
void input_refresh(struct input *input, const struct config *config);

/* Returns space in the arena for one read behind `before` kept bytes. Flushes the window if the arena is full. */
char *input_space(struct worker *worker, size_t before);

#endif
