/* Shared by the files of stand_in.h. */
#pragma once

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
    bool modules;                /* the module has made it, with this context (NULL: with none) */
    const struct engine_ctx *by; /* and frees it with the same */
};

struct engine_type {
    struct engine_type_methods methods;
    int version;
    char name[10];
};

struct entry {
    char name[64];
    struct engine_type *type;
    void *value;          /* NULL: free */
    long long expires_ms; /* Unix time; -1: never */
    unsigned long moves;  /* how often the engine's object of the key has become another one */
};

struct engine_key {
    struct entry *entry; /* NULL: none */
    unsigned long moves;
    char name[64];
    int mode;
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
};

struct engine_digest {
    size_t open; /* parts of the sequence that has not ended */
};

/* Where the engine has called the module: the same function is fine in one place, and the engine's end in another. */
enum place {
    PLACE_LOAD = 1 << 0,    /* RedisModule_OnLoad() */
    PLACE_COMMAND = 1 << 1, /* a command, with a client */
    PLACE_TIMER = 1 << 2,
    PLACE_READ = 1 << 3,  /* rdb_load */
    PLACE_WRITE = 1 << 4, /* rdb_save, aof_rewrite, digest */
};

/* A command of a rewritten log. */
struct emitted {
    char line[256];
    char *bytes;
    size_t len;
};

struct host {
    struct engine_ctx ctx; /* of the one call that is continuing */
    enum place place;
    long owed; /* replies */
    bool verbatim, replicates;
    size_t open_keys, strings, infos; /* that the module has, and must give back */
    bool registers, configured;       /* settings */
    struct emitted emitted[64];
    size_t nemitted;
    const char *missing, *taken;
    bool busy; /* the module has loaded */
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
    engine_timer_fn timer; /* NULL: none */
    void *timer_data;
    bool obey;
    size_t allocations, fail_at;
    _Atomic size_t held;
    struct entry unlinked; /* its value is being freed by this thread; NULL: none is */
    pthread_t freeing;
};

extern struct host host;

/* The engine ends here: the strictest reading of its interface does not allow that. */
_Noreturn void refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define MUST(condition, ...)     \
    do {                         \
        if (!(condition))        \
            refuse(__VA_ARGS__); \
    } while (0)

/* Refuses a call of this function from elsewhere than one of these places, or with another context than the call's. */
void only_in(unsigned places, const struct engine_ctx *ctx, const char *function);

/* Begins and ends a call into the module; the end refuses what the module has kept, and replies that are owed. */
void enter(enum place place);
void leave(void);

/* Appends to a text of TEXT_MAX bytes. */
void append(char *text, const char *format, va_list args);
void append_text(char *text, const char *format, ...);

#define ENGINE(presence, result, name, parameters) result fake_##name parameters;
#include "engine.def"
#undef ENGINE

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
struct entry *find_entry(const char *name);                              /* NULL: none */
void put_entry(const char *name, struct engine_type *type, void *value); /* instead of what is there, which is freed */
