/* residency's inside, shared by its sources: residency.c (waits, readers) and evict.c. */
#pragma once

#include <pthread.h>

#include "hash_table.h"
#include "residency.h"
#include "lock.h"

#define READERS 4 /* that read filters at the same time */

/* A filter that waits for its read, or is being read. */
struct reading {
    struct hash_link link; /* by the id */
    struct reading *next;  /* in the queue */
    struct entry *entry;   /* pinned */
    struct waited *waiters;
    size_t name_len;
    char name[];
};

/* The thread that has bits are evicted, in rounds (evict.c). */
struct evictor {
    pthread_t thread;
    pthread_cond_t press; /* another round must begin */
    bool runs;            /* under the lock, like the rounds: the thread has started */
    uint64_t rounds;      /* asked for */
    uint64_t done;        /* of these */
    atomic_bool pressed;  /* a round that has not begun was asked for by residency_press() */
    atomic_bool stuck;    /* residency_is_stuck() */

    _Atomic uint64_t wanted;         /* bytes for which readers wait, and clients for them */
    _Atomic uint64_t wanted_gently;  /* the same, but no client waits: filters used lately stay */
    uint64_t reserved;               /* under the lock: bytes that readers have been granted and have not yet taken */
    _Atomic int64_t gentle_until_ms; /* no gentle round before: the last one found nothing */
    _Atomic int64_t rest_until_ms;   /* residency_tick() asks for no round before: the last one could not do enough */

    /* of the thread */
    uint64_t cursor;
    int64_t save_failed_ms;
    unsigned missed; /* rounds in a row that have not kept the limit */
    int64_t missed_since_ms;
};

struct residency {
    struct server *server;
    struct lock lock;     /* of the members down to `readers`, and of the rounds of the evictor */
    pthread_cond_t wake;  /* of readers: something is in the queue, or stop */
    pthread_cond_t ended; /* a reading, or a round of the evictor, has ended */
    struct hash_table readings;
    struct reading *first, **last; /* the queue */
    unsigned nreaders;
    bool stop;
    pthread_t readers[READERS];
    struct evictor evictor;
    struct lock words; /* one thread at a time drops words, or makes new ones */
    _Atomic uint64_t evictions, reloads, reload_bytes, failed;
};

/* Reserves this many bytes for the caller, as soon as they fit. Waits until evictions have made room, or no more can;
 * `gently`: filters used lately stay. False: nothing is reserved. Thread: a reader, offline. */
bool evict_for(struct residency *residency, uint64_t bytes, bool gently);

/* Ends a reservation: the bytes are taken by now, or not needed. */
void evict_release(struct residency *residency, uint64_t bytes);
