#include "sim_sstables.h"

#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bloom_filter.h"
#include "check.h"
#include "filterdb.h"
#include "schedule.h"
#include "sim_client.h"
#include "sim_daemon.h"

#define MS       UINT64_C(1000000)
#define SSTABLES 96 /* of a life */
#define INPUTS   4  /* of a compaction */
#define LIVE     8  /* from so many on there are compactions only */
#define DIRS     2
#define LATE_NS  (15000 * MS) /* then the daemon knows an SSTable, whatever it was told of it */
#define AGE_NS   (10000 * MS) /* then an SSTable counts as complete without its TOC.txt */
#define REST     600          /* questions until it knows all, with a fifth of a second between them */
#define KEYS     MODEL_ITEMS
#define WORDS    64 /* of a filter, and bits of a key: no false positives */
#define BITS     20
#define TABLE    "/ks/t-1c6ace40fad111e7b9cf000000000002"

enum kind { WHOLE, DAMAGED, WITHOUT_FILTER };

struct sstable {
    unsigned generation, dir;
    enum kind kind;
    uint64_t keys;
    uint64_t begun_ns; /* when it had no file */
    unsigned jumps;    /* of the time of day until then */
    uint64_t since_ns; /* when it was complete; 0: not yet */
    bool live;         /* complete, and nothing of it is removed */
    bool known, named; /* to the daemon; by it, when it was complete */
    bool met_whole;    /* the daemon cannot have met it before */
};

/* A flush, a compaction, or a new TOC.txt for an old SSTable: operations on files, of which the next one is `at`. */
struct job {
    bool under_way, moves, aborts, backwards;
    struct sstable *rewritten, *output, *inputs[INPUTS];
    unsigned ninputs, at;
};

struct question {
    bool under_way;
    const struct sstable *one; /* BF.EXISTS of this one; NULL: BF.FIND */
    unsigned n, keys[KEYS];
    uint64_t sent_ns, must;   /* `must`: keys that an SSTable must have */
    bool must_name[SSTABLES]; /* as long as it is live */
};

static struct {
    struct model *model;
    bool shown, same_names, starved; /* the daemon's thread of SSTables lacks memory */
    struct sstable all[SSTABLES];
    unsigned n, generations[DIRS];
    uint64_t known; /* keys */
    struct job job;
    struct question question;
    struct sim_client client;
} it;

static uint64_t below(uint64_t n)
{
    return schedule_client_random() % n;
}

static uint64_t bit(unsigned key)
{
    return UINT64_C(1) << key;
}

/* ---- files: no other thread runs within an operation ---- */

static const char *path_of(char path[200], const struct sstable *sstable, const char *component)
{
    snprintf(path, 200, "%c" TABLE "/nb-%u-big-%s", 'a' + (int)sstable->dir, sstable->generation, component);
    return path;
}

static void done(const char *what, const struct sstable *sstable, const char *component)
{
    char path[200];
    path_of(path, sstable, component);
    if (it.shown)
        printf("%14.6f  %s %s\n", (double)schedule_now_ns() / 1e9, what, path);
    *strrchr(path, '/') = '\0';
    schedule_stamp(path);
    schedule_io();
    schedule_point();
}

/* Appends to a file, which gets the time of the run. */
static void append(const char *path, const void *bytes, size_t len)
{
    static __typeof__(&write) real_write;
    static __typeof__(&close) real_close;
    *(void **)&real_write = schedule_real("write");
    *(void **)&real_close = schedule_real("close");
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    CHECK(fd >= 0 && real_write(fd, bytes, len) == (ssize_t)len);
    real_close(fd);
    schedule_stamp(path);
}

static size_t filter_of(const struct sstable *sstable, unsigned char bytes[FILTERDB_HEADER_BYTES + 8 * WORDS])
{
    struct bloom_shape shape = {.nwords = WORDS, .k = BITS, .variant = BLOOM_NA};
    struct bloom_layer_view layer;
    struct bloom_alone alone = {NULL};
    struct errbuf err;
    char item[16];
    CHECK(bloom_alone_init(&alone, &shape, NULL, &err) == 0);
    for (unsigned key = 0; key < KEYS; key++) {
        size_t len = (size_t)snprintf(item, sizeof(item), "i%u", key);
        if (sstable->keys & bit(key))
            (void)bloom_filter_add(alone.filter, bloom_filter_hash(alone.filter, item, len), NULL);
    }
    bloom_filter_layer(alone.filter, 0, &layer);
    filterdb_encode_header(&layer.shape, bytes);
    filterdb_encode_words(BLOOM_NA, layer.words, WORDS, bytes + FILTERDB_HEADER_BYTES);
    bloom_alone_deinit(&alone);
    return (size_t)filterdb_bytes(WORDS) - (sstable->kind == DAMAGED ? 8 : 0);
}

