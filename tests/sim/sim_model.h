/* sim_model: the names and items of a simulated daemon as its clients know them. Each client has its own names, and
 * their commands run in its order: the model knows their exact state after each reply. All clients add to the shared
 * filters at once: of these the model knows the acknowledged items, and the winner of each.
 *
 * After an end of the daemon the disk may have any state from a lower bound on, which follows from the policy of the
 * log. The state of the next daemon must be one of these, and the model continues from it.
 *
 * The model lives in the arena. model_fail() reports a contradiction.
 *
 * Thread: one at a time. */
#ifndef BLOOMERY_SIM_MODEL_H
#define BLOOMERY_SIM_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "resp_reply.h"

#define MODEL_CLIENTS 4
#define MODEL_NAMES   3 /* of each client */
#define MODEL_SHARED  2
#define MODEL_ITEMS   48
#define MODEL_WORDS   6 /* items of one command */
#define MODEL_PIPE    8 /* commands of one client without a reply yet */

enum presence { ABSENT, PRESENT, UNSURE };

struct model_filter {
    enum presence presence;
    uint64_t items;  /* a bit for each */
    int64_t surplus; /* of its count above these, after a start without a log */
};

struct model_state {
    struct model_filter names[MODEL_NAMES];
};

enum op_kind { OP_RESERVE, OP_ADD, OP_EXISTS, OP_CARD, OP_DEL, OP_RENAME, OP_SAVE, OP_BGSAVE, OP_HELLO, OP_KINDS };

/* The least state that a save has which is requested now. */
struct model_snapshot {
    size_t steps[MODEL_CLIENTS];
    uint64_t shared[MODEL_SHARED];
};

struct op {
    enum op_kind kind;
    bool shared;    /* the name is a shared one */
    bool many;      /* BF.MADD, BF.MEXISTS */
    bool exec;      /* between MULTI and EXEC */
    unsigned stage; /* of these: replies that have come */
    bool alone;     /* MULTI has failed: the command runs without it */
    unsigned name, to, n;
    unsigned items[MODEL_WORDS];
    uint64_t known;             /* OP_EXISTS of a shared name: the items that were acknowledged before */
    struct model_snapshot save; /* OP_SAVE */
};

struct model_step {
    struct model_state state;
    uint64_t acked_ns;
};

struct model_client {
    struct model_step *steps; /* [0]: the state at the daemon's start */
    size_t nsteps, size;
    size_t saved; /* a committed save has this step */
    struct op pipe[MODEL_PIPE];
    size_t npipe;
};

struct model_shared {
    uint64_t sent, acked, won, saved;
    uint64_t acked_ns[MODEL_ITEMS];
};

struct model {
    struct model_client clients[MODEL_CLIENTS];
    struct model_shared shared[MODEL_SHARED];
    bool faults;            /* commands may fail without a reason of their own */
    bool counts_may_exceed; /* after a start from a save without a log, which counts items that came while bits were
                               copied */
    uint64_t commands, restarts, checked;
    char failure[400];
};

struct model *model_create(void);

/* This client has sent the command. */
void model_sent(struct model *model, unsigned client, const struct op *op);

/* The reply to the client's oldest command without a reply. */
void model_replied(struct model *model, unsigned client, const struct resp_reply *reply, uint64_t now_ns);

/* After all replies of a life without faults: each present item has a winner. */
void model_check_winners(struct model *model);

/* ---- ends ---- */

enum model_kept { KEPT_ACKNOWLEDGED, KEPT_SECONDS, KEPT_SAVES };

struct model_bounds {
    bool may_be, may_not_be;
    uint64_t lower, upper; /* of the items of a filter that is there */
};

/* The states of a name, or of a shared filter, that the disk may have if the daemon ends now. */
struct model_bounds model_bounds_of(const struct model *model, unsigned client, unsigned name, enum model_kept kept,
                                    uint64_t now_ns);
struct model_bounds model_bounds_of_shared(const struct model *model, unsigned shared, enum model_kept kept,
                                           uint64_t now_ns);

/* The state of the next daemon, as its clients see it. */
struct model_seen {
    bool present;
    uint64_t items;
    int64_t count;
};

void model_check(struct model *model, const char *name, const struct model_bounds *bounds,
                 const struct model_seen *seen);

/* The model continues from the states seen; no command is under way. */
void model_restart(struct model *model, const struct model_seen names[MODEL_CLIENTS][MODEL_NAMES],
                   const struct model_seen shared[MODEL_SHARED], uint64_t now_ns);

__attribute__((format(printf, 2, 3))) void model_fail(struct model *model, const char *format, ...);

#endif
