#include "schedule.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rng.h"
#include "schedule_turns.h"

#define JUMP_IN  64 /* at one in so many choices the threads that could continue are late */
#define JUMP_NS  UINT64_C(3000000)
#define FIRST_ID UINT64_C(0x51000000)

enum state { FREE, READY, WAITS, POLLS, ENDED };

struct thread {
    enum state state;
    struct turn turn;
    char name[16];
    const void *address;
    uint64_t until_ns;
    bool late; /* the time was over before it was woken */
    int epfd;  /* of a thread that polls; -1: fds */
    struct epoll_event *events;
    struct pollfd *fds;
    int size, found;
    uint64_t looked; /* io.count at the last look */
    pthread_t id;
    bool detached;
    void *(*run)(void *arg);
    void *arg, *value;
};

static struct {
    struct thread threads[SCHEDULE_THREADS];
    unsigned n;
    struct schedule_options options;
    struct rng order, clients;
    uint64_t now_ns, points, trace, end_point, io;
    uint64_t started; /* threads ever */
    void (*end)(void);
    struct thread *client;
    struct thread *gone; /* has ended, and is joined by the next that continues */
} run;

uint64_t schedule_branches;

static _Thread_local struct thread *self;

/* ---- turns ---- */

static void release(struct thread *thread)
{
    thread->state = FREE;
}

/* The C library ends a thread after its function; it has done so before another continues. */
static void join_gone(void)
{
    struct thread *gone = run.gone;
    if (!gone)
        return;
    run.gone = NULL;
    turn_join(&gone->turn);
    if (gone->detached)
        release(gone);
}

static void mix(uint64_t what)
{
    run.trace = (run.trace ^ what) * UINT64_C(0x9e3779b97f4a7c15);
    run.trace ^= run.trace >> 29;
}

static void fail(const char *why)
{
    static const char *const names[] = {"free", "ready", "waits", "polls", "ended"};
    self = NULL; /* calls are the system's from here on: a fuzzer writes its input */
    fprintf(stderr, "schedule: %s, after %llu points\n", why, (unsigned long long)run.points);
    for (unsigned i = 0; i < run.n; i++) {
        const struct thread *thread = &run.threads[i];
        fprintf(stderr, "  %2u %-16s %s %p until %llu\n", i, thread->name, names[thread->state], thread->address,
                (unsigned long long)thread->until_ns);
    }
    abort();
}

/* ---- who continues ---- */

static int (*real_epoll)(int, struct epoll_event *, int, int);
static int (*real_poll)(struct pollfd *, nfds_t, int);

static int look(struct thread *thread)
{
    return thread->epfd >= 0 ? real_epoll(thread->epfd, thread->events, thread->size, 0)
                             : real_poll(thread->fds, (nfds_t)thread->size, 0);
}

static bool can_go_on(struct thread *thread)
{
    if (thread->state == POLLS && thread->looked != run.io) {
        thread->looked = run.io;
        thread->found = look(thread);
        if (thread->found != 0)
            thread->state = READY;
    }
    if ((thread->state == WAITS || thread->state == POLLS) && thread->until_ns <= run.now_ns) {
        thread->late = true;
        thread->state = READY;
    }
    return thread->state == READY;
}

static bool pass_to_next_time(void)
{
    uint64_t next = SCHEDULE_FOREVER;
    for (unsigned i = 0; i < run.n; i++) {
        const struct thread *thread = &run.threads[i];
        if ((thread->state == WAITS || thread->state == POLLS) && thread->until_ns < next)
            next = thread->until_ns;
    }
    if (next == SCHEDULE_FOREVER)
        return false;
    if (next > run.now_ns)
        run.now_ns = next;
    return true;
}