/* Part 0 or 1 of a component, below the table's directory or, in one part, beside it. */
static void write_part(const struct sstable *sstable, const char *component, unsigned part, bool beside)
{
    unsigned char bytes[FILTERDB_HEADER_BYTES + 8 * WORDS] = "Filter.db\n";
    char path[200];
    bool filter = strcmp(component, "Filter.db") == 0;
    size_t len = filter ? filter_of(sstable, bytes) : 10, half = filter && !beside ? len / 2 : len;
    path_of(path, sstable, component);
    if (filter && sstable->kind == WITHOUT_FILTER)
        return;
    append(beside ? component : path, part ? bytes + half : bytes, part ? len - half : half);
    if (!beside)
        done("writes", sstable, component);
}

static void move(const struct sstable *sstable, const char *from, const char *component)
{
    char paths[2][200];
    if (strcmp(component, "Filter.db") == 0 && sstable->kind == WITHOUT_FILTER)
        return;
    CHECK(rename(from ? path_of(paths[0], sstable, from) : component, path_of(paths[1], sstable, component)) == 0);
    done("completes", sstable, component);
}

static void remove_component(const struct sstable *sstable, const char *component)
{
    char path[200];
    (void)unlink(path_of(path, sstable, component));
    done("removes", sstable, component);
}

static bool is_young(const struct sstable *sstable)
{
    return sstable->jumps == it.model->jumps && schedule_now_ns() < sstable->begun_ns + AGE_NS;
}

static void complete(struct sstable *sstable)
{
    sstable->live = true;
    sstable->since_ns = schedule_now_ns();
    sstable->met_whole = is_young(sstable);
}

/* ---- flushes and compactions ---- */

static const char *const components[] = {"Data.db", "Filter.db", "TOC.txt"};

static unsigned live_in(unsigned dir)
{
    unsigned n = 0;
    for (unsigned i = 0; i < it.n; i++)
        n += it.all[i].live && it.all[i].dir == dir;
    return n;
}

static void choose_inputs(struct job *job, unsigned dir)
{
    unsigned most = 1 + (unsigned)below(INPUTS);
    for (unsigned tries = 0; tries < 4 * SSTABLES && job->ninputs < most; tries++) {
        struct sstable *sstable = &it.all[below(it.n)];
        bool chosen = !sstable->live || sstable->dir != dir || sstable == job->output;
        for (unsigned i = 0; i < job->ninputs; i++)
            chosen |= job->inputs[i] == sstable;
        if (chosen)
            continue;
        job->inputs[job->ninputs++] = sstable;
        job->output->keys |= sstable->keys;
    }
}

static void begin_job(void)
{
    struct job *job = &it.job;
    unsigned dir = (unsigned)below(DIRS), live = live_in(dir);
    struct sstable *any = &it.all[below(it.n + 1) % SSTABLES];
    if (any->live && any->named && any->met_whole && !it.starved && below(2))
        *job = (struct job){true, .rewritten = any};
    if (it.n == SSTABLES || job->under_way)
        return;
    struct sstable *output = &it.all[it.n++];
    unsigned *generation = &it.generations[it.same_names ? dir : 0];
    *output = (struct sstable){
        .dir = dir, .generation = ++*generation, .begun_ns = schedule_now_ns(), .jumps = it.model->jumps};
    output->kind = below(4) ? WHOLE : (enum kind)below(3);
    *job = (struct job){true, .moves = below(2), .aborts = below(8) == 0, .backwards = below(2), .output = output};
    if (live >= LIVE || (live > 0 && below(2)))
        choose_inputs(job, dir);
    for (uint64_t n = job->ninputs ? 0 : 1 + below(5); n > 0; n--)
        output->keys |= bit((unsigned)below(KEYS));
}

