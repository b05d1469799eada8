/* sim_client: a client of a simulated daemon: its connection, the bytes to send, and the replies.
 *
 * Thread: one at a time; no function is a point of the schedule. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "resp_reply.h"

struct sim_client {
    int fd; /* -1: there is no connection */
    struct buf out, in;
    struct resp_reply_reader reader;
};

/* Takes over the connection. */
void sim_client_open(struct sim_client *client, int fd);
void sim_client_close(struct sim_client *client);

#define SIM_CLIENT_WORDS 256

/* Appends words as a command, at most SIM_CLIENT_WORDS; sim_client_bytes(): with any bytes. */
void sim_client_bytes(struct sim_client *client, size_t n, const char *const *words, const size_t *lens);
void sim_client_words(struct sim_client *client, size_t n, const char *const *words);

/* Sends up to `most` of the bytes to send. False: the daemon has closed the connection. */
bool sim_client_send(struct sim_client *client, size_t most);

/* Receives all bytes that have arrived. False: the daemon has closed the connection. */
bool sim_client_receive(struct sim_client *client);

/* The next whole reply, valid until the next call; `status_out` as resp_reply_next(). */
bool sim_client_reply(struct sim_client *client, struct resp_reply *reply_out, enum resp_reply_status *status_out);
