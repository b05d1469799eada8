#include "sim_commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bloom_key.h"
#include "cuckoo.h"
#include "schedule.h"

#define WORDS_MAX 32

static uint64_t below(uint64_t n)
{
    return schedule_client_random() % n;
}

const char *command_name(char text[NAME_SIZE], bool shared, unsigned client, unsigned name)
{
    if (shared)
        snprintf(text, NAME_SIZE, "s%u", name);
    else if (name < MODEL_PLAIN)
        snprintf(text, NAME_SIZE, "c%un%u", client, name);
    else
        snprintf(text, NAME_SIZE, "c%uo%u", client, (name - MODEL_PLAIN) % MODEL_OWN);
    return text;
}

unsigned command_database(bool shared, unsigned client, unsigned name)
{
    return shared || name < MODEL_PLAIN ? 0 : 2 * client + 1 + (name - MODEL_PLAIN) / MODEL_OWN;
}

/* ---- items of cuckoo filters, each with a fingerprint of its own ---- */

#define PRINTS (1 + SCHEDULE_SECRETS) /* in RedisBloom's layout; in ours under each key */

struct prints {
    unsigned of[PRINTS];
};

static struct prints prints_of(const char *text, size_t len)
{
    struct prints prints = {{(unsigned)(cuckoo_hash(text, len) % 255)}};
    for (unsigned i = 0; i < SCHEDULE_SECRETS; i++) {
        unsigned char secret[BLOOM_SECRET_BYTES], keyed[SIPHASH_BYTES];
        struct bloom_secret derived;
        schedule_secret(i, secret);
        bloom_secret_derive(secret, &derived);
        siphash(&derived.items, text, len, keyed);
        prints.of[1 + i] = (unsigned)((cuckoo_hash(keyed, sizeof(keyed)) >> 48) * 65535 >> 16);
    }
    return prints;
}

/* Whether the text has other fingerprints than the first n items; it becomes the next one. */
static bool is_different(const char *text, unsigned n, struct prints prints[MODEL_ITEMS])
{
    prints[n] = prints_of(text, strlen(text));
    for (unsigned i = 0; i < n; i++)
        for (unsigned j = 0; j < PRINTS; j++)
            if (prints[i].of[j] == prints[n].of[j])
                return false;
    return true;
}

static void choose_items(char items[MODEL_ITEMS][NAME_SIZE])
{
    struct prints prints[MODEL_ITEMS];
    for (unsigned n = 0, number = 1; n < MODEL_ITEMS; number++) {
        snprintf(items[n], NAME_SIZE, "c%u", number);
        n += is_different(items[n], n, prints);
    }
}

const char *command_item(char text[NAME_SIZE], enum family family, unsigned item)
{
    static char items[MODEL_ITEMS][NAME_SIZE];
    if (!items[0][0])
        choose_items(items);
    if (family_is_cuckoo(family))
        memcpy(text, items[item], NAME_SIZE);
    else
        snprintf(text, NAME_SIZE, "i%u", item);
    return text;
}

/* ---- choices ---- */

static bool is_of_cuckoos(enum op_kind kind)
{
    return kind == OP_ADDNX || kind == OP_DELETE || kind == OP_COUNT || kind == OP_COMPACT;
}

/* Whether filters of the family have the command. */
static bool has(enum family family, enum op_kind kind)
{
    return family_is_cuckoo(family)
               ? kind != OP_CARD && kind != OP_CLEAR && kind != OP_MERGE && kind != OP_SCAN && kind != OP_LOAD
               : !is_of_cuckoos(kind);
}

static enum op_kind choose_kind(void)
{
    static const unsigned chances[OP_KINDS] = {
#define OP(id, word, chance) chance,
#include "sim_ops.def"
#undef OP
    };
    unsigned sum = 0, kind = 0;
    for (unsigned i = 0; i < OP_KINDS; i++)
        sum += chances[i];
    unsigned at = (unsigned)below(sum);
    while (at >= chances[kind])
        at -= chances[kind++];
    return (enum op_kind)kind;
}