/* In place, the last file gets its name at the end; or all files are moved in. False: it is complete. */
static bool write_next(struct job *job)
{
    static const struct {
        const char *component;
        unsigned part;
    } steps[] = {{"Data.db", 0}, {"Filter.db", 0}, {"Filter.db", 1}, {"TOC.txt.tmp", 0}};
    struct sstable *output = job->output;
    if (job->moves && job->at == 0)
        for (unsigned i = 0; i < 3; i++) {
            (void)unlink(components[i]);
            write_part(output, components[i], 0, true);
        }
    if (job->at < 4) {
        unsigned at = job->at++;
        if (!job->moves)
            write_part(output, steps[at].component, steps[at].part, false);
        else if (at % 2 == 0)
            move(output, NULL, steps[at].component);
        return true;
    }
    if (job->at == 4 && !job->aborts) {
        complete(output);
        move(output, job->moves ? NULL : "TOC.txt.tmp", "TOC.txt");
    }
    return false;
}

/* False: all is removed. */
static bool remove_next(struct job *job)
{
    static const char *const unfinished[] = {"Data.db", "Filter.db", "TOC.txt.tmp"};
    unsigned removed = job->at - 5, which = removed % 3;
    if (removed >= 3 * (job->aborts ? 1 : job->ninputs))
        return false;
    struct sstable *sstable = job->aborts ? job->output : job->inputs[removed / 3];
    sstable->live = false;
    if (job->backwards)
        which = 2 - which;
    remove_component(sstable, (job->aborts ? unfinished : components)[which]);
    job->at++;
    return true;
}

/* Cassandra does so when an SSTable gets a new component. */
static bool rewrite_next(struct job *job)
{
    if (!job->rewritten)
        return false;
    job->under_way = job->at++ == 0;
    if (job->under_way)
        remove_component(job->rewritten, "TOC.txt");
    else
        write_part(job->rewritten, "TOC.txt", 0, false);
    return true;
}

static void work(void)
{
    struct job *job = &it.job;
    if (!job->under_way)
        begin_job();
    if (!job->under_way || rewrite_next(job) || (job->at <= 4 && write_next(job)))
        return;
    if (job->at == 4)
        job->at++;
    else if (!remove_next(job))
        job->under_way = false;
}

static void finish_job(void)
{
    while (it.job.under_way)
        work();
}

/* ---- questions ---- */

static void send_words(size_t n, const char *const *words)
{
    sim_client_words(&it.client, n, words);
    (void)sim_client_send(&it.client, SIZE_MAX);
}

static bool must_be_named(const struct sstable *sstable, uint64_t now_ns)
{
    return sstable->live && (sstable->known || sstable->since_ns + LATE_NS < now_ns);
}

static void ask_find(bool all)
{
    struct question *question = &it.question;
    char items[KEYS][16];
    const char *words[3 + KEYS] = {"BF.FIND", "ks.t/*", "ITEMS"};
    *question = (struct question){true, .sent_ns = schedule_now_ns(), .must = it.known};
    question->n = all ? KEYS : 1 + (unsigned)below(4);
    for (unsigned i = 0; i < question->n; i++) {
        question->keys[i] = all ? i : (unsigned)below(KEYS);
        snprintf(items[i], sizeof(items[i]), "i%u", question->keys[i]);
        words[3 + i] = items[i];
    }
    for (unsigned i = 0; i < it.n; i++) {
        const struct sstable *sstable = &it.all[i];
        question->must_name[i] = must_be_named(sstable, schedule_now_ns());
        if (sstable->since_ns && sstable->since_ns + LATE_NS < schedule_now_ns())
            question->must |= sstable->keys;
    }
    send_words(3 + question->n, words);
}

/* Of one SSTable. */
static void ask_exists(void)
{
    const struct sstable *one = &it.all[below(it.n)];
    char name[24], item[16];
    unsigned key = (unsigned)below(KEYS);
    while (one->keys && below(8) && !(one->keys & bit(key)))
        key = (key + 1) % KEYS;
    if (!must_be_named(one, schedule_now_ns()))
        return;
    it.question = (struct question){true, .one = one, .n = 1, .keys = {key}};
    snprintf(name, sizeof(name), "ks.t/%u", one->generation);
    snprintf(item, sizeof(item), "i%u", key);
    send_words(3, (const char *[]){"BF.EXISTS", name, item});
}

/* ---- answers ---- */

/* Those that have a name of a reply. */
struct names {
    bool has[SSTABLES];
    bool pattern; /* the daemon does not know them all */
    unsigned n;
};

struct lists {
    struct names found[KEYS], unknown;
};

static void fail(const char *what, const struct sstable *sstable, unsigned key)
{
    char path[200] = "";
    if (sstable)
        path_of(path, sstable, "Filter.db");
    model_fail(it.model, "SSTables: %s: key i%u, %s", what, key, path);
}

