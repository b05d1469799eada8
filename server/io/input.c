#include "input.h"

#include <errno.h>
#include <stdlib.h>

#include "config.h"

int input_init(struct input *input)
{
    input->arena = malloc(INPUT_ARENA_SIZE);
    return input->arena ? 0 : -ENOMEM;
}

void input_deinit(struct input *input)
{
    resp_args_deinit(&input->args);
    free(input->arena);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

void input_refresh(struct input *input, const struct config *config)
{
    input->limits = (struct resp_limits){
        .max_args = (size_t)config->clients.proto_max_args,
        .max_bulk = (size_t)config->clients.proto_max_bulk_len,
        .max_inline = (size_t)config->clients.proto_inline_max_size,
    };
    input->limits_noauth = (struct resp_limits){
        .max_args = least(input->limits.max_args, (size_t)config->clients.proto_max_args_noauth),
        .max_bulk = least(input->limits.max_bulk, (size_t)config->clients.proto_max_bulk_noauth),
        .max_inline = input->limits.max_inline,
    };
}
