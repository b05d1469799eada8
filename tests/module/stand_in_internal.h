/* Shared by the files of stand_in.h. */
#ifndef BLOOMERY_TEST_STAND_IN_INTERNAL_H
#define BLOOMERY_TEST_STAND_IN_INTERNAL_H

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine.h"

#define TEXT_MAX  (4u << 20)
#define KEYS_MAX  32
#define FIELD_MAX 4096
#define WORDS_MAX 64

struct engine_string {
    size_t len;
    char *ptr;
};

struct engine_type {
    struct engine_type_methods methods;
    int version;
};

struct entry {
    char name[64];
    struct engine_type *type;
    void *value; /* NULL: free */
};

struct engine_key {
    struct entry *entry; /* NULL: there is none */
    char name[64];
};

struct field {
    bool number; /* a double is the number of the same bits */
    uint64_t value;
    char *bytes;
    size_t len;
};

struct engine_io {
    size_t next, limit;
    bool failed;
    const char *rewrite_to;
};

struct host {
    struct engine_ctx ctx;
    const char *missing;
    char *log, *reply, *replicated;
    struct entry entries[KEYS_MAX];
    struct engine_type types[4];
    size_t ntypes;
    struct engine_type *saved; /* the type of what is in the fields */
    struct {
        char name[48];
        engine_command_fn run;
    } commands[64];
    size_t ncommands;
    struct field fields[FIELD_MAX];
    size_t nfields;
    char *bytes;
    size_t bytes_len;
    engine_timer_fn timer; /* NULL: there is none */
    void *timer_data;
    bool obey;
    size_t allocations, fail_at;
    _Atomic size_t held;
    struct entry unlinked; /* its value is being freed by this thread; NULL: none is */
    pthread_t freeing;
};

extern struct host host;

/* The engine's functions, as engine.def lists them. */
struct fake {
    const char *name;
    void (*function)(void);
    bool required;
};
extern const struct fake fakes[];
extern const size_t nfakes;

struct engine_string *make_string(const char *ptr, size_t len);
void free_string(struct engine_string *string);
struct entry *find_entry(const char *name); /* NULL: there is none */
void put_entry(const char *name, struct engine_type *type,
               void *value); /* in the place of what is there, which is freed */

#endif