static struct thread *choose(const struct thread *not_this)
{
    struct thread *ready[SCHEDULE_THREADS];
    for (;;) {
        unsigned n = 0;
        for (unsigned i = 0; i < run.n; i++)
            if (can_go_on(&run.threads[i]) && &run.threads[i] != not_this)
                ready[n++] = &run.threads[i];
        if (n > 0) {
            if (run.options.switch_in && rng_below(&run.order, JUMP_IN) == 0)
                run.now_ns += rng_below(&run.order, JUMP_NS);
            return n == 1 ? ready[0] : ready[rng_below(&run.order, n)];
        }
        if (not_this && not_this->state == READY)
            return (struct thread *)not_this;
        if (!pass_to_next_time())
            fail("all threads wait for each other");
    }
}

static void go_to(struct thread *next)
{
    struct thread *me = self;
    mix((uint64_t)(next - run.threads) ^ run.now_ns << 8);
    if (next == me)
        return;
    turn_pass(&me->turn, &next->turn);
    join_gone();
}

static void count_point(void)
{
    run.now_ns += run.options.point_ns;
    if (++run.points == run.end_point)
        run.end();
    if (run.points > run.options.max_points)
        fail("no end");
}

void schedule_point(void)
{
    if (!self)
        return;
    count_point();
    if (run.options.switch_in && rng_below(&run.order, run.options.switch_in) == 0)
        go_to(choose(NULL));
}

void schedule_branch_switch(void)
{
    schedule_branches = 1 + rng_below(&run.order, 2 * (uint64_t)run.options.branch_in);
    if (!self)
        return;
    count_point();
    go_to(choose(NULL));
}

void schedule_yield(void)
{
    count_point();
    run.now_ns += 1000;
    struct thread *next = choose(self);
    if (next == self)
        (void)pass_to_next_time(); /* it waits for somebody who sleeps */
    go_to(next);
}

/* ---- waiting ---- */

static bool wait_for_turn(enum state state, uint64_t until_ns)
{
    struct thread *me = self;
    count_point();
    me->until_ns = until_ns;
    me->late = false;
    me->state = state;
    go_to(choose(NULL));
    return !me->late;
}

bool schedule_wait(const void *address, uint64_t until_ns)
{
    self->address = address;
    bool woken = wait_for_turn(WAITS, until_ns);
    self->address = NULL;
    return woken;
}

int schedule_wake_some(const void *address, int most)
{
    int woken = 0;
    for (; woken < most; woken++) {
        struct thread *waiting[SCHEDULE_THREADS];
        unsigned n = 0;
        for (unsigned i = 0; i < run.n; i++)
            if (run.threads[i].state == WAITS && run.threads[i].address == address)
                waiting[n++] = &run.threads[i];
        if (n == 0)
            break;
        waiting[n == 1 ? 0 : rng_below(&run.order, n)]->state = READY;
    }
    return woken;
}

void schedule_wake(const void *address)
{
    schedule_wake_some(address, INT_MAX);
}

static int poll_for(uint64_t until_ns)
{
    struct thread *me = self;
    count_point();
    me->looked = run.io;
    me->found = look(me);
    if (me->found == 0 && until_ns > run.now_ns)
        (void)wait_for_turn(POLLS, until_ns);
    else
        schedule_point();
    return me->found;
}

int schedule_epoll(int epfd, struct epoll_event *events, int size, uint64_t until_ns)
{
    self->epfd = epfd;
    self->events = events;
    self->size = size;
    return poll_for(until_ns);
}

int schedule_poll(struct pollfd *fds, nfds_t n, uint64_t until_ns)
{
    self->epfd = -1;
    self->fds = fds;
    self->size = (int)n;
    return poll_for(until_ns);
}

void schedule_io(void)
{
    run.io++;
}

/* ---- threads ---- */

static struct thread *free_thread(void)
{
    for (unsigned i = 0; i < run.n; i++)
        if (run.threads[i].state == FREE)
            return &run.threads[i];
    if (run.n == SCHEDULE_THREADS)
        fail("too many threads");
    return &run.threads[run.n++];
}

