/* daemon_pair: two daemons, `source` and `target`, with a connection to each, `from` and `to`, for tests of moves
 * between servers. Include it in one file of a program.
 *
 *   DAEMON_PAIR(suite);
 *   PAIR_TEST(suite, claim) { ... } */
#pragma once

#include <criterion/criterion.h>

#include "client.h"
#include "daemon.h"

static struct daemon source, target;
static redisContext *from, *to;

static void pair_start(void)
{
    daemon_start(&source, NULL);
    daemon_start(&target, NULL);
    from = client_open(source.port);
    to = client_open(target.port);
}

static void pair_discard(void)
{
    daemon_discard(&source);
    daemon_discard(&target);
}

static void pair_deinit(void)
{
    daemon_deinit(&source);
    daemon_deinit(&target);
}

#define DAEMON_PAIR(suite) TestSuite(suite, .init = pair_start, .fini = pair_discard, .timeout = 3000)

/* A test that stops both daemons at its end. */
#define PAIR_TEST(suite, name) ENDED_TEST(suite, name, pair_deinit())