/* Another name of the same family and database. */
static unsigned another(unsigned name)
{
    if (name < MODEL_PLAIN)
        return (name + 1 + (unsigned)below(MODEL_PLAIN - 1)) % MODEL_PLAIN;
    return MODEL_PLAIN + ((name - MODEL_PLAIN) ^ 1);
}

/* Returns the name in the client's other database. */
static unsigned opposite(unsigned name)
{
    return MODEL_PLAIN + (name - MODEL_PLAIN + MODEL_OWN) % (2 * MODEL_OWN);
}

/* Commands that only some names have. */
static void choose_names(const struct model_client *client, struct op *op)
{
    const struct model_scan *scan = &client->scan;
    op->name = (unsigned)below(op->shared ? MODEL_SHARED : MODEL_NAMES);
    if (op->kind == OP_MOVE || op->kind == OP_SWAPDB || op->kind == OP_FLUSHDB)
        op->name = MODEL_PLAIN + (unsigned)below(2 * MODEL_OWN);
    if (op->kind == OP_RESTORE && client->dump.plain != (op->name < MODEL_PLAIN))
        op->name = client->dump.plain ? op->name % MODEL_PLAIN : MODEL_PLAIN + op->name % (2 * MODEL_OWN);
    op->to = op->name < MODEL_PLAIN ? op->name + MODEL_PLAIN : op->name;
    if (op->kind == OP_SCAN)
        op->name = scan->n ? scan->name : op->name;
    if (op->kind == OP_LOAD)
        op->name = scan->loaded ? scan->target : scan->chunks[0].plain ? op->name % MODEL_PLAIN : op->to;
    op->to = op->name;
    if (op->kind == OP_RENAME || op->kind == OP_COPY || op->kind == OP_MERGE)
        op->to = another(op->name);
    if (op->kind == OP_MOVE || (op->kind == OP_COPY && op->name >= MODEL_PLAIN && below(2)))
        op->to = opposite(op->name);
}

static uint64_t choose_ms(void)
{
    static const unsigned most[] = {4, 100, 3000, 100000};
    return 1 + below(most[below(4)]);
}

static void choose_time(struct op *op, enum family family)
{
    op->ms = choose_ms();
    if (op->kind == OP_PEXPIREAT)
        op->ms += schedule_day_ms() - (below(8) ? 0 : 50);
    if (op->kind == OP_RESERVE)
        op->ms = below(4) ? 0 : 1000 + 1000 * below(3);
    if (op->kind == OP_RESERVE && family_is_cuckoo(family))
        op->ms = 0;
}

/* Whether the client has what the command needs. */
static bool is_ready(const struct model_client *client, const struct op *op)
{
    const struct model_scan *scan = &client->scan;
    if (op->kind == OP_SCAN)
        return !scan->asks && !(scan->n && scan->whole && below(4));
    if (op->kind == OP_LOAD)
        return scan->n && scan->whole;
    return op->kind != OP_RESTORE || client->dump.len;
}

/* Mostly one that may be there. */
static unsigned choose_present(const struct model_client *client, unsigned name)
{
    uint64_t may = client->steps[client->nsteps - 1].state.names[name].may;
    unsigned item = (unsigned)below(MODEL_ITEMS);
    while (may && below(16) && !(may & UINT64_C(1) << item))
        item = (item + 1) % MODEL_ITEMS;
    return item;
}