/* "ks.t/7", or with a path behind it. */
static bool is_named(const struct sstable *sstable, const char *name)
{
    char *end;
    unsigned long generation = strtoul(name + strlen("ks.t/"), &end, 10);
    return generation == sstable->generation && (*end != '#' || end[1] == 'a' + (int)sstable->dir);
}

static void take_name(const struct resp_reply *reply, size_t node, struct names *names)
{
    struct slice text = resp_reply_text(reply, node);
    struct sstable *known = NULL;
    char name[200];
    snprintf(name, sizeof(name), "%.*s", (int)text.len, text.ptr);
    names->n++;
    names->pattern |= strcmp(name, "ks.t/*") == 0;
    for (unsigned i = 0, n = 0; i < it.n; i++)
        if (strcmp(name, "ks.t/*") != 0 && is_named(&it.all[i], name)) {
            names->has[i] = true;
            known = n++ == 0 ? &it.all[i] : NULL; /* one of two SSTables: nobody knows which */
        }
    if (!known)
        return;
    if (known->since_ns && known->since_ns < it.question.sent_ns) /* before, it may change once more */
        known->known = known->named = true;
    if (!known->since_ns && is_young(known))
        fail("is named before it is whole", known, 0);
}

/* False: it is no reply of BF.FIND. */
static bool parse(const struct resp_reply *reply, unsigned nkeys, struct lists *out)
{
    size_t at = 5;
    memset(out, 0, sizeof(*out));
    if (reply->nodes[0].kind != RESP_REPLY_ARRAY || reply->nodes[0].number != 8 || reply->nodes[4].number != nkeys)
        return false;
    for (unsigned i = 0; i < nkeys; i++)
        for (int64_t n = reply->nodes[at++].number; n > 0; n--)
            take_name(reply, at++, &out->found[i]);
    at++;
    for (int64_t n = reply->nodes[at++].number; n > 0; n -= 2, at += 2)
        if (!slice_is(resp_reply_text(reply, at + 1), "no filter matches"))
            take_name(reply, at, &out->unknown);
    return true;
}

/* Some SSTable of these names had the key when it was written. */
static void check_found(const struct names *found, unsigned key)
{
    bool has = false;
    for (unsigned i = 0; i < it.n; i++)
        if (found->has[i] && (it.all[i].keys & bit(key)) && it.all[i].kind == WHOLE) {
            has = true;
            if (it.all[i].since_ns)
                it.known |= bit(key);
        }
    if (found->n && !has)
        fail("an SSTable is found that never had the key", NULL, key);
}

static void check_key(const struct question *question, const struct lists *answer, unsigned which)
{
    unsigned key = question->keys[which];
    const struct names *found = &answer->found[which], *unknown = &answer->unknown;
    if ((question->must & bit(key)) && found->n + unknown->n == 0)
        fail("nothing has the key", NULL, key);
    for (unsigned i = 0; i < it.n; i++) {
        const struct sstable *sstable = &it.all[i];
        bool named = (found->has[i] && sstable->kind == WHOLE) || unknown->has[i] || unknown->pattern;
        if (question->must_name[i] && sstable->live && (sstable->keys & bit(key)) && !named)
            fail("is not named", sstable, key);
    }
    check_found(found, key);
}

/* Another SSTable may have had the name, and may answer for it until it is forgotten. */
static void check_exists(const struct question *question, const struct resp_reply *reply)
{
    const struct sstable *one = question->one;
    bool all = true, any = false;
    for (unsigned i = 0; i < it.n; i++) {
        bool has = it.all[i].kind == WHOLE && (it.all[i].keys & bit(question->keys[0]));
        all &= has || it.all[i].generation != one->generation;
        any |= has && it.all[i].generation == one->generation;
    }
    bool number = reply->nodes[0].kind == RESP_REPLY_INTEGER;
    if (number && one->live && (reply->nodes[0].number ? !any : all))
        fail(all ? "lacks its key" : "has a key that it never had", one, question->keys[0]);
    if (!number && reply->nodes[0].kind != RESP_REPLY_ERROR)
        fail("a strange answer", one, question->keys[0]);
}

