#include "stand_in.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <xxhash.h>

#include "stand_in_internal.h"

struct host host;

struct engine_string *make_string(const char *ptr, size_t len)
{
    struct engine_string *string = malloc(sizeof(*string));
    *string = (struct engine_string){.len = len, .ptr = malloc(len + 1)};
    if (len)
        memcpy(string->ptr, ptr, len);
    string->ptr[len] = '\0';
    return string;
}

void free_string(struct engine_string *string)
{
    free(string->ptr);
    free(string);
}

struct entry *find_entry(const char *name)
{
    for (size_t i = 0; i < KEYS_MAX; i++)
        if (host.entries[i].value && strcmp(host.entries[i].name, name) == 0)
            return &host.entries[i];
    return NULL;
}

void put_entry(const char *name, struct engine_type *type, void *value)
{
    struct entry *entry = find_entry(name);
    for (size_t i = 0; !entry && i < KEYS_MAX; i++)
        if (!host.entries[i].value)
            entry = &host.entries[i];
    if (entry->value)
        entry->type->methods.free(entry->value);
    entry->type = type;
    entry->expires_ms = -1;
    entry->moves++;
    snprintf(entry->name, sizeof(entry->name), "%s", name);
    entry->value = value;
}

/* ---- calls into the module ---- */

void refuse(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "the engine ends: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    abort();
}

void only_in(unsigned places, const struct engine_ctx *ctx, const char *function)
{
    MUST(host.place & places, "%s: not in this kind of call", function);
    MUST(ctx == &host.ctx, "%s: not the context of this call", function);
}

void enter(enum place place)
{
    MUST(host.place == 0, "a call within another one");
    host.place = place;
    host.owed = place == PLACE_COMMAND;
    host.verbatim = host.replicates = false;
    host.open_keys = host.strings = host.infos = 0;
}

void leave(void)
{
    MUST(host.owed == 0, "%ld replies are missing", host.owed);
    MUST(host.open_keys == 0, "%zu keys are left open", host.open_keys);
    MUST(host.place == PLACE_LOAD || host.strings == 0, "%zu strings are left", host.strings); /* settings keep some */
    MUST(host.infos == 0, "%zu answers of GetServerInfo() are left", host.infos);
    host.place = 0;
}

/* ---- for tests ---- */

size_t stand_in_functions(void)
{
    return nfakes;
}

const char *stand_in_function(size_t i)
{
    return fakes[i].name;
}

bool stand_in_is_required(size_t i)
{
    return fakes[i].required;
}

static int get_api(const char *name, void *function_out)
{
    for (size_t i = 0; i < stand_in_functions(); i++) {
        if (strncmp(name, "RedisModule_", 12) != 0 || strcmp(name + 12, fakes[i].name) != 0)
            continue;
        if (host.missing && strcmp(host.missing, fakes[i].name) == 0)
            return ENGINE_ERR;
        memcpy(function_out, &fakes[i].function, sizeof(void *));
        return ENGINE_OK;
    }
    return ENGINE_ERR;
}

bool stand_in_load(const char *path, const char *missing, int argc, const char *const *argv)
{
    struct engine_string *words[WORDS_MAX];
    int (*on_load)(struct engine_ctx *, struct engine_string **, int);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL),
         *symbol = library ? dlsym(library, "RedisModule_OnLoad") : NULL;
    if (!symbol) {
        fprintf(stderr, "%s\n", dlerror());
        abort();
    }
    memcpy(&on_load, &symbol, sizeof(symbol));
    host.ctx.get_api = get_api;
    host.missing = missing;
    host.registers = host.configured = false;
    if (!host.log) {
        host.log = calloc(1, TEXT_MAX);
        host.reply = calloc(1, TEXT_MAX);
        host.replicated = calloc(1, TEXT_MAX);
    }
    size_t ntypes = host.ntypes, ncommands = host.ncommands;
    for (int i = 0; i < argc; i++)
        words[i] = make_string(argv[i], strlen(argv[i]));
    enter(PLACE_LOAD);
    bool loaded = on_load(&host.ctx, words, argc) == ENGINE_OK;
    MUST(!loaded || host.registers == host.configured, "settings without LoadConfigs()");
    if (!loaded) { /* what it has registered goes */
        host.ntypes = ntypes;
        host.ncommands = ncommands;
    }
    host.busy |= loaded;
    leave();
    for (int i = 0; i < argc; i++)
        free_string(words[i]);
    return loaded;
}

void stand_in_take(const char *name)
{
    host.taken = name;
}

const char *stand_in_log(void)
{
    return host.log;
}

static void run_command(engine_command_fn run, struct engine_string **words, int n)
{
    enter(PLACE_COMMAND);
    run(&host.ctx, words, n);
    leave();
}

const char *stand_in_run(const char *line, const void *data, size_t len)
{
    struct engine_string *words[WORDS_MAX];
    char *copy = strdup(line), *save = NULL;
    int n = 0;
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
        words[n++] = make_string(word, strlen(word));
    if (data)
        words[n++] = make_string(data, len);
    host.reply[0] = '\0';
    for (size_t i = 0; i < host.ncommands; i++)
        if (strcasecmp(host.commands[i].name, words[0]->ptr) == 0)
            run_command(host.commands[i].run, words, n);
    for (engine_timer_fn run; (run = host.timer) != NULL;) {
        host.timer = NULL;
        enter(PLACE_TIMER);
        run(&host.ctx, host.timer_data);
        leave();
    }
    while (n > 0)
        free_string(words[--n]);
    free(copy);
    return host.reply;
}