void command_choose(const struct model *model, unsigned client, struct op *op)
{
    const struct model_client *own = &model->clients[client];
    bool items;
    do {
        *op = (struct op){.kind = choose_kind(), .n = 1};
        if (own->scan.n && below(3) == 0) /* what has begun goes on */
            op->kind = own->scan.whole ? OP_LOAD : OP_SCAN;
        items = op->kind == OP_ADD || op->kind == OP_ADDNX || op->kind == OP_EXISTS;
        op->shared = items && op->kind != OP_ADDNX && below(3) == 0;
        choose_names(own, op);
    } while (!is_ready(own, op) || (!op->shared && !has(model_family_of(own->family, op->name), op->kind)));
    op->replace = (op->kind == OP_COPY || op->kind == OP_RESTORE) && below(2);
    op->many = items && below(3) == 0;
    if (op->many)
        op->n = 1 + (unsigned)below(MODEL_WORDS);
    for (unsigned i = 0; i < op->n; i++)
        op->items[i] = (unsigned)below(MODEL_ITEMS);
    if (op->kind == OP_DELETE || op->kind == OP_COUNT)
        op->items[0] = choose_present(own, op->name);
    if (op->kind == OP_RESERVE || op->kind == OP_PEXPIRE || op->kind == OP_PEXPIREAT ||
        (op->kind == OP_RESTORE && below(2)))
        choose_time(op, model_family_of(own->family, op->name));
    op->exec = op->kind == OP_ADD && below(5) == 0;
    if (below(40) == 0)
        *op = (struct op){.kind = below(2) ? OP_SAVE : OP_BGSAVE};
}

/* ---- words ---- */

struct words {
    const char *word[WORDS_MAX];
    size_t len[WORDS_MAX]; /* 0: it ends in a NUL */
    char text[WORDS_MAX][24];
    unsigned n;
};

static void put(struct words *words, const char *word)
{
    words->word[words->n++] = word;
}

static void put_number(struct words *words, const char *prefix, uint64_t number)
{
    char *text = words->text[words->n];
    snprintf(text, sizeof(words->text[0]), "%s%" PRIu64, prefix, number);
    put(words, text);
}

static void put_items(struct words *words, const struct op *op, enum family family)
{
    for (unsigned i = 0; i < op->n; i++)
        put(words, command_item(words->text[words->n], family, op->items[i]));
}

static void put_family(struct words *words, enum family family)
{
    if (family == FAMILY_BLOCKED || family == FAMILY_VALKEY) {
        put(words, "LAYOUT");
        put(words, family == FAMILY_BLOCKED ? "blocked" : "valkey");
    }
    if (family == FAMILY_KEYED)
        put(words, "KEYED");
    if (family_is_window(family)) {
        put(words, "WINDOW");
        if (family == FAMILY_LATEST)
            put(words, "ITEMS");
        put_number(words, "", family == FAMILY_LATEST ? filter_window.items : filter_window.ns / 1000000000);
        put(words, "PARTS");
        put_number(words, "", filter_window.parts);
        if (filter_window.refresh)
            put(words, "REFRESH");
    }
}

/* So few items have no false positives by these rates, except where the model expects them. */
static const char *rate_of(const struct op *op, enum family family)
{
    return family == FAMILY_VALKEY && !op->shared ? "0.05" : "0.0000001";
}

/* Small ones of FAMILY_VALKEY have more false positives than their rate says. */
static uint64_t capacity_of(const struct op *op, enum family family, bool scarce)
{
    if (scarce && family != FAMILY_VALKEY && below(2)) /* it can be evicted */
        return 1200 + below(2000);
    return family != FAMILY_VALKEY ? 1 + below(20) : op->shared ? 2000 : 8 + below(20);
}

static void put_rate(struct words *words, enum family family)
{
    if (family == FAMILY_CUCKOO)
        return;
    put(words, "ERROR");
    put(words, "0.0002");
    if (family == FAMILY_CUCKOO_KEYED)
        put(words, "KEYED");
}

static void put_insert(struct words *words, unsigned client, const struct op *op, enum family family, bool scarce)
{
    if (family_is_cuckoo(family)) {
        put_rate(words, family);
        put(words, "CAPACITY");
        put_number(words, "", 8 + below(30));
        put(words, "ITEMS");
        put_items(words, op, family);
        return;
    }
    put(words, "ERROR");
    put(words, rate_of(op, family));
    put(words, "CAPACITY");
    put_number(words, "", capacity_of(op, family, scarce));
    put_family(words, family);
    if (op->shared && op->name == MODEL_CLAIMS) {
        put(words, "OWNER");
        put_number(words, "o", client);
    }
    put(words, "ITEMS");
    put_items(words, op, family);
}

