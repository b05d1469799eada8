/* sim_model: the names and items of a simulated daemon as its clients know them. Each client has its own names, and
 * their commands run in its order: the model knows their state after each reply (sim_filter.h). All clients add to the
 * shared filters at once: of these the model knows the acknowledged items, and the winner of each.
 *
 * A client's names 0 to 2 are in database 0. Names 3 and 4 are in a database of its own, as are 5 and 6: SWAPDB
 * exchanges these. A family of its own has the last four: kinds of filters that do not mix with the others.
 *
 * After an end of the daemon the disk may have any state from a lower bound on, which follows from the policy of the
 * log. The state of the next daemon must be one of these, and the model continues from it.
 *
 * The model lives in the arena. model_fail() reports a contradiction.
 *
 * Thread: one at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "resp_reply.h"
#include "sim_filter.h"

#define MODEL_CLIENTS  4
#define MODEL_PLAIN    3 /* names of each client in database 0 */
#define MODEL_OWN      2 /* in each of two databases of its own */
#define MODEL_NAMES    (MODEL_PLAIN + 2 * MODEL_OWN)
#define MODEL_SHARED   3 /* the last one takes claims only */
#define MODEL_CLAIMS   (MODEL_SHARED - 1)
#define MODEL_WORDS    6 /* items of one command */
#define MODEL_PIPE     8 /* commands of one client without a reply yet */
#define MODEL_DUMP_MAX 4096
#define MODEL_CHUNKS   4

enum op_kind {
#define OP(id, word, chance) OP_##id,
#include "sim_ops.def"
#undef OP
    OP_KINDS
};

/* The least state that a save has which is requested now. */
struct model_snapshot {
    size_t steps[MODEL_CLIENTS];
    uint64_t shared[MODEL_SHARED];
};

/* The value of a filter. */
struct model_dump {
    struct model_filter filter;
    bool plain; /* of a name in database 0 */
    unsigned jumps;
    size_t len; /* 0: there is none */
    char bytes[MODEL_DUMP_MAX];
};

/* The chunks of a filter: one after the other, and then to a new name. A load may stop anywhere. */
struct model_scan {
    struct model_dump chunks[MODEL_CHUNKS];
    uint64_t iterators[MODEL_CHUNKS];
    unsigned n, name;
    bool asks, whole;        /* a request is under way; all chunks are there */
    unsigned loaded, target; /* chunks sent to this name */
};

struct op {
    enum op_kind kind;
    bool shared;            /* the name is a shared one */
    bool many;              /* BF.MADD, BF.MEXISTS */
    bool replace;           /* COPY, RESTORE */
    unsigned before, after; /* replies before and after its own: of MULTI and EXEC, of SELECT */
    bool exec;              /* between MULTI and EXEC */
    unsigned stage;         /* replies that have come */
    bool alone;             /* MULTI has failed: the command runs without it */
    unsigned name, to, n;
    unsigned items[MODEL_WORDS];
    uint64_t ms;                /* a time to live, or the Unix time of its end; 0: none */
    struct model_filter value;  /* RESTORE, the last BF.LOADCHUNK */
    unsigned chunk;             /* of BF.SCANDUMP, BF.LOADCHUNK */
    bool last;                  /* BF.LOADCHUNK */
    uint64_t known;             /* OP_EXISTS of a shared name: the items that were acknowledged before */
    struct model_snapshot save; /* OP_SAVE */
    struct moment when;
};

struct model_state {
    struct model_filter names[MODEL_NAMES];
};

struct model_step {
    struct model_state state;
    uint64_t acked_ns;
};

struct model_client {
    enum family family;
    struct model_step *steps; /* [0]: the state at the daemon's start */
    size_t nsteps, size;
    size_t saved;           /* a committed save has this step */
    struct model_dump dump; /* the latest one */
    struct model_scan scan;
    struct op pipe[MODEL_PIPE];
    size_t npipe;
};