const void *stand_in_bytes(size_t *len_out)
{
    *len_out = host.bytes_len;
    return host.bytes;
}

void stand_in_obey(bool obey)
{
    host.obey = obey;
}

const char *stand_in_replicated(void)
{
    static char *last;
    free(last);
    last = strdup(host.replicated);
    host.replicated[0] = '\0';
    return last;
}

static void drop_fields(void)
{
    while (host.nfields)
        free(host.fields[--host.nfields].bytes);
    memset(host.fields, 0, sizeof(host.fields));
}

bool stand_in_save(const char *name)
{
    struct entry *entry = find_entry(name);
    struct engine_io io = {0};
    drop_fields();
    if (entry) {
        host.saved = entry->type;
        enter(PLACE_WRITE);
        entry->type->methods.rdb_save(&io, entry->value);
        leave();
    }
    return entry != NULL;
}

bool stand_in_restore(const char *name, size_t reads)
{
    struct engine_io io = {.limit = reads};
    enter(PLACE_READ);
    void *value = host.saved->methods.rdb_load(&io, host.saved->version);
    leave();
    if (value)
        put_entry(name, host.saved, value);
    return value != NULL;
}

size_t stand_in_saved_fields(void)
{
    return host.nfields;
}

void stand_in_damage(size_t field, size_t byte, unsigned char bit)
{
    struct field *at = &host.fields[field % host.nfields];
    if (at->number)
        at->value ^= bit;
    else if (at->len)
        at->bytes[byte % at->len] ^= (char)bit;
}

/* docs/DUMP.md: a chunk has the low bits of the sum of the one before it, and ends with its own. */
void stand_in_seal(void)
{
    uint32_t chain = 0;
    for (size_t i = 0; i < host.nfields; i++) {
        struct field *at = &host.fields[i];
        XXH128_canonical_t sum;
        if (at->number || at->len < 48)
            continue;
        memcpy(at->bytes + 24, &chain, sizeof(chain));
        XXH128_canonicalFromHash(&sum, XXH3_128bits(at->bytes, at->len - sizeof(sum)));
        memcpy(at->bytes + at->len - sizeof(sum), sum.digest, sizeof(sum));
        memcpy(&chain, sum.digest, sizeof(chain));
        chain &= (1u << 21) - 1;
    }
}

void stand_in_set_expiry(const char *name, long long unix_ms)
{
    find_entry(name)->expires_ms = unix_ms;
}

long long stand_in_expiry(const char *name)
{
    return find_entry(name)->expires_ms;
}

void stand_in_rewrite(const char *name, const char *to)
{
    struct engine_io io = {0};
    struct engine_digest digest = {0};
    struct engine_string *key = make_string(to, strlen(to));
    struct entry *entry = find_entry(name);
    const struct engine_type_methods *methods = &entry->type->methods;
    enter(PLACE_WRITE);
    methods->aof_rewrite(&io, key, entry->value);
    methods->digest(&digest, entry->value);
    MUST(digest.open == 0, "the digest has no end");
    leave();
    free_string(key);
    void *copy = methods->copy2(NULL, entry->value);
    if (!copy || methods->mem_usage2(NULL, copy, 5) != methods->mem_usage(entry->value) ||
        methods->free_effort2(NULL, copy) > 1)
        abort();
    methods->free(copy);
    for (size_t i = 0; i < host.nemitted; i++) {
        (void)stand_in_run(host.emitted[i].line, host.emitted[i].bytes, host.emitted[i].len);
        free(host.emitted[i].bytes);
    }
    host.nemitted = 0;
}

void stand_in_fail_allocation(size_t n)
{
    host.allocations = 0;
    host.fail_at = n;
}

size_t stand_in_allocations(void)
{
    return host.allocations;
}

size_t stand_in_held(void)
{
    return host.held;
}

static void *free_unlinked(void *entry)
{
    const struct entry *unlinked = entry;
    unlinked->type->methods.free(unlinked->value);
    return NULL;
}

static void wait_for_unlinked(void)
{
    if (host.unlinked.value)
        pthread_join(host.freeing, NULL);
    host.unlinked.value = NULL;
}

void stand_in_unlink(const char *name)
{
    struct entry *entry = find_entry(name);
    if (!entry || entry->type->methods.free_effort2(NULL, entry->value) != 0)
        abort();
    wait_for_unlinked();
    host.unlinked = *entry;
    entry->value = NULL;
    if (pthread_create(&host.freeing, NULL, free_unlinked, &host.unlinked) != 0)
        abort();
}

void stand_in_end(void)
{
    wait_for_unlinked();
    for (size_t i = 0; i < KEYS_MAX; i++) {
        if (host.entries[i].value)
            host.entries[i].type->methods.free(host.entries[i].value);
        host.entries[i].value = NULL;
    }
    drop_fields();
}