static void put_databases(struct words *words, unsigned client, const struct op *op)
{
    if (op->kind == OP_FLUSHDB)
        return;
    put_number(words, "", command_database(false, client, op->name));
    put_number(words, "", command_database(false, client, opposite(op->name)));
}

static void put_names(struct words *words, char names[2][NAME_SIZE], unsigned client, const struct op *op)
{
    const char *name = command_name(names[0], op->shared, client, op->name);
    const char *to = command_name(names[1], false, client, op->to);
    unsigned database = command_database(false, client, op->to);
    put(words, op->kind == OP_MERGE ? to : name);
    if (op->kind == OP_RENAME || op->kind == OP_COPY || op->kind == OP_MERGE)
        put(words, op->kind == OP_MERGE ? name : to);
    if (op->kind == OP_MOVE)
        put_number(words, "", database);
    if (op->kind == OP_COPY && database != command_database(false, client, op->name)) {
        put(words, "DB");
        put_number(words, "", database);
    }
    if (op->kind == OP_COPY && op->replace)
        put(words, "REPLACE");
}

/* The ages of a window in a dump go by the time of day. */
static void put_restore(struct words *words, struct op *op, const struct model_dump *dump, enum family family,
                        unsigned jumps)
{
    op->value = dump->filter;
    if (family == FAMILY_WINDOW && dump->jumps != jumps)
        filter_forget(family, &op->value);
    put_number(words, "", op->ms);
    words->len[words->n] = dump->len;
    put(words, dump->bytes);
    if (op->replace)
        put(words, "REPLACE");
}

static void put_reserve(struct words *words, const struct op *op, enum family family, bool scarce)
{
    if (family_is_cuckoo(family)) {
        put_number(words, "", 8 + below(30));
        put_rate(words, family);
        if (family == FAMILY_CUCKOO) {
            put(words, "BUCKETSIZE");
            put_number(words, "", 1 + below(4));
        }
        put(words, "EXPANSION");
        put_number(words, "", below(3));
        return;
    }
    put(words, rate_of(op, family));
    put_number(words, "", capacity_of(op, family, scarce));
    put_family(words, family != FAMILY_PLAIN ? family : below(2) ? FAMILY_BLOCKED : FAMILY_PLAIN);
    if (op->ms) {
        put(words, "TTL");
        put_number(words, "", op->ms / 1000);
    }
}

/* The command's word, in the family's form. */
static const char *word_of(const struct op *op, enum family family)
{
    static const char *const words[OP_KINDS][2][2] = {
        [OP_RESERVE] = {{"BF.RESERVE", "BF.RESERVE"}, {"CF.RESERVE", "CF.RESERVE"}},
        [OP_ADD] = {{"BF.ADD", "BF.MADD"}, {"CF.ADD", "CF.INSERT"}},
        [OP_ADDNX] = {{"CF.ADDNX", "CF.INSERTNX"}, {"CF.ADDNX", "CF.INSERTNX"}},
        [OP_EXISTS] = {{"BF.EXISTS", "BF.MEXISTS"}, {"CF.EXISTS", "CF.MEXISTS"}},
    };
    const char *word = words[op->kind][family_is_cuckoo(family)][op->many];
    return word ? word : model_word(op->kind);
}

static void put_scan(struct words *words, struct op *op, struct model_scan *scan)
{
    if (scan->whole) /* a new one */
        *scan = (struct model_scan){.n = 0};
    op->chunk = scan->n;
    scan->name = op->name;
    scan->asks = true;
    put_number(words, "", op->chunk ? scan->iterators[op->chunk - 1] : 0);
}

