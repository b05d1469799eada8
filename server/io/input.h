/* input: a loop's memory for reading, and the list lent to its parsers. The bytes of an iteration stay in place until
 * all commands are answered, because these are slices of them.
 *
 * Thread: the loop's. */
#ifndef BLOOMERY_INPUT_H
#define BLOOMERY_INPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "resp_parse.h"

struct config;

#define INPUT_ARENA_SIZE (1024 * 1024) /* input of one iteration before its commands must be answered */
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

/* Whether the arena has space for one read after `before` kept bytes. If not, the caller has all commands answered and
 * sets input->used to 0. */
static inline bool input_has_space(const struct input *input, size_t before)
{
    return input->used + before + INPUT_READ_SIZE <= INPUT_ARENA_SIZE;
}

#endif
