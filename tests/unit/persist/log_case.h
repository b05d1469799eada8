/* log_case: the fixture of suites that write and read one log: each test has a file system in memory of its own. */
#pragma once

#include "fault_fs.h"
#include "log_frame.h"
#include "log_rig.h"

/* Of the running test; a test process runs one at a time. */
extern struct crash_fs *fs;
extern const struct fsops *ops;

/* For .init and .fini. */
void log_case_begin(void);
void log_case_end(void);

/* From now on the test uses `other`; the previous file system is destroyed. */
void log_case_go_on_with(struct crash_fs *other);

void read_log(bool accept_loss, struct log_rig_read *read);

/* Writes frames first .. last with a sync after each `every`, and one at the end if it is not 0. */
void write_frames(uint64_t first, uint64_t last, uint64_t every);

/* Expects the log to have frames 1 .. n, each once, without complaint. */
void expect_frames(uint64_t n);

/* The path of a segment; valid until the next call. */
const char *segment(uint64_t number);

uint64_t last_segment(void);

void change_byte(const char *path, uint64_t at);
void cut(const char *path, uint64_t size);