static void check(const struct resp_reply *reply, struct lists *answer)
{
    struct question *question = &it.question;
    question->under_way = false;
    if (it.shown)
        printf("%14.6f  SSTables: an answer of kind %d\n", (double)schedule_now_ns() / 1e9, (int)reply->nodes[0].kind);
    if (question->one) {
        check_exists(question, reply);
    } else if (parse(reply, question->n, answer)) {
        for (unsigned i = 0; i < question->n; i++)
            check_key(question, answer, i);
    } else if (!it.model->faults && !it.model->scarce) {
        model_fail(it.model, "SSTables: BF.FIND is refused: %.*s", (int)reply->nodes[0].len,
                   reply->base + reply->nodes[0].off);
    }
}

static bool take(struct lists *answer, bool *waits_out)
{
    struct resp_reply reply;
    enum resp_reply_status status;
    bool open = sim_client_receive(&it.client);
    if (sim_client_reply(&it.client, &reply, &status))
        check(&reply, answer);
    *waits_out = it.question.under_way;
    return open;
}

bool sim_sstables_take(bool *waits_out)
{
    static struct lists answer;
    return take(&answer, waits_out);
}

/* ---- a life ---- */

void sim_sstables_begin(struct model *model, bool shown, bool starves)
{
    memset(&it, 0, sizeof(it));
    it.model = model;
    it.shown = shown;
    it.same_names = below(3) == 0;
    it.starved = starves && below(3) == 0;
    sim_memory_fail_in("sstables", it.starved ? 2 + (unsigned)below(20) : 0);
    for (unsigned i = 0; i < DIRS; i++) {
        char path[] = {(char)('a' + (int)i), '/', 'k', 's', '\0'}, root[] = {path[0], '\0'}, table[] = "a" TABLE;
        table[0] = path[0];
        CHECK(mkdir(root, 0755) == 0 && mkdir(path, 0755) == 0 && mkdir(table, 0755) == 0);
    }
    for (uint64_t n = below(60); n > 0; n--)
        work();
    for (unsigned i = 0; i < it.n; i++) {
        it.all[i].known = it.all[i].live;
        it.known |= it.all[i].since_ns ? it.all[i].keys : 0;
    }
}

void sim_sstables_connect(void)
{
    int fd;
    while ((fd = sim_connect()) < 0)
        schedule_sleep(MS);
    sim_client_open(&it.client, fd);
}

void sim_sstables_step(void)
{
    for (uint64_t n = below(4); n > 0; n--)
        work();
    if (below(40) == 0)
        schedule_sleep(below(2 * LATE_NS)); /* scans of all directories */
    if (it.question.under_way || it.n == 0)
        return;
    if (below(2))
        ask_find(below(2));
    else if (below(4) == 0)
        ask_exists();
}

/* Each SSTable is named if and only if it is there, and is asked if its filter is whole and there is memory for it. */
static bool knows_all(const struct lists *answer)
{
    for (unsigned i = 0; i < it.n; i++) {
        const struct sstable *sstable = &it.all[i];
        bool unknown = answer->unknown.has[i], same = false;
        for (unsigned j = 0; j < it.n; j++)
            same |= i != j && it.all[j].live && it.all[j].generation == sstable->generation;
        for (unsigned key = 0; key < KEYS; key++) {
            bool found = answer->found[key].has[i], has = sstable->live && (sstable->keys & bit(key));
            bool may = has && sstable->kind == WHOLE;
            if (!same && found != may && !(may && unknown && it.model->scarce))
                return false;
        }
        if (!same && unknown && (!sstable->live || (sstable->kind == WHOLE && !it.model->scarce)))
            return false;
        if (sstable->live && sstable->kind != WHOLE && !unknown)
            return false;
    }
    return !answer->unknown.pattern;
}

void sim_sstables_come_to_rest(void)
{
    static struct lists answer;
    sim_memory_fail_in("", 0);
    finish_job();
    for (unsigned round = 0; round < REST && !it.model->failure[0]; round++) {
        bool waits = true;
        ask_find(true);
        for (unsigned i = 0; waits && i < REST; i++) {
            schedule_sleep(i < 300 ? MS : 100 * MS);
            if (!take(&answer, &waits))
                waits = !(round = REST);
        }
        if (!waits && knows_all(&answer))
            return;
        schedule_sleep(200 * MS);
    }
    model_fail(it.model, "SSTables: the daemon does not know those that are there");
}

static int remove_path(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type;
    return at->level ? remove(path) : 0;
}

void sim_sstables_remove(void)
{
    (void)nftw(".", remove_path, 8, FTW_DEPTH | FTW_PHYS);
}
