/* Subscribers, publishers and monitors of several workers that connect and leave at the same time. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon.h"
#include "wait.h"
#include "wire.h"

DAEMON_SUITE(the_daemon, pubsub_crowd, "--threads", "3");

/* A client that connects, listens, publishes, and leaves at any moment, with messages for it still under way. */
static void *come_and_go(void *arg)
{
    unsigned state = (unsigned)(uintptr_t)arg;
    for (int round = 0; round < 40; round++) {
        struct wire wire = wire_to(the_daemon.port);
        char text[4096], *at = text;
        if (rand_r(&state) % 2)
            at += sprintf(at, "HELLO 3\r\n");
        if (rand_r(&state) % 4 == 0)
            at += sprintf(at, "MONITOR\r\n");
        for (int i = 0; i < 30; i++) {
            static const char *const commands[] = {"SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE",
                                                   "PUNSUBSCRIBE"};
            unsigned n = (unsigned)rand_r(&state);
            if (n % 3)
                at += sprintf(at, "PUBLISH ch%u message\r\nSPUBLISH ch%u message\r\n", n % 5, n % 7);
            else
                at += sprintf(at, "%s ch%u%s\r\n", commands[n / 3 % 5], n % 5, n % 2 ? "*" : "");
        }
        switch (rand_r(&state) % 4) {
        case 0:
            at += sprintf(at, "RESET\r\nPING\r\n");
            break;
        case 1:
            at += sprintf(at, "QUIT\r\n");
            break;
        default:
            break;
        }
        wire_send(&wire, text, (size_t)(at - text));
        struct lines lines = {0};
        for (unsigned n = (unsigned)rand_r(&state) % 20; n > 0; n--)
            wire_reply(&wire, WIRE_PATIENCE_MS, &lines);
        lines_deinit(&lines);
        wire_close(&wire);
    }
    return NULL;
}

/* After any interplay of these clients nobody is subscribed, and the server answers. */
DAEMON_TEST(the_daemon, pubsub_crowd, clients_come_and_go)
{
    pthread_t threads[6];
    struct wire asker = wire_to(the_daemon.port);
    for (size_t i = 0; i < 6; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, come_and_go, (void *)(i + 1)), 0);
    for (int i = 0; i < 50; i++) {
        wire_ask(&asker, "PUBSUB CHANNELS");
        wire_ask(&asker, i % 2 ? "CONFIG SET notify-keyspace-events KEA" : "CONFIG SET notify-keyspace-events KEn");
        wire_ask(&asker, "BF.ADD f x");
        wire_ask(&asker, "DEL f");
        wire_ask(&asker, "CLIENT LIST TYPE pubsub");
    }
    for (size_t i = 0; i < 6; i++)
        pthread_join(threads[i], NULL);
    wait_until(strcmp(wire_ask(&asker, "PUBSUB NUMPAT"), ":0") == 0 &&
               strcmp(wire_ask(&asker, "PUBSUB CHANNELS"), "[]") == 0 &&
               strcmp(wire_ask(&asker, "PUBSUB SHARDCHANNELS"), "[]") == 0);
    expect_ask(&asker, "PUBLISH ch0 x", ":0");
}