static void begin_thread(void *arg)
{
    struct thread *me = arg;
    self = me;
    join_gone();
    me->value = me->run(me->arg);
    count_point();
    me->state = ENDED;
    schedule_wake(me);
    struct thread *next = choose(NULL);
    mix((uint64_t)(next - run.threads) ^ run.now_ns << 8);
    run.gone = me;
    self = NULL;
    turn_end(&me->turn, &next->turn);
}

int schedule_start_thread(pthread_t *id_out, const pthread_attr_t *attr, void *(*body)(void *arg), void *arg)
{
    struct thread *thread = free_thread();
    int detached = PTHREAD_CREATE_JOINABLE;
    if (attr)
        pthread_attr_getdetachstate(attr, &detached);
    *thread = (struct thread){
        .state = READY,
        .run = body,
        .arg = arg,
        .id = (pthread_t)(FIRST_ID + run.started++),
        .detached = detached == PTHREAD_CREATE_DETACHED,
    };
    int status = turn_create(&thread->turn, begin_thread, thread);
    if (status) {
        thread->state = FREE;
        return status;
    }
    *id_out = thread->id;
    schedule_point();
    return 0;
}

static struct thread *by_id(pthread_t id)
{
    for (unsigned i = 0; i < run.n; i++)
        if (run.threads[i].state != FREE && run.threads[i].id == id)
            return &run.threads[i];
    fail("a thread that does not exist");
    return NULL;
}

bool schedule_has_started(pthread_t id)
{
    return (uint64_t)id - FIRST_ID < run.started;
}

int schedule_join(pthread_t id, void **value_out)
{
    struct thread *thread = by_id(id);
    while (thread->state != ENDED)
        schedule_wait(thread, SCHEDULE_FOREVER);
    if (value_out)
        *value_out = thread->value;
    release(thread);
    return 0;
}

int schedule_detach(pthread_t id)
{
    struct thread *thread = by_id(id);
    thread->detached = true;
    if (thread->state == ENDED)
        release(thread);
    return 0;
}

void schedule_set_name(const char *name)
{
    snprintf(self->name, sizeof(self->name), "%s", name);
}

const char *schedule_name(void)
{
    return self->name;
}

unsigned schedule_self(void)
{
    return (unsigned)(self - run.threads) + 1;
}

/* ---- the run ---- */

bool schedule_is_on(void)
{
    return self != NULL;
}

bool schedule_is_client(void)
{
    return self == run.client;
}

void schedule_begin(const struct schedule_options *options)
{
    *(void **)&real_epoll = schedule_real("epoll_wait");
    *(void **)&real_poll = schedule_real("poll");
    run.options = *options;
    schedule_branches = options->branch_in;
    rng_init(&run.order, options->seed);
    rng_init(&run.clients, options->seed ^ UINT64_C(0xc11e275));
    run.now_ns = options->begin_ns;
    run.points = run.trace = run.end_point = 0;
    run.client = self = free_thread();
    *self = (struct thread){.state = READY, .name = "clients"};
    turn_begin(&self->turn);
}

void schedule_end(void)
{
    self->state = FREE;
    self = NULL;
}

uint64_t schedule_now_ns(void)
{
    return run.now_ns;
}

void schedule_pass(uint64_t ns)
{
    run.now_ns += ns;
}

void schedule_sleep(uint64_t ns)
{
    (void)schedule_wait(self, run.now_ns + ns);
}

uint64_t schedule_random(void)
{
    return rng_next(&run.order);
}

uint64_t schedule_client_random(void)
{
    return rng_next(&run.clients);
}

uint64_t schedule_trace(void)
{
    return run.trace;
}

void schedule_note(uint64_t event)
{
    mix(event);
}

uint64_t schedule_points(void)
{
    return run.points;
}

void schedule_end_at(uint64_t point, void (*end)(void))
{
    run.end_point = point;
    run.end = end;
}

void *schedule_real(const char *name)
{
    /* The conditions have an older version, too, which dlsym() may find. */
    void *function = strncmp(name, "pthread_cond_", 13) == 0 ? dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2") : NULL;
    function = function ? function : dlsym(RTLD_NEXT, name);
    if (!function)
        abort();
    return function;
}