/* One of some loads ends before its last chunk. */
static void put_load(struct words *words, struct op *op, struct model_scan *scan, enum family family, unsigned jumps)
{
    op->chunk = scan->loaded++;
    op->last = scan->loaded == scan->n;
    op->value = scan->chunks[0].filter;
    if (family == FAMILY_WINDOW && scan->chunks[0].jumps != jumps)
        filter_forget(family, &op->value);
    scan->target = op->name;
    if (op->last || below(12) == 0)
        scan->loaded = 0;
    put_number(words, "", scan->iterators[op->chunk]);
    words->len[words->n] = scan->chunks[op->chunk].len;
    put(words, scan->chunks[op->chunk].bytes);
}

static void put_op(struct words *words, char names[2][NAME_SIZE], unsigned client, struct op *op, enum family family,
                   struct model *model)
{
    bool cuckoo = family_is_cuckoo(family), adds = op->kind == OP_ADD || op->kind == OP_ADDNX;
    bool inserts = adds && (cuckoo ? op->many : family != FAMILY_PLAIN || (op->shared && op->name == MODEL_CLAIMS));
    put(words, inserts && !cuckoo ? "BF.INSERT" : word_of(op, family));
    if (op->kind >= OP_FLUSHALL)
        return;
    if (op->kind == OP_SWAPDB || op->kind == OP_FLUSHDB) {
        put_databases(words, client, op);
        return;
    }
    put_names(words, names, client, op);
    if (op->kind == OP_RESERVE)
        put_reserve(words, op, family, model->scarce);
    if (op->kind == OP_PEXPIRE || op->kind == OP_PEXPIREAT)
        put_number(words, "", op->ms);
    if (op->kind == OP_SCAN)
        put_scan(words, op, &model->clients[client].scan);
    if (op->kind == OP_LOAD)
        put_load(words, op, &model->clients[client].scan, family, model->jumps);
    if (op->kind == OP_RESTORE)
        put_restore(words, op, &model->clients[client].dump, family, model->jumps);
    if (inserts)
        put_insert(words, client, op, family, model->scarce);
    else if (adds || op->kind == OP_EXISTS || op->kind == OP_DELETE || op->kind == OP_COUNT)
        put_items(words, op, family);
}

static void show(const struct words *words, unsigned client, unsigned database)
{
    printf("%14.6f  %u:%u >", (double)schedule_now_ns() / 1e9, client, database);
    for (unsigned i = 0; i < words->n; i++)
        printf(" %s%c", words->len[i] ? "..." : words->word[i], i + 1 < words->n ? ' ' : '\n');
}

static void select_database(struct sim_client *to, unsigned database)
{
    char text[12];
    snprintf(text, sizeof(text), "%u", database);
    sim_client_words(to, 2, (const char *[]){"SELECT", text});
}

void command_send(struct sim_client *to, struct model *model, unsigned client, struct op *op, bool shown)
{
    char names[2][NAME_SIZE];
    struct words words = {.n = 0};
    enum family family =
        op->shared ? model->shared_family[op->name] : model_family_of(model->clients[client].family, op->name);
    unsigned database = op->kind < OP_FLUSHALL ? command_database(op->shared, client, op->name) : 0;
    put_op(&words, names, client, op, family, model);
    if (shown)
        show(&words, client, database);
    op->exec &= database == 0 && !family_is_keyed(family); /* its key may have to be read first */
    op->before = op->after = op->exec || database;
    op->when.sent_ns = schedule_now_ns();
    op->when.sent_ms = schedule_day_ms();
    if (op->exec)
        sim_client_words(to, 1, (const char *[]){"MULTI"});
    if (database)
        select_database(to, database);
    for (unsigned i = 0; i < words.n; i++)
        words.len[i] = words.len[i] ? words.len[i] : strlen(words.word[i]);
    sim_client_bytes(to, words.n, words.word, words.len);
    if (op->exec)
        sim_client_words(to, 1, (const char *[]){"EXEC"});
    if (database)
        select_database(to, 0);
}