#define MODEL_NOBODY UINT8_MAX

struct model_shared {
    uint64_t ever; /* sent, also before FLUSHALL */
    uint64_t sent, acked, won, saved;
    uint64_t sent_by[MODEL_CLIENTS];
    uint8_t owner[MODEL_ITEMS]; /* of claims: client + 1; 0: not known; MODEL_NOBODY */
    uint64_t acked_ns[MODEL_ITEMS];
};

struct model {
    struct model_client clients[MODEL_CLIENTS];
    struct model_shared shared[MODEL_SHARED];
    enum family shared_family[MODEL_SHARED];
    bool faults;            /* commands may fail without a reason of their own */
    bool scarce;            /* memory has a limit, and some filters are large */
    bool maybe;             /* queries of evicted filters answer 1 */
    bool counts_may_exceed; /* after a start from a save without a log, which counts items that came while bits were
                               copied */
    struct window_kind window;
    uint8_t owners[MODEL_ITEMS]; /* of claims, before the restart */
    uint64_t claimed;            /* claims that were sent before it */
    uint64_t halves;             /* claims of which a save without a log had the mark only: two owners may win them */
    unsigned jumps;              /* of the time of day so far */
    struct model_false falses;
    uint64_t commands, restarts, checked;
    uint64_t done[OP_KINDS]; /* commands that were not refused */
    char failure[400];
};

struct model *model_create(void);

/* The family of a name of a client with this own family. */
enum family model_family_of(enum family own, unsigned name);
bool model_is_write(const struct op *op);
const char *model_word(enum op_kind kind);

/* This client has sent the command. */
void model_sent(struct model *model, unsigned client, const struct op *op);

/* The reply to the client's oldest command without a reply. */
void model_replied(struct model *model, unsigned client, const struct resp_reply *reply, uint64_t now_ns,
                   uint64_t now_ms);

/* The time of day is set back, while no command is under way. */
void model_set_back(struct model *model, uint64_t was_ms);

/* After all replies of a life without faults: each present item has a winner. */
void model_check_winners(struct model *model);

/* ---- for model_replied(), in sim_take.c ---- */

/* The answer to item `i` of the command. */
enum answer model_answer(const struct op *op, const struct resp_reply *reply, unsigned i);
bool model_says(const struct resp_reply *reply, const char *words);

/* The state after the reply; NULL: without one the command may have run or not. False: such a reply is impossible. */
bool model_take(struct model *model, enum family own, struct model_state *state, const struct op *op,
                const struct resp_reply *reply);

/* The reply refuses the command for no reason of its own. */
bool model_is_refused(const struct model *model, const struct op *op, const struct resp_reply *reply);

/* ---- ends ---- */

enum model_kept { KEPT_ACKNOWLEDGED, KEPT_SECONDS, KEPT_SAVES };

/* What the disk may have of a name if the daemon ends now. */
struct model_filter model_bounds_of(struct model *model, unsigned client, unsigned name, enum model_kept kept,
                                    uint64_t now_ns);
struct model_filter model_bounds_of_shared(const struct model *model, unsigned shared, enum model_kept kept,
                                           uint64_t now_ns);

/* A state of the next daemon, as its clients see it. The bounds become this state. */
/* After model_restart(): `marks` of each client are in the filter of claims. `both`: an item and its mark are there
 * together. `kept_all`: nothing that was acknowledged may be lost. */
void model_check_claims(struct model *model, const uint64_t marks[MODEL_CLIENTS], bool both, bool kept_all);

void model_check(struct model *model, enum family family, const char *name, struct model_filter *bounds,
                 const struct model_seen *seen);

/* The model continues from the states that were checked; no command is under way. */
void model_restart(struct model *model, const struct model_filter names[MODEL_CLIENTS][MODEL_NAMES],
                   const struct model_filter shared[MODEL_SHARED], uint64_t now_ns);

__attribute__((format(printf, 2, 3))) void model_fail(struct model *model, const char *format, ...);
