#include "runner.h"

static void start_held(struct section *section)
{
    jobs_start_held(&runner_of(section->io)->jobs);
}

int runner_init(struct runner *runner)
{
    struct io *io = &runner->io;
    push_init(&runner->push, io);
    section_init(&runner->section, io, start_held);
    monitor_init(&runner->monitor, io->server->pubsub);
    log_waits_init(&runner->log, io);
    fetches_init(&runner->fetches, io->server, &io->mailbox, &runner->keyed);
    jobs_init(&runner->jobs, io, &runner->section, &runner->push);
    sleepers_init(&runner->sleepers, io, &runner->log);
    runner->slice_items = COMMAND_SLICE;
    int err = window_init(&runner->window, io, &runner->log, &runner->fetches);
    admission_init(&runner->admission, io, &runner->log, runner->window.counters);
    return err;
}

void runner_deinit(struct runner *runner)
{
    buf_deinit(&runner->monitor.lines);
    keyed_deinit(&runner->keyed);
    window_deinit(&runner->window);
}
