/* load: threads that send requests to a RESP server over connections and record the latencies.
 *
 * Closed loop (no rate): each connection writes `pipeline` requests at once, waits for all their replies, and
 * continues. A request's latency runs from the moment its batch is handed to the kernel to the moment its reply is
 * read.
 *
 * Open loop (a rate): requests are due at fixed moments, however slow the server is. Each is sent when it is due, or
 * later if all connections have `pipeline` requests under way. Its latency begins when it was due (schedule.h), so a
 * stalled server is charged for every request due during the stall. Over TCP it ends when the kernel receives the
 * reply, over a Unix socket when this thread reads it. `lateness` is the generator's own delay.
 *
 * Thread: the caller's; load_run() starts and joins its own. */
#ifndef BLOOMERY_BENCH_LOAD_H
#define BLOOMERY_BENCH_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "errbuf.h"
#include "hdr.h"
#include "items.h"
#include "peer.h"
#include "traffic.h"

struct endpoint {
    struct peer_address address;
    int resp; /* 2, or 3: HELLO 3 is sent first */
};

struct load_options {
    const struct endpoint *endpoint;
    const struct request_template *request;
    const struct items_options *items;
    unsigned threads, connections, pipeline; /* threads <= connections */
    double rate;                             /* requests per second of all connections; 0: as fast as possible */
    bool spin;                               /* never sleep: each thread takes a processor */
    double seconds;                          /* measured; 0: until `requests` are answered */
    double warmup;                           /* seconds before, not measured; 0 with `requests` */
    uint64_t requests;                       /* sent in total; 0: until the time is over */
    void (*progress)(void *ctx, double seconds, double per_second); /* called once a second; NULL: never */
    void *ctx;
};

struct load_result {
    double seconds;    /* measured */
    uint64_t requests; /* answered while measuring */
    uint64_t ones, zeros;
    uint64_t left_out;   /* open loop that spins: requests not sent, because the generator noticed them too late */
    double cpu_busiest;  /* seconds of CPU of the busiest thread, of `seconds` */
    double cpu_total;    /* of all threads */
    struct hdr latency;  /* ns */
    struct hdr lateness; /* open loop: ns from when a request was due until the generator noticed it */
};

/* 0, or -errno with the reason: no connection, a connection lost, not RESP. -EREMOTEIO with the server's first error
 * reply, which ends the run: numbers of refused requests are meaningless. `result` is large: allocate it. */
int load_run(const struct load_options *options, struct load_result *result, struct errbuf *err);

/* One connected socket, non-blocking, authenticated and in the requested protocol version, and its TLS (NULL: none). A
 * descriptor, or -errno with the reason. */
int endpoint_connect(const struct endpoint *endpoint, struct tls_stream **tls_out, struct errbuf *err);

/* Sends one command of at most 8 words over a separate connection and waits for the reply: the text of a string, a
 * status or an error in `text` (NUL-terminated, truncated to size). 0 or -errno with the reason. */
int endpoint_ask(const struct endpoint *endpoint, const char *const *words, unsigned nwords, char *text, size_t size,
                 struct errbuf *err);

#endif
