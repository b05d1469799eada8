/* A struct config with the defaults, made again for each test. */
#pragma once

#include <criterion/criterion.h>
#include <string.h>

#include "config.h"

static struct config cfg;
static struct errbuf err;

static inline void set_up(void)
{
    cr_assert_eq(config_init(&cfg), 0);
    memset(&err, 0, sizeof(err));
}

static inline void tear_down(void)
{
    config_deinit(&cfg);
}
