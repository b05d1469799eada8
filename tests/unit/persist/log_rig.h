/* log_rig: a log under test. The contents of a frame follow from its number, so a reader's results can be checked. */
#pragma once

#include "log_reader.h"
#include "log_writer.h"

#define LOG_RIG_DIR "data"

/* Appends the next frame: a few adds, sometimes after a control record. `number` is that of the frame, from 1. Returns
 * the status of log_append(). */
int log_rig_append(struct log_writer *writer, uint64_t number, struct errbuf *err);

/* After a failure: a new segment with the unsynced frames up to `last`. 0 or -errno. */
int log_rig_repair(struct log_writer *writer, uint64_t last, struct errbuf *err);

struct log_rig_read {
    struct log_reader_options options;
    int status;
    struct errbuf err;
    struct log_reader_summary summary;
    uint64_t frames; /* all adds and controls are those of frames 1 .. frames, each exactly once */
    bool exact;      /* or this is false */
    uint64_t first_missing;
    char reports[4096];
};

/* Reads the log of the file system and compares. With `from` above 1 the log begins with that segment. */
void log_rig_read(const struct fsops *fs, uint64_t from, bool accept_loss, struct log_rig_read *read_out);

/* Reads the log as after a save: `save` has from, reached, accepted and on_damage. */
void log_rig_read_save(const struct fsops *fs, const struct log_reader_options *save, struct log_rig_read *read_out);

/* A writer on a file system, with small segments, that continues the read log, which is settled. */
struct log_writer *log_rig_writer(const struct fsops *fs, const struct log_rig_read *read);
